package runtime

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/acceld/acceld/accel"
)

// write is the only way in which this package changes the content of a file. It does nothing if the file is already
// right, and otherwise replaces it atomically. It creates a missing directory. The ledger keeps the previous
// content.
func (r *Runtime) write(name string, data []byte, mode fs.FileMode) *accel.Problem {
	if r.same(name, data, mode) {
		return nil
	}
	if err := r.ledger.WriteFile(name, data, mode); err != nil {
		return r.problem("write", name, err)
	}
	r.log.Info("wrote file for the container runtime", "path", name, "bytes", len(data))
	return nil
}

// remove is the only way in which this package removes a file or an empty directory. It does nothing if there is
// none.
func (r *Runtime) remove(name string) *accel.Problem {
	if _, err := r.host.Readlink(name); err != nil && !r.host.Exists(name) {
		return nil // not even a dangling link
	}
	if err := r.ledger.Remove(name); err != nil {
		return r.problem("remove", name, err)
	}
	r.log.Info("removed file of the container runtime", "path", name)
	return nil
}

// same reports whether name is a regular file with this content and mode.
func (r *Runtime) same(name string, data []byte, mode fs.FileMode) bool {
	st, err := r.host.Stat(name)
	if err != nil || !st.Mode().IsRegular() || st.Mode().Perm() != mode || st.Size() != int64(len(data)) {
		return false
	}
	b, err := r.host.ReadFile(name)
	return err == nil && bytes.Equal(b, data)
}

// problem gives a file error its reason. The error itself names the file.
func (r *Runtime) problem(verb, name string, err error) *accel.Problem {
	var p *accel.Problem
	if errors.As(err, &p) { // the ledger's own problem
		return p
	}
	reason := accel.ReasonForError(err, accel.InternalError)
	if reason == accel.ReadOnly && r.outdated(name) {
		reason = accel.ViewOutdated
	}
	return accel.Problemf(reason, "cannot %s %q: %v", verb, name, err)
}
