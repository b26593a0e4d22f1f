package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// RootOwned returns an error that names the first element on the way to name that root does not own, or in which
// anybody may replace something: a directory that everybody may write to, unless it is sticky. Links count as elements,
// and so does everything on the way to their targets. What is missing is no error if the directory that lacks it is in
// order.
func RootOwned(h *Host, name string) error { return ownedBy(h, name, 0) }

func ownedBy(h *Host, name string, user int) error {
	const most = 40 // links, as in the kernel (path_resolution(7))
	links := 0
	at := "/"
	if err := element(h, at, user); err != nil {
		return err
	}
	for rest := elements(name); len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		err := element(h, next, user)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		// No element of at is a link, so that joining cannot leave the root.
		text, err := os.Readlink(filepath.Join(h.root, next))
		if err != nil { // no link
			at = next
			continue
		}
		if links++; links > most {
			return &fs.PathError{Op: "resolve", Path: name, Err: unix.ELOOP}
		}
		if path.IsAbs(text) {
			at = "/"
		}
		rest = append(elements(text), rest...)
	}
	return nil
}

// elements splits a path; ".." stays an element, because it is that of the directory that a link leads to.
func elements(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// element checks one element without following it.
func element(h *Host, name string, user int) error {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(h.root, name), &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	if int(st.Uid) != user {
		return fmt.Errorf("%q belongs to user %d", name, st.Uid)
	}
	// Whom root let write through a group is root's choice, such as those who may use a container runtime.
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_IWOTH != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("everybody may write to %q", name)
	}
	return nil
}
