// Package store keeps drivers on the host: prebuilt and built modules by everything that went into them, copies of
// installed ones to go back to, which driver serves a kind on a kernel, and the marks of loads that have not ended. It
// may write below the agent's state directory and nowhere else; it never builds, fetches, judges or loads a module.
package store
