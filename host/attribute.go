package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// AttributeLimit is the largest attribute file that is read, in bytes. It is sixteen times what sysfs shows of one (a
// page), and enough for every settings file in procfs and /etc. A longer file is not an attribute.
const AttributeLimit = 64 << 10

// errTooLong and errNotRegular say why a file cannot be an attribute.
var (
	errTooLong    = errors.New("longer than an attribute can be")
	errNotRegular = errors.New("not a regular file")
)

// open opens name inside the root. It never blocks: a FIFO opens at once. If the root is not "/", the kernel resolves
// links inside the root (openat2, Linux 5.6). On an older kernel, or under a seccomp filter that does not know the
// call, links are resolved in user space. That is safe enough if only root can change the tree meanwhile.
func (h *Host) open(name string, flags int) (int, error) {
	flags |= unix.O_CLOEXEC
	if flags&unix.O_PATH == 0 { // openat2 refuses the combination
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	clean := path.Clean("/" + name)
	if h.root == "/" {
		return openPath(clean, flags, name)
	}
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	defer runtime.KeepAlive(h) // keeps the descriptor of the root open
	for range 8 {              // EAGAIN: a concurrent rename raced with ".."; see openat2(2)
		fd, err := unix.Openat2(int(h.dir.Fd()), clean, &how)
		switch {
		case err == nil:
			return fd, nil
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err == unix.ENOSYS || err == unix.EPERM:
			return openJoined(h.root, clean, flags, name)
		}
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return -1, &fs.PathError{Op: "open", Path: name, Err: unix.EAGAIN}
}

// openJoined is open below root without openat2.
func openJoined(root, clean string, flags int, name string) (int, error) {
	p, err := securejoin.SecureJoin(root, clean)
	if err != nil {
		return -1, Relabel(err, name)
	}
	return openPath(p, flags|unix.O_NOFOLLOW, name)
}

func openPath(p string, flags int, name string) (int, error) {
	for {
		fd, err := unix.Open(p, flags, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return fd, nil
	}
}

// openFile is open, but returns an os.File.
func (h *Host) openFile(name string, flags int) (*os.File, error) {
	fd, err := h.open(name, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(h.root, name)), nil
}

// ReadAttribute reads the attribute file name and trims surrounding white space and NUL bytes. It never blocks and
// reads at most [AttributeLimit] bytes. It fails if the file is longer or not a regular file.
func (h *Host) ReadAttribute(name string) (string, error) {
	b, err := h.ReadBinary(name)
	return trimAttribute(b), err
}

// ReadBinary is [Host.ReadAttribute] without the trimming, for notes and firmware variables.
func (h *Host) ReadBinary(name string) ([]byte, error) {
	fd, err := h.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	var small [512]byte
	return readClose(fd, name, small[:])
}

// Dir is an open directory of the machine. It reads many attributes while resolving the path only once. It is not safe
// for concurrent use.
type Dir struct {
	h    *Host
	name string
	fd   int
	buf  [512]byte
}

// OpenDir opens the directory name. The caller must close it.
func (h *Host) OpenDir(name string) (*Dir, error) {
	fd, err := h.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Dir{h: h, name: path.Clean("/" + name), fd: fd}, nil
}

// Sub opens the directory element of d, following a link inside the root.
func (d *Dir) Sub(element string) (*Dir, error) {
	if d.h.root == "/" && !strings.Contains(element, "/") {
		fd, err := unix.Openat(d.fd, element, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			return &Dir{h: d.h, name: path.Join(d.name, element), fd: fd}, nil
		}
	}
	return d.h.OpenDir(path.Join(d.name, element))
}

// Name returns the directory's path as the machine sees it.
func (d *Dir) Name() string { return d.name }

// Close closes the directory.
func (d *Dir) Close() { _ = unix.Close(d.fd) } // a directory open for reading has nothing to lose

// Read is [Host.ReadAttribute] of file in the directory.
func (d *Dir) Read(file string) (string, error) {
	if strings.Contains(file, "/") || file == ".." {
		return d.h.ReadAttribute(path.Join(d.name, file))
	}
	fd, err := unix.Openat(d.fd, file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch err {
	case nil:
		b, err := readClose(fd, "", d.buf[:])
		if err != nil {
			err = Relabel(err, path.Join(d.name, file))
		}
		return trimAttribute(b), err
	case unix.ENOENT: // the common case: no joined name, no allocation
		return "", unix.ENOENT
	case unix.ELOOP, unix.EINTR: // a link: sysfs has none here, but a copy may
		return d.h.ReadAttribute(path.Join(d.name, file))
	}
	return "", &fs.PathError{Op: "open", Path: path.Join(d.name, file), Err: err}
}

// Readlink returns the target of the link file in the directory, or "" if it is not a link.
func (d *Dir) Readlink(file string) string {
	var buf [512]byte
	n, err := unix.Readlinkat(d.fd, file, buf[:])
	if err != nil || n == len(buf) {
		return ""
	}
	return string(buf[:n])
}

// Names lists the directory, sorted.
func (d *Dir) Names() ([]string, error) {
	var names []string
	if err := d.each(func(name string) bool { names = append(names, name); return true }); err != nil {
		return nil, err
	}
	sort.Strings(names)
	return names, nil
}

// each calls visit with each name in the directory, until it returns false. However many there are, it holds a few.
func (d *Dir) each(visit func(name string) bool) error {
	buf := make([]byte, 4<<10)
	if _, err := unix.Seek(d.fd, 0, io.SeekStart); err != nil {
		return &fs.PathError{Op: "seek", Path: d.name, Err: err}
	}
	for {
		n, err := unix.ReadDirent(d.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "readdir", Path: d.name, Err: err}
		}
		if n <= 0 {
			return nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if !visit(name) {
				return nil
			}
		}
	}
}

// readClose reads a regular file to its end, at most AttributeLimit bytes, and closes it. The result may share memory
// with buf.
func readClose(fd int, name string, buf []byte) ([]byte, error) {
	defer unix.Close(fd)
	fail := func(op string, err error) ([]byte, error) { return nil, &fs.PathError{Op: op, Path: name, Err: err} }
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("stat", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fail("read", unix.EISDIR)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail("read", errNotRegular)
	}
	got := 0
	for {
		n, err := unix.Read(fd, buf[got:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fail("read", err)
		}
		got += n
		// A file with a size (a page in sysfs, the real size in a copy) ends with a short read; procfs reports size 0.
		if n == 0 || st.Size > 0 && got < len(buf) {
			return buf[:got], nil
		}
		if got > AttributeLimit {
			return fail("read", errTooLong)
		}
		if got == len(buf) {
			bigger := make([]byte, min(8*len(buf), AttributeLimit+1))
			copy(bigger, buf)
			buf = bigger
		}
	}
}

func trimAttribute(b []byte) string { return strings.Trim(string(b), " \t\r\n\x00") }
