// Package lock keeps several processes on one host from doing the same work on drivers at once: the agent's lock, the
// driver's, and those of single builds. Who holds one stands in its file. Locks end with their process, so none is ever
// stale. It changes nothing but its files.
package lock
