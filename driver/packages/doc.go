// Package packages gets files out of the packages that distributions and vendors publish, deb and rpm, from a
// repository or a directory of the host. It installs nothing, runs no script of a package, and resolves no
// dependencies: its caller names each package. It writes below the two directories that its caller names and nowhere
// else.
//
// # What is trusted
//
// A repository is trusted by OpenPGP keys in files that root owns on the host. Of a deb repository, a key must have
// signed InRelease or Release, which has the digests of the indexes, which have those of the packages. Of an rpm
// repository, a key must have signed repomd.xml, or else each package. Nothing is unpacked before all of a request
// is verified. Plain HTTP is therefore allowed: it hides nothing, but nobody can change what comes.
//
// A repository that was valid once can be served for ever. Valid-Until ends that where a repository has it, and its
// date must not be before the one that the caller saw last.
//
// A directory is trusted because root alone can write to it, unless the host demands signatures ([accel.Trust]).
//
// # Failures
//
// Every failure is an *accel.Problem. Some say that the package is not here, and another source may have it:
// ArtifactNotFound, RegistryUnreachable, RegistryDenied. Others refuse what is here: SignatureInvalid, DigestMismatch,
// ArtifactInvalid and, for a request that cannot be one, ConfigInvalid. The rest are failures of this host.
package packages
