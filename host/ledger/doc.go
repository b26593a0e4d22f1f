// Package ledger records what acceld changes on a host, so that `acceld purge` can restore all of it, to the byte. The
// rest of acceld changes files that are not its own only through this package. The previous state (content, mode,
// owner, time, extended attributes, link text, absence) is first recorded and synced; only then is the file changed.
//
// Only the state before acceld counts. A path that acceld wrote twice is restored to the state before the first write.
// A path that somebody else changed since is left as it is and reported. A path that acceld restored by itself is
// forgotten.
//
// There are two books. One is in <StateDir>/ledger and survives reboots. The other covers what does not survive a
// reboot (below /run, /dev, /sys and /proc). It is in /run/acceld/ledger, where it needs no disk, so a full or
// read-only disk does not stop a CDI spec. Each book is a journal, with one JSON record and its checksum per line, and
// a directory of blobs named by their SHA-256. The process may die at any line: if a change was announced but not
// made, there is nothing to undo.
//
// The package does not decide what is desired. It does not check who else uses a file, and it never restores what it
// cannot prove: a damaged journal or blob is a problem, not a guess.
package ledger
