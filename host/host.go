// Package host is the only package that touches the machine: files under a root, programs, kernel modules, the kernel
// log and kernel events. It may read and write what its callers name, and decides nothing.
package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// Host is a machine seen through a root directory: "/" for the machine itself, "/host" in a container that mounts the
// machine's root there, or any directory with a copy of a machine. Its methods take absolute paths as the machine sees
// them. Symbolic links, including absolute ones, are resolved inside the root and never leave it.
//
// Host itself has the files. The rest is grouped by noun: [Kernel], [Devices], [Processes], [Programs] and [Locks].
type Host struct {
	root string
	dir  *os.File // the root, opened to resolve paths below it; the garbage collector closes it with the Host
}

// New returns the host under root. It fails if root is not a directory.
func New(root string) (*Host, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("cannot use host root %q: %w", root, err)
	}
	st, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("cannot use host root %q: %w", root, err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("cannot use host root %q: not a directory", root)
	}
	dir, err := os.OpenFile(abs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot use host root %q: %w", root, err)
	}
	return &Host{root: abs, dir: dir}, nil
}

// Root returns the root directory.
func (h *Host) Root() string { return h.root }

// Live reports whether the root is the running machine's own: either "/" or a directory whose proc belongs to this
// kernel. Only a live host may be changed by system calls.
func (h *Host) Live() bool {
	if h.root == "/" {
		return true
	}
	ours, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false
	}
	theirs, err := h.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || string(ours) != string(theirs) {
		return false
	}
	// A copied file would have the same text, but procfs is a mount of its own.
	var st unix.Statfs_t
	return unix.Statfs(filepath.Join(h.root, "proc"), &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

// Path resolves name inside the root, including its last element, and returns a path that this process can open. If the
// root is "/", the links stay in the path.
func (h *Host) Path(name string) (string, error) {
	if h.root == "/" {
		return path.Clean("/" + name), nil
	}
	p, err := securejoin.SecureJoin(h.root, name)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %q: %w", name, err)
	}
	return p, nil
}

// Follow resolves name inside the root, including its last element, and returns the path without links as the machine
// sees it.
func (h *Host) Follow(name string) (string, error) {
	p, err := securejoin.SecureJoin(h.root, name)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %q: %w", name, err)
	}
	return path.Clean("/" + strings.TrimPrefix(p, strings.TrimSuffix(h.root, "/"))), nil
}

// parent resolves the directory of name inside the root and joins the last element unresolved.
func (h *Host) parent(name string) (string, error) {
	dir, err := h.Path(path.Dir(path.Clean("/" + name)))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, path.Base(name)), nil
}

// ReadFile reads the whole file name, which must be a regular file. For untrusted files, and for files that are small
// by nature, use [Host.ReadAttribute], which is bounded.
func (h *Host) ReadFile(name string) ([]byte, error) {
	f, err := h.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, Relabel(err, name)
	}
	if !st.Mode().IsRegular() && !st.IsDir() { // reading a directory fails on its own, with its own errno
		return nil, &fs.PathError{Op: "read", Path: name, Err: errNotRegular}
	}
	b := bytes.NewBuffer(make([]byte, 0, min(st.Size(), 64<<20)+bytes.MinRead)) // read without growing
	_, err = b.ReadFrom(f)
	return b.Bytes(), Relabel(err, name)
}

// Open opens the file name for reading. It never blocks, not even on a FIFO.
func (h *Host) Open(name string) (*os.File, error) { return h.openFile(name, unix.O_RDONLY) }

// Stat describes name; links are resolved inside the root.
func (h *Host) Stat(name string) (fs.FileInfo, error) {
	if h.root == "/" {
		st, err := os.Stat(path.Clean("/" + name))
		return st, Relabel(err, name)
	}
	f, err := h.openFile(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	return st, Relabel(err, name)
}

// Exists reports whether name exists. It is false also if that cannot be determined.
func (h *Host) Exists(name string) bool {
	_, err := h.Stat(name)
	return err == nil
}

// Born returns when a file or directory was created, or the zero time if the file system does not record it.
func (h *Host) Born(name string) time.Time {
	f, err := h.openFile(name, unix.O_PATH)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = f.Close() }() // a path only
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err != nil ||
		st.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}
	}
	return time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
}

// Identity returns the inode number of an entry itself, without following a link. In sysfs it changes when an entry is
// removed and created again, because kernfs counts the numbers up.
func (h *Host) Identity(name string) (uint64, error) {
	p, err := h.parent(name)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return 0, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return st.Ino, nil
}

// ReadDir lists the directory name, sorted.
func (h *Host) ReadDir(name string) ([]fs.DirEntry, error) {
	fd, err := h.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	// Info of the entries uses the file's name, so the name must be the resolved one.
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		real = filepath.Join(h.root, name)
	}
	f := os.NewFile(uintptr(fd), real)
	defer f.Close()
	es, err := f.ReadDir(-1)
	sort.Slice(es, func(i, j int) bool { return es[i].Name() < es[j].Name() })
	return es, Relabel(err, name)
}

// Names lists the names in the directory dir, sorted.
func (h *Host) Names(dir string) ([]string, error) {
	d, err := h.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Names()
}

