// Package toolchain keeps builder images: file systems with make, a compiler and binutils, in which a host that has
// none builds its drivers. An image comes from a registry, verified like an artifact, is unpacked once below
// <StateDir>/builders and never changed. Packages that a build needs besides, with headers, source or firmware, are
// unpacked below <StateDir>/needs. The package may write there and in workspaces of the store. It runs nothing.
package toolchain
