package runtime

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"syscall"

	"github.com/acceld/acceld/accel"
)

// write is the only way in which this package changes the content of a file: nothing when it is right already, an
// atomic replacement otherwise. The directory is made when it is missing.
func (r *Runtime) write(name string, data []byte, mode fs.FileMode) *accel.Problem {
	if r.same(name, data, mode) {
		return nil
	}
	if !r.host.Exists(path.Dir(name)) {
		if err := r.host.MkdirAll(path.Dir(name), 0o755); err != nil {
			return problem("make the directory of", name, err)
		}
	}
	if err := r.host.WriteFile(name, data, mode); err != nil {
		return problem("write", name, err)
	}
	r.log.Info("wrote file for the container runtime", "path", name, "bytes", len(data))
	return nil
}

// remove is the only way in which this package removes a file or an empty directory; nothing when it is not there.
func (r *Runtime) remove(name string) *accel.Problem {
	if _, err := r.host.Readlink(name); err != nil && !r.host.Exists(name) {
		return nil // not even a dangling link
	}
	if err := r.host.Remove(name); err != nil {
		return problem("remove", name, err)
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

// problem gives an error of a file its reason. The error names the file itself.
func problem(verb, name string, err error) *accel.Problem {
	reason := accel.InternalError
	switch {
	case errors.Is(err, syscall.EROFS):
		reason = accel.ReadOnly
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		reason = accel.NoSpace
	case errors.Is(err, fs.ErrPermission):
		reason = accel.PermissionDenied
	}
	return accel.Problemf(reason, "cannot %s %q: %v", verb, name, err)
}
