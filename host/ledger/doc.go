// Package ledger keeps the book of what acceld changes on a host, so that `acceld purge` can take all of it back, to
// the byte. It is the only way in which the rest of acceld changes files that are not its own: what was there is
// recorded first (content, mode, owner, time, extended attributes, link text, absence), made to last, and only then
// changed.
//
// Only what was there before acceld counts. A path that acceld wrote twice goes back to before the first time; one that
// somebody else changed meanwhile is left as it is and reported. A path that acceld took back by itself is forgotten.
//
// There are two books. One is in <StateDir>/ledger and outlives reboots. The other, for what does not (below /run,
// /dev, /sys and /proc), is in /run/acceld/ledger, where it needs no disk: a full or read-only one does not stop a CDI
// spec. Each is a journal, one JSON record per line with its checksum, and a directory of blobs named by their SHA-256.
// The process may end at any line: a change that was announced and not made is one that need not be undone.
//
// The package decides nothing about what is wanted. It does not ask who else uses a file, and it never restores what it
// cannot prove: a damaged journal or blob is a problem, not a guess.
package ledger
