// Package build compiles drivers: it copies a source tree, finds the headers and the compiler of a kernel, runs kbuild,
// make or what a dkms.conf says, and puts signed modules into the store. It may write below the build's own directory
// and the store. What it runs has no network, few rights and an end; nothing of a source runs outside of that, and
// nothing is ever installed on the host.
package build
