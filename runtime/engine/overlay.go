package engine

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// overlay is a file system with a change on top.
type overlay struct {
	Files
	changed map[string][]byte
}

// With returns files as they would be after the change.
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
		rest, below := strings.CutPrefix(file, strings.TrimSuffix(name, "/")+"/")
		if !below {
			continue
		}
		added = true
		first, _, dir := strings.Cut(rest, "/")
		if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == first }) {
			entries = append(entries, entry{first, dir})
		}
	}
	if err != nil && !added {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// entry is a file or directory that does not exist yet.
type entry struct {
	name string
	dir  bool
}

func (e entry) Name() string               { return e.name }
func (e entry) IsDir() bool                { return e.dir }
func (e entry) Info() (fs.FileInfo, error) { return nil, fs.ErrNotExist }

func (e entry) Type() fs.FileMode {
	if e.dir {
		return fs.ModeDir
	}
	return 0
}

// glob returns the files that match an absolute pattern, sorted, like filepath.Glob: a star does not match a slash,
// and parent directories may be patterns too.
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
