// Package unproven keeps the list of what a run could not check: a file of lines "what: why", which make test prints
// last. Who tries a check writes its line or takes it away, so a line is there exactly as long as the newest try failed
// to check. It judges nothing.
package unproven

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// File is the list, below the root of the tree.
const File = "bin/not-checked.txt"

// List is the list of one tree. Several processes may write to it.
type List struct{ path string }

// In is the list of the tree at root.
func In(root string) List { return List{filepath.Join(root, File)} }

// Note says that something was not checked, in place of what was said of it before. Both are single lines, and what has
// no colon.
func (l List) Note(what, why string) error {
	return l.change(what, fmt.Sprintf("%s: %s\n", what, strings.ReplaceAll(why, "\n", " ")))
}

// Proven takes away what was said of something.
func (l List) Proven(what string) error { return l.change(what, "") }

func (l List) change(what, line string) error {
	if _, err := os.Stat(l.path); line == "" && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("cannot note what was not checked: %w", err)
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("cannot note what was not checked: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // until it is closed
		return fmt.Errorf("cannot lock %q: %w", l.path, err)
	}
	old, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("cannot read %q: %w", l.path, err)
	}
	var text bytes.Buffer
	for said := range strings.Lines(string(old)) {
		if !strings.HasPrefix(said, what+": ") {
			text.WriteString(said)
		}
	}
	text.WriteString(line)
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("cannot write %q: %w", l.path, err)
	}
	if _, err := f.WriteAt(text.Bytes(), 0); err != nil {
		return fmt.Errorf("cannot write %q: %w", l.path, err)
	}
	return nil
}
