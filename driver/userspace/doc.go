// Package userspace is the store of the user-space halves of drivers: the libraries and programs that containers get
// with a device. An entry is made of what one source has, for one kind and one version of its modules, and is laid out
// like a root: usr/lib64 with the libraries and a link for each soname, usr/bin with the programs.
//
// Which entry serves a kind is derived, never remembered: the one whose version is that of the live modules. The link
// [accel.UserSpaceRoot] points to it, and CDI specs name files below the link. Whoever unloads modules removes the link
// first, and whoever has loaded some sets it last. So a container that starts in between finds no file and does not
// start, instead of starting with a library of another version. A container that runs keeps the files that it was
// given: its mounts hold them, whatever happens to the entry.
package userspace
