// Package guard starts goroutines.
package guard

func run() { go run() }
