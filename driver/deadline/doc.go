// Package deadline runs operations on devices that may hang in the kernel, where nothing can call them off: one that
// does not end in its time is left there, and is not started again before it comes back. It touches nothing itself.
package deadline
