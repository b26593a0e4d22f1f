// Package host is the only package that touches the machine: files under a root, programs, kernel modules, the kernel
// log and kernel events. It may read and write what its callers name, and decides nothing.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// Host is a machine seen through a root directory: "/" for the machine itself, "/host" in a container that has the
// machine's root there, or any directory with a copy of a machine. Paths given to its methods are absolute paths as
// the machine sees them; symbolic links, also absolute ones, are resolved inside the root and never leave it.
type Host struct {
	root string
	dir  *os.File // the root, opened for resolving below it; closed with the Host by the garbage collector
}

// New returns the host under root. It fails when root is not a directory.
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

// Live reports whether the root is the running machine's own: "/" or a directory whose proc says so. Only a live host
// may be changed by system calls.
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
	// A copied file would have the same text; procfs is a mount of its own.
	var st syscall.Statfs_t
	const procMagic = 0x9fa0 // PROC_SUPER_MAGIC, linux/magic.h
	return syscall.Statfs(filepath.Join(h.root, "proc"), &st) == nil && st.Type == procMagic
}

// Path resolves name inside the root and returns the path that this process can open. The last element is resolved
// too.
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

// parent resolves the directory of name inside the root and joins the last element unresolved.
func (h *Host) parent(name string) (string, error) {
	dir, err := h.Path(path.Dir(path.Clean("/" + name)))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, path.Base(name)), nil
}

// ReadFile reads the whole file name, which must be a regular one. For what may be hostile or is small by nature use
// [Host.ReadAttribute], which is bounded.
func (h *Host) ReadFile(name string) ([]byte, error) { return h.readAll(name) }

// ReadString reads the file name and trims white space and NUL bytes around it, as sysfs attributes are read. It is
// [Host.ReadAttribute].
func (h *Host) ReadString(name string) (string, error) { return h.ReadAttribute(name) }

// Open opens the file name for reading. It never blocks, not even on a FIFO.
func (h *Host) Open(name string) (*os.File, error) { return h.openFile(name, unix.O_RDONLY) }

// Stat describes name, links resolved inside the root.
func (h *Host) Stat(name string) (fs.FileInfo, error) {
	if h.root == "/" {
		st, err := os.Stat(path.Clean("/" + name))
		return st, relabel(err, name)
	}
	f, err := h.openFile(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	return st, relabel(err, name)
}

// Exists reports whether name is there; false also when that cannot be known.
func (h *Host) Exists(name string) bool {
	_, err := h.Stat(name)
	return err == nil
}

// ReadDir lists the directory name, sorted.
func (h *Host) ReadDir(name string) ([]fs.DirEntry, error) {
	fd, err := h.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	// The entries' Info goes through the file's name, so it must be the resolved one.
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		real = filepath.Join(h.root, name)
	}
	f := os.NewFile(uintptr(fd), real)
	defer f.Close()
	es, err := f.ReadDir(-1)
	sort.Slice(es, func(i, j int) bool { return es[i].Name() < es[j].Name() })
	return es, relabel(err, name)
}

// Readlink returns the text of the symbolic link name.
func (h *Host) Readlink(name string) (string, error) {
	p, err := h.parent(name)
	if err != nil {
		return "", err
	}
	s, err := os.Readlink(p)
	return s, relabel(err, name)
}

// Glob returns the names, as the machine sees them and sorted, that match pattern below the directory dir. Links in
// dir are resolved; the pattern is matched one directory at a time and a link in the middle is followed inside the
// root.
func (h *Host) Glob(dir, pattern string) []string {
	names := []string{path.Clean("/" + dir)}
	for _, element := range strings.Split(path.Clean(pattern), "/") {
		var next []string
		for _, n := range names {
			entries, err := h.ReadDir(n)
			if err != nil {
				continue
			}
			for _, e := range entries {
				if ok, err := path.Match(element, e.Name()); err == nil && ok {
					next = append(next, path.Join(n, e.Name()))
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
		return relabel(err, name)
	}
	_, err = f.WriteString(text)
	return relabel(errors.Join(err, f.Close()), name)
}

// MkdirAll makes the directory name and its parents.
func (h *Host) MkdirAll(name string, mode fs.FileMode) error {
	p, err := h.Path(name)
	if err != nil {
		return err
	}
	return relabel(os.MkdirAll(p, mode), name)
}

// WriteFile replaces name atomically: a temporary file in the same directory (libraries that watch CDI directories do
// not see a file renamed in from another one), synced, renamed, the directory synced. A reader sees the old bytes or
// the new ones. What a writer that was killed has left of the same file is removed.
func (h *Host) WriteFile(name string, data []byte, mode fs.FileMode) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	dir, base := filepath.Split(p)
	f, err := createTemp(dir, base)
	if err != nil {
		return relabel(err, name)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync())
	if err == nil {
		err = os.Rename(f.Name(), p)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error that matters is the one before
		return relabel(errors.Join(err, f.Close()), name)
	}
	return relabel(errors.Join(f.Close(), syncDir(dir)), name)
}

// Remove removes the file or empty directory name; a name that is not there is no error.
func (h *Host) Remove(name string) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return relabel(err, name)
	}
	return nil
}

// RemoveAll removes the tree name.
func (h *Host) RemoveAll(name string) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	return relabel(os.RemoveAll(p), name)
}

// Rename moves a file or directory inside the root and syncs the directory it arrives in.
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
		return relabel(err, to)
	}
	return relabel(syncDir(filepath.Dir(b)), to)
}

// Command prepares a program of the machine: with another root than "/" it runs inside that root, so that it sees the
// machine's own libraries and paths. The environment is only what the caller sets, with a plain PATH.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if h.root != "/" {
		cmd.SysProcAttr.Chroot = h.root
		cmd.Dir = "/"
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// LookPath finds a program of the machine in the directories of [Host.Command]'s PATH.
func (h *Host) LookPath(name string) (string, error) {
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		p := path.Join(dir, name)
		if st, err := h.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("cannot find program %q: %w", name, fs.ErrNotExist)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// relabel makes an error name the path as the machine sees it, not the one under the root.
func relabel(err error, name string) error {
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
