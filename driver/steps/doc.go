// Package steps runs a definition's own steps: its programs, what they wait for, and what they check. What a step may
// do the definition says; the package itself reads files of the host, follows logs and starts the programs that are
// named, without a shell and never beyond their time.
package steps
