package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// deviceJournals are journals about devices, one file each: <dir>/<PCI address>.json. Such a directory is empty after a
// boot, like that which its journals are about.
type deviceJournals[T any] struct {
	h *Host
	// dir has the files, each of max bytes at most, and read decodes one.
	dir  string
	max  int64
	read func([]byte) (T, error)
	// says is what a journal says about a device, for people.
	says string
}

// journalForm is the name of a journal.
var journalForm = regexp.MustCompile(`^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\.json$`)

// maxJournals is how many journals are read; a host has fewer devices.
const maxJournals = 4096

func (j deviceJournals[T]) file(id string) string {
	return path.Join(j.dir, strings.ToLower(id)+".json")
}

// all returns the journals by PCI address. A journal that cannot be read is an error, and the others are returned: its
// device must not be touched as if it had none.
func (j deviceJournals[T]) all() (map[string]T, error) {
	names, err := j.h.Names(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %q, which says %s: %w", j.dir, j.says, err)
	}
	out := map[string]T{}
	for _, name := range names {
		m := journalForm.FindStringSubmatch(name)
		if m == nil {
			continue // a file that is being written
		}
		x, one := j.of(m[1])
		err = errors.Join(err, one)
		if x != nil && len(out) < maxJournals { // nil if it was removed meanwhile
			out[m[1]] = *x
		}
	}
	return out, err
}

// of returns the journal of one device; nil if it has none.
func (j deviceJournals[T]) of(id string) (*T, error) {
	f, err := j.h.Open(j.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var x T
	if err == nil {
		defer func() { _ = f.Close() }() // read only
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(f, j.max+1)); err == nil {
			x, err = j.read(text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %q, which says %s: %w", j.file(id), j.says, err)
	}
	return &x, nil
}

// write writes the journal of a device. It is synced when the call returns.
func (j deviceJournals[T]) write(id string, x T) error {
	text, err := json.Marshal(x)
	if err == nil {
		err = j.h.MkdirAll(j.dir, 0o755)
	}
	if err == nil {
		err = j.h.WriteFile(j.file(id), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the journal of device %q: %w", id, err)
	}
	return nil
}

// remove removes the journal of a device.
func (j deviceJournals[T]) remove(id string) error { return j.h.Remove(j.file(id)) }
