package engine

import (
	"bytes"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"sync"

	"github.com/acceld/acceld/accel"
)

// Reader does what [Read] does, and parses the files again only if one of them has changed. To know that, it reads
// their bytes each time. Its method may be called concurrently; callers must not change the result.
type Reader struct {
	files Files

	mu      sync.Mutex
	engine  accel.ContainerEngine
	seen    []sight
	config  *Config
	problem *accel.Problem
}

// NewReader returns a Reader of the configuration in files.
func NewReader(files Files) *Reader { return &Reader{files: files} }

// Read reads the configuration of e as the function [Read] does.
func (r *Reader) Read(e accel.ContainerEngine) (*Config, *accel.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil || !reflect.DeepEqual(r.engine, e) ||
		slices.ContainsFunc(r.seen, func(s sight) bool { return !s.same(s.again(r.files)) }) {
		w := &witness{Files: r.files}
		r.config, r.problem = Read(w, e)
		r.engine, r.seen = e, w.seen
	}
	return r.config, r.problem
}

// sight is what one file or directory was like.
type sight struct {
	name    string
	dir     bool
	data    []byte   // the file's content
	entries []string // the directory's names, a "/" after each one of a directory
	err     error
}

// again looks at the same file or directory as s.
func (s sight) again(files Files) sight {
	w := &witness{Files: files}
	if s.dir {
		_, _ = w.ReadDir(s.name) // the error is in what is seen
	} else {
		_, _ = w.ReadFile(s.name)
	}
	return w.seen[0]
}

// same tells whether a configuration reads the same with s and o. Errors are the same if their text is, and if neither
// or both of them say that there is no such file.
func (s sight) same(o sight) bool {
	if (s.err == nil) != (o.err == nil) || errors.Is(s.err, fs.ErrNotExist) != errors.Is(o.err, fs.ErrNotExist) ||
		s.err != nil && s.err.Error() != o.err.Error() {
		return false
	}
	return bytes.Equal(s.data, o.data) && slices.Equal(s.entries, o.entries)
}

// witness records what is read.
type witness struct {
	Files
	seen []sight
}

func (w *witness) ReadFile(name string) ([]byte, error) {
	data, err := w.Files.ReadFile(name)
	w.seen = append(w.seen, sight{name: name, data: data, err: err})
	return data, err
}

func (w *witness) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := w.Files.ReadDir(name)
	s := sight{name: name, dir: true, err: err}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		s.entries = append(s.entries, name)
	}
	w.seen = append(w.seen, s)
	return entries, err
}
