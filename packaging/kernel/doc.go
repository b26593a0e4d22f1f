// Package kernel holds the hook that distributions run after they have installed a kernel, and its test. The hook may
// only run `acceld driver preflight`. It never fails the installation of a kernel.
package kernel
