// Package kernel holds the hook that distributions run when a kernel was installed, and its test. The hook may only ask
// `acceld driver preflight`; it never fails the installation of a kernel.
package kernel
