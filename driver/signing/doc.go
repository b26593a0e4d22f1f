// Package signing knows the signatures of kernel modules: who signed a file, which keys the running kernel trusts, what
// it does with a module of this signature, and how to sign one as the kernel's own tool does. It reads the host's
// keyrings and certificates, and writes nothing but the module file that it is told to sign. Whether a signature is a
// good one it cannot say: only the kernel has the key.
package signing
