package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Tree is a file system of somebody else that is being written below a directory, such as that of an image. Its names
// are relative to the directory. Links that are already in it, absolute ones included, lead to other places in it and
// never out of it. What it had under a name is replaced, except that a directory stays if another comes.
type Tree struct{ in *Host }

// OpenTree opens the tree in a directory of the machine, which must exist.
func OpenTree(h *Host, dir string) (*Tree, error) {
	p, err := h.Path(dir)
	if err != nil {
		return nil, err
	}
	in, err := New(p)
	return &Tree{in}, err
}

// clear makes room for name: its directory exists then, and name itself does not.
func (t *Tree) clear(name string) (string, error) {
	if err := t.in.MkdirAll(path.Dir(path.Clean("/"+name)), 0o755); err != nil {
		return "", err
	}
	p, err := t.in.parent(name)
	if err != nil {
		return "", err
	}
	return p, os.RemoveAll(p)
}

// Dir makes a directory.
func (t *Tree) Dir(name string, mode fs.FileMode) error {
	p, err := t.in.parent(name)
	if err != nil {
		return err
	}
	if st, err := os.Lstat(p); err != nil || !st.IsDir() {
		if p, err = t.clear(name); err != nil {
			return Relabel(err, name)
		}
		if err := os.Mkdir(p, 0o755); err != nil {
			return Relabel(err, name)
		}
	}
	return Relabel(os.Chmod(p, mode), name)
}

// File makes a file with the content of r.
func (t *Tree) File(name string, mode fs.FileMode, r io.Reader) error {
	p, err := t.clear(name)
	if err != nil {
		return Relabel(err, name)
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return Relabel(err, name)
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(mode)
	}
	return Relabel(errors.Join(err, f.Close()), name)
}

// Symlink makes a symbolic link with any text.
func (t *Tree) Symlink(text, name string) error {
	p, err := t.clear(name)
	if err != nil {
		return Relabel(err, name)
	}
	return Relabel(os.Symlink(text, p), name)
}

// Link makes another name of a file that the tree has. A name that is a symbolic link is linked itself.
func (t *Tree) Link(have, name string) error {
	from, err := t.in.parent(have)
	if err != nil {
		return err
	}
	st, err := os.Lstat(from)
	if err != nil {
		return Relabel(err, have)
	}
	if st.IsDir() {
		return &fs.PathError{Op: "link", Path: have, Err: unix.EISDIR}
	}
	if to, err := t.in.parent(name); err == nil && to == from {
		return nil
	}
	p, err := t.clear(name)
	if err != nil {
		return Relabel(err, name)
	}
	return Relabel(os.Link(from, p), name)
}

// Remove removes name and everything below it, if it is there.
func (t *Tree) Remove(name string) error {
	p, err := t.in.parent(name)
	if err != nil {
		return err
	}
	return Relabel(os.RemoveAll(p), name)
}

// Names lists what is in a directory; nothing if there is no such directory.
func (t *Tree) Names(name string) ([]string, error) {
	all, err := t.in.Names(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	return all, err
}

// Sync makes everything in it durable.
func (t *Tree) Sync() error {
	d, err := os.Open(filepath.Clean(t.in.root))
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}
