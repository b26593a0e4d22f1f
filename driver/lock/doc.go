// Package lock keeps several processes on one host from doing the same work on drivers at once, with the agent's
// lock, the driver lock and locks for single builds. Each lock file names its holder. A lock ends with its process,
// so none is ever stale. The package changes only its lock files.
package lock
