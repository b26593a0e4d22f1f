package main

import (
	"os"
	"path/filepath"
	"testing"
)

const root = "../.."

// TestList holds every entry to the tree: its lines are there, exactly once.
func TestList(t *testing.T) {
	all, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range check(root, all) {
		t.Error(p)
	}
	const least = 150
	if len(all) < least {
		t.Errorf("%d mutants, at least %d are wanted", len(all), least)
	}
	_ = os.Args
	_ = filepath.Join
}
