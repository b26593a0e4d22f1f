// Package steps runs a definition's own steps: programs, waits and checks. The definition decides what a step does.
// The package itself reads files of the host, follows logs and starts the named programs, without a shell and never
// beyond their timeout.
package steps
