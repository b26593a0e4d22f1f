// Package machines holds copies of machines as data: sysfs, proc and etc as text archives, with the facts that must be
// detected in them. No name, address or serial number in them is anybody's.
//
// An archive is a txtar file (golang.org/x/tools/txtar: a comment, then files, each after a line "-- name --") whose
// names may say more than a name:
//
//	-- name -> target --   a symbolic link
//	-- name [dir] --       an empty directory
//	-- name [fifo] --      a FIFO
//	-- name [hex] --       a file whose bytes are given in hexadecimal
//	-- name [size N] --    a sparse file of N bytes
//	-- name [many A-B] --  empty files or, with " -> target", links: name with %d replaced by A to B
package machines

import (
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/acceld/acceld/host"
)

//go:embed *.txtar
var archives embed.FS

// Names lists the machines.
func Names(t testing.TB) []string {
	t.Helper()
	entries, err := archives.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txtar"))
	}
	return names
}

// Unpack writes the machine name into a temporary directory and returns it as a host.
func Unpack(t testing.TB, name string) *host.Host {
	t.Helper()
	root := t.TempDir()
	if err := Write(root, name); err != nil {
		t.Fatal(err)
	}
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Write writes the machine name into the directory root.
func Write(root, name string) error {
	text, err := archives.ReadFile(name + ".txtar")
	if err != nil {
		return err
	}
	if err := unpack(root, string(text)); err != nil {
		return fmt.Errorf("machine %q: %w", name, err)
	}
	return nil
}

// unpack splits the archive at its "-- name --" lines.
func unpack(root, text string) error {
	var name string
	var body strings.Builder
	for line := range strings.Lines(text) {
		next, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "-- ")
		next, end := strings.CutSuffix(next, " --")
		if !ok || !end {
			body.WriteString(line)
			continue
		}
		if err := entry(root, name, body.String()); err != nil {
			return err
		}
		name = next
		body.Reset()
	}
	return entry(root, name, body.String())
}

// entry makes one entry; the comment at the top has no name.
func entry(root, name, body string) error {
	if name == "" {
		return nil
	}
	name, target, link := strings.Cut(name, " -> ")
	name, kind, _ := strings.Cut(name, " [")
	kind, argument, _ := strings.Cut(strings.TrimSuffix(kind, "]"), " ")
	p := filepath.Join(root, name)
	if path.Clean("/"+name) != "/"+name {
		return fmt.Errorf("bad name %q", name)
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	switch {
	case kind == "many":
		return many(p, target, argument)
	case link:
		return os.Symlink(target, p)
	case kind == "dir":
		return os.MkdirAll(p, 0o755)
	case kind == "fifo":
		return syscall.Mkfifo(p, 0o644)
	case kind == "hex":
		b, err := hex.DecodeString(strings.Join(strings.Fields(body), ""))
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		return os.WriteFile(p, b, 0o644)
	case kind == "size":
		size, err := strconv.ParseInt(argument, 10, 64)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			return err
		}
		return os.Truncate(p, size)
	case kind != "":
		return fmt.Errorf("%q: no such kind of entry", kind)
	}
	return os.WriteFile(p, []byte(body), 0o644)
}

func many(pattern, target, argument string) error {
	var from, to int
	if _, err := fmt.Sscanf(argument, "%d-%d", &from, &to); err != nil {
		return fmt.Errorf("%q: %w", argument, err)
	}
	for i := from; i <= to; i++ {
		p := fmt.Sprintf(pattern, i)
		var err error
		if target != "" {
			err = os.Symlink(target, p)
		} else {
			err = os.WriteFile(p, nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
