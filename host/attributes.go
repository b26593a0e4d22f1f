package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// Attributes reads attributes of one device, or of a part of it, as of one moment: a directory is listed once
// and a file is read once, however many rows of a definition need it. It is not safe for concurrent use.
type Attributes struct {
	d            Devices
	dir, address string
	listed       map[string][]string // by directory
	answers      map[string]Answer   // by file
}

// Answer is the content of the attribute file Name, or the error of reading it.
type Answer struct {
	Name, Text string
	Err        error
}

// Attributes returns a reader of the device at address.
func (d Devices) Attributes(address string) *Attributes {
	return d.attributesAt(d.Dir(address), address)
}

func (d Devices) attributesAt(dir, address string) *Attributes {
	return &Attributes{d, dir, address, map[string][]string{}, map[string]Answer{}}
}

// Attribute reads an attribute of the device at address. The form of file is that of
// accel.HealthSource.File: a path relative to the device's directory or absolute, optionally a pattern, one line of
// the file, or several alternatives.
func (d Devices) Attribute(address, file string) (string, error) {
	return d.Attributes(address).Read(file)
}

// AttributeAt is [Devices.Attribute] for a part of the function: a relative file is relative to dir.
func (d Devices) AttributeAt(dir, address, file string) (string, error) {
	return d.attributesAt(dir, address).Read(file)
}

// Read is [Devices.Attribute]. If no file exists, the error is fs.ErrNotExist.
func (a *Attributes) Read(file string) (string, error) {
	first := a.alternative(file, 1)[0]
	return first.Text, first.Err
}

// All is Read for every file that a pattern matches, in natural order ("9" before "10"). It returns at least one
// answer.
func (a *Attributes) All(file string) []Answer { return a.alternative(file, -1) }

// alternative returns the answers of the first alternative that exists and has a value. A file that exists but cannot
// be read just now also counts: the next alternative might mean something else. If no alternative has a value,
// alternative returns the answers of the first one that exists.
func (a *Attributes) alternative(file string, most int) []Answer {
	var best []Answer
	for _, one := range accel.Alternatives(file) {
		got := a.read(one, most)
		absent := errors.Is(got[0].Err, fs.ErrNotExist)
		if !absent && !got[0].silent() {
			return got
		}
		if len(best) == 0 || !absent && errors.Is(best[0].Err, fs.ErrNotExist) {
			best = got
		}
	}
	return best
}

// silent reports whether the attribute exists but has no value on this device.
func (a Answer) silent() bool {
	return a.Err == nil && a.Text == "" || errors.Is(a.Err, unix.EOPNOTSUPP) || errors.Is(a.Err, unix.ENODATA)
}

// read returns the answers of up to most existing files (-1 for all). If none exists, it returns one answer that says
// so.
func (a *Attributes) read(file string, most int) []Answer {
	name, key, line := strings.Cut(accel.DeviceText(file, a.address, -1), "#")
	var found []Answer
	for _, n := range a.match(name) {
		got := a.answer(n)
		if errors.Is(got.Err, fs.ErrNotExist) || errors.Is(got.Err, unix.ENOTDIR) {
			continue
		}
		if line && got.Err == nil {
			rest, there := Line(got.Text, key)
			if got.Text = rest; !there {
				got.Err = fmt.Errorf("%q has no line %q: %w", n, key, fs.ErrNotExist)
			}
		}
		if found = append(found, got); len(found) == most {
			break
		}
	}
	if found == nil {
		absent := &fs.PathError{Op: "open", Path: a.path(name), Err: fs.ErrNotExist}
		return []Answer{{Name: absent.Path, Err: absent}}
	}
	return found
}

// Line returns the rest of the first line of text that begins with the word key, and whether there is one. A colon or
// an equals sign after the word is left out.
func Line(text, key string) (rest string, found bool) {
	for l := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(l), key); ok &&
			(rest == "" || strings.ContainsRune(": \t=", rune(rest[0]))) {
			return strings.TrimSpace(strings.TrimLeft(rest, ":=")), true
		}
	}
	return "", false
}

func (a *Attributes) path(file string) string {
	if path.IsAbs(file) {
		return path.Clean(file)
	}
	return path.Join(a.dir, file)
}

// match returns the paths that a pattern can mean. Whether they exist shows when they are read.
func (a *Attributes) match(file string) []string {
	const special = `*?[\`
	if !strings.ContainsAny(file, special) {
		return []string{a.path(file)}
	}
	names := []string{a.dir}
	if path.IsAbs(file) {
		names, file = []string{""}, file[1:]
	}
	for element := range strings.SplitSeq(path.Clean(file), "/") {
		var next []string
		for _, n := range names {
			if !strings.ContainsAny(element, special) {
				next = append(next, n+"/"+element)
				continue
			}
			for _, e := range a.list(n) {
				if ok, err := path.Match(element, e); err == nil && ok {
					next = append(next, n+"/"+e)
				}
			}
		}
		names = next
	}
	slices.SortFunc(names, accel.Natural)
	return names
}

// list returns the names in a directory, or none if it cannot be read.
func (a *Attributes) list(dir string) []string {
	if names, known := a.listed[dir]; known {
		return names
	}
	names, _ := a.d.h.Names(dir)
	a.listed[dir] = names
	return names
}

func (a *Attributes) answer(name string) Answer {
	if got, known := a.answers[name]; known {
		return got
	}
	got := Answer{Name: name}
	if got.Err = errOutside; a.d.Has(name, a.address) {
		got.Text, got.Err = a.d.h.ReadAttribute(name)
	}
	a.answers[name] = got
	return got
}
