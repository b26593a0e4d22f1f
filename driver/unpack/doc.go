// Package unpack writes what archives of strangers hold into a directory of the host, and no more than that: it bounds
// bytes, files and names, writes nowhere else, keeps no set-user-ID bit, creates no device, and follows no link. It
// executes nothing of an archive: the header of a self-extracting one is read as text.
//
// It reads tar (plain, gzip, xz, zstd, bzip2 or lzma), deb and cpio, the payload of rpm. Links of an archive are
// created at the end, and only those that lead to something in the directory: until then none exists that a later
// entry could be written through.
//
// Every failure is an *accel.Problem: ArtifactInvalid blames the archive, DigestMismatch says that it is another one
// than was pinned, and NoSpace, ReadOnly, PermissionDenied and InternalError blame this host.
package unpack
