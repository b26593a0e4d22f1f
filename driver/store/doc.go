// Package store keeps drivers on the host: modules that were built or fetched, keyed by everything that went into
// them; copies of installed drivers for rollbacks; which driver serves a kind on a kernel; and the markers of loads
// that have not ended. It may write below the agent's state directory and nowhere else; it never builds, fetches,
// judges or loads a module.
package store
