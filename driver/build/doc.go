// Package build compiles drivers. It copies a source tree, finds the headers and the compiler for a kernel, runs
// kbuild, make or the commands of a dkms.conf, and puts signed modules into the store. It may write below the build's
// own directory and the store. What it runs has no network, few rights and a time limit. No code of a source runs
// outside these limits, and nothing is ever installed on the host.
package build
