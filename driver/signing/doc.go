// Package signing handles the signatures of kernel modules: who signed a file, which keys the running kernel trusts,
// what it does with a module of this signature, and how to sign a module like the kernel's own tool. It reads the
// host's keyrings and certificates, and writes only the module file that it signs. It cannot verify a signature: only
// the kernel has the key.
package signing
