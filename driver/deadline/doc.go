// Package deadline runs operations on devices that may hang in the kernel, where nothing can cancel them. An
// operation that exceeds its time is abandoned, and is not started again before it returns. The package itself
// touches nothing.
package deadline
