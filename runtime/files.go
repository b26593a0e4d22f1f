package runtime

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime/engine"
)

// files are the host's files, as this package reads and changes them.
type files struct {
	host     *host.Host
	ledger   *ledger.Ledger // has a record of every change
	log      *slog.Logger
	outdated func(name string) bool // host.Host's ViewOutdated
}

// write is the only way in which this package changes the content of a file. It does nothing if the file is already
// right, and otherwise replaces it atomically. It creates a missing directory. The ledger keeps the previous
// content.
func (f *files) write(name string, data []byte, mode fs.FileMode) *accel.Problem {
	if f.same(name, data, mode) {
		return nil
	}
	if err := f.ledger.WriteFile(name, data, mode); err != nil {
		return f.problem("write", name, err)
	}
	f.log.Info("wrote file for the container runtime", "path", name, "bytes", len(data))
	return nil
}

// remove is the only way in which this package removes a file or an empty directory. It does nothing if there is
// none.
func (f *files) remove(name string) *accel.Problem {
	if _, err := f.host.Readlink(name); err != nil && !f.host.Exists(name) {
		return nil // not even a dangling link
	}
	if err := f.ledger.Remove(name); err != nil {
		return f.problem("remove", name, err)
	}
	f.log.Info("removed file of the container runtime", "path", name)
	return nil
}

// same reports whether name is a regular file with this content and mode.
func (f *files) same(name string, data []byte, mode fs.FileMode) bool {
	st, err := f.host.Stat(name)
	if err != nil || !st.Mode().IsRegular() || st.Mode().Perm() != mode || st.Size() != int64(len(data)) {
		return false
	}
	b, err := f.host.ReadFile(name)
	return err == nil && bytes.Equal(b, data)
}

// problem gives a file error its reason. The error itself names the file.
func (f *files) problem(verb, name string, err error) *accel.Problem {
	var p *accel.Problem
	if errors.As(err, &p) { // the ledger's own problem
		return p
	}
	reason := accel.ReasonForError(err, accel.InternalError)
	if reason == accel.ReadOnly && f.outdated(name) {
		reason = accel.ViewOutdated
	}
	return accel.Problemf(reason, "cannot %s %q: %v", verb, name, err)
}

// revert gives the files of a change their previous bytes, the last file first.
func (f *files) revert(c engine.Change) *accel.Problem {
	for _, changed := range slices.Backward(c.Files) {
		name, p := f.real(changed.Path)
		switch {
		case p != nil:
		case changed.New:
			p = f.remove(name)
		default:
			p = f.write(name, changed.Before, f.mode(name))
		}
		if p != nil {
			return p
		}
	}
	return nil
}

// real follows a link at the end of name: the file is changed, and the administrator's link stays.
func (f *files) real(name string) (string, *accel.Problem) {
	if text, _ := f.host.Readlink(name); text == "" { // no link, or it does not exist
		return name, nil
	}
	file, err := f.host.Follow(name)
	if err != nil {
		return "", f.problem("resolve", name, err)
	}
	return file, nil
}

// mode returns the mode of the file, or the usual one for a new file.
func (f *files) mode(name string) fs.FileMode {
	if st, err := f.host.Stat(name); err == nil {
		return st.Mode().Perm()
	}
	return 0o644
}