// Readlink returns the target of the symbolic link name.
func (h *Host) Readlink(name string) (string, error) {
	p, err := h.parent(name)
	if err != nil {
		return "", err
	}
	s, err := os.Readlink(p)
	return s, Relabel(err, name)
}

// Glob returns the sorted names below the directory dir that match pattern, as the machine sees them. Links in dir are
// resolved. The pattern is matched one directory at a time; a link in the middle is followed inside the root.
func (h *Host) Glob(dir, pattern string) []string {
	names := []string{path.Clean("/" + dir)}
	for _, element := range strings.Split(path.Clean(pattern), "/") {
		var next []string
		for _, n := range names {
			entries, _ := h.Names(n) // nothing matches in a directory that cannot be read
			for _, e := range entries {
				if ok, err := path.Match(element, e); err == nil && ok {
					next = append(next, path.Join(n, e))
				}
			}
		}
		names = next
	}
	sort.Strings(names)
	return names
}

// WriteAttribute writes text to an attribute file of sysfs or procfs in one write, without creating it.
func (h *Host) WriteAttribute(name, text string) error {
	p, err := h.Path(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return Relabel(err, name)
	}
	_, err = f.WriteString(text)
	return Relabel(errors.Join(err, f.Close()), name)
}

// MkdirAll creates the directory name and its parents.
func (h *Host) MkdirAll(name string, mode fs.FileMode) error {
	p, err := h.Path(name)
	if err != nil {
		return err
	}
	return Relabel(os.MkdirAll(p, mode), name)
}

// MakeTemp creates a directory with a unique name and mode 0700 in the directory dir and returns its path.
func (h *Host) MakeTemp(dir, prefix string) (string, error) {
	p, err := h.Path(dir)
	if err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(p, prefix)
	if err != nil {
		return "", Relabel(err, dir)
	}
	return path.Join(dir, filepath.Base(made)), nil
}

// Create creates the file name for reading and writing. It fails if name exists.
func (h *Host) Create(name string, mode fs.FileMode) (*os.File, error) {
	return h.create(name, os.O_EXCL, mode)
}

func (h *Host) create(name string, flags int, mode fs.FileMode) (*os.File, error) {
	p, err := h.parent(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE|flags, mode)
	return f, Relabel(err, name)
}

// WriteFile replaces name atomically. It writes and syncs a temporary file in the same directory, renames it and syncs
// the directory. (Libraries that watch CDI directories do not see a file that is renamed into them from another
// directory.) A reader sees either the old bytes or the new ones. Temporary files that a killed writer of the same
// file left behind are removed.
func (h *Host) WriteFile(name string, data []byte, mode fs.FileMode) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	dir, base := filepath.Split(p)
	f, err := createTemp(dir, base)
	if err != nil {
		return Relabel(err, name)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync())
	if err == nil {
		err = os.Rename(f.Name(), p)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the earlier error is the one that matters
		return Relabel(errors.Join(err, f.Close()), name)
	}
	return Relabel(errors.Join(f.Close(), SyncDir(dir)), name)
}

// Remove removes the file or empty directory name. It is no error if name does not exist.
func (h *Host) Remove(name string) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Relabel(err, name)
	}
	return nil
}

// RemoveAll removes name and everything below it.
func (h *Host) RemoveAll(name string) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	return Relabel(os.RemoveAll(p), name)
}

// Rename moves a file or directory inside the root and syncs the target's directory.
func (h *Host) Rename(from, to string) error {
	a, err := h.parent(from)
	if err != nil {
		return err
	}
	b, err := h.parent(to)
	if err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return Relabel(err, to)
	}
	return Relabel(SyncDir(filepath.Dir(b)), to)
}

// Symlink creates the symbolic link name with the target text.
func (h *Host) Symlink(text, name string) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	return Relabel(os.Symlink(text, p), name)
}

// Give makes user, as user and as group, own name and everything below it. Links are changed themselves, not their
// targets.
func (h *Host) Give(name string, user int) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	if err := os.Lchown(p, user, user); err != nil {
		return Relabel(err, name)
	}
	st, err := os.Lstat(p)
	if err != nil || !st.IsDir() {
		return Relabel(err, name)
	}
	entries, err := h.ReadDir(name)
	for _, e := range entries {
		err = errors.Join(err, h.Give(path.Join(name, e.Name()), user))
	}
	return err
}

// Chmod sets the mode of name, following links.
func (h *Host) Chmod(name string, mode os.FileMode) error {
	p, err := h.Path(name)
	if err != nil {
		return err
	}
	return Relabel(os.Chmod(p, mode), name)
}

// SyncDir syncs the directory dir, a path that this process can open, so that changes in it are durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SyncDisk makes everything durable that was written to the file system of the directory dir, a path that this process
// can open. For thousands of small files it is much faster than syncing each.
func SyncDisk(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd()))), d.Close())
}

// Relabel replaces the path in an error with name, the path as the machine sees it.
func Relabel(err error, name string) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: name, Err: pe.Err}
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return &fs.PathError{Op: le.Op, Path: name, Err: le.Err}
	}
	return err
}
