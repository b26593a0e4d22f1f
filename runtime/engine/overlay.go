package engine

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// overlay is a file system with a change over it.
type overlay struct {
	Files
	changed map[string][]byte
}

// With returns files as they are after the change.
func With(files Files, c Change) Files {
	o := overlay{files, map[string][]byte{}}
	for _, f := range c.Files {
		o.changed[path.Clean(f.Path)] = f.After
	}
	return o
}

func (o overlay) ReadFile(name string) ([]byte, error) {
	if b, ok := o.changed[path.Clean(name)]; ok {
		return b, nil
	}
	return o.Files.ReadFile(name)
}

func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := o.Files.ReadDir(name)
	name = path.Clean(name)
	added := false
	for file := range o.changed {
		if path.Dir(file) == name {
			added = true
			if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == path.Base(file) }) {
				entries = append(entries, entry(path.Base(file)))
			}
		}
	}
	if err != nil && !added {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// entry is a regular file that is not there yet.
type entry string

func (e entry) Name() string               { return string(e) }
func (entry) IsDir() bool                  { return false }
func (entry) Type() fs.FileMode            { return 0 }
func (e entry) Info() (fs.FileInfo, error) { return e, nil }
func (entry) Size() int64                  { return 0 }
func (entry) Mode() fs.FileMode            { return 0o644 }
func (entry) ModTime() time.Time           { return time.Time{} }
func (entry) Sys() any                     { return nil }

// glob returns the files that match an absolute pattern, sorted, as filepath.Glob does: a star does not match a slash, and
// directories on the way may be patterns too.
func glob(files Files, pattern string) ([]string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, err
	}
	found := []string{"/"}
	for _, element := range strings.Split(strings.Trim(path.Clean(pattern), "/"), "/") {
		var next []string
		for _, dir := range found {
			entries, err := files.ReadDir(dir)
			if err != nil {
				continue // as filepath.Glob does
			}
			for _, e := range entries {
				if ok, _ := path.Match(element, e.Name()); ok {
					next = append(next, path.Join(dir, e.Name()))
				}
			}
		}
		found = next
	}
	slices.Sort(found)
	return found, nil
}
