// Package artifact moves prebuilt drivers between registries, bundles (an OCI image layout in a tar file or a
// directory) and a directory of the host. It knows the format, talks to registries, checks digests and signatures,
// and unpacks only what is safe to unpack. It may write below the directory that its caller names and nowhere else;
// it neither chooses a driver nor judges whether a kernel should load one.
//
// # The format
//
// An artifact is an OCI image manifest of artifact type [ArtifactType] with a JSON configuration ([Config]) and one
// layer, a zstd-compressed tar of the module files, below "firmware/" firmware files, and below "root/" the libraries
// and programs that belong to the modules. Links among these are in the configuration. The configuration decides
// what an artifact is for; tags are only an index and may be wrong. Images in the layout of the kernel module
// management operator (/opt/lib/modules/<release>/*.ko and /firmware) are also read, but never written.
//
// # Failures
//
// Every failure is an *accel.Problem. Some say that there is nothing here for this machine, and another source may
// have it: ArtifactNotFound, RegistryUnreachable, RegistryDenied, and, for a pinned artifact or a bundle,
// KernelMismatch and ArchMismatch. Others say that what is here is not what was requested: DigestMismatch,
// ArtifactInvalid and SignatureInvalid. No other source is tried after those; otherwise whoever can damage an
// artifact could choose what a host runs instead.
package artifact
