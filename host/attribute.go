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

// AttributeLimit is the most that is read from an attribute file: sixteen times what sysfs shows of one (a page), and
// enough for every file of procfs and etc that holds a setting. A longer file is not an attribute.
const AttributeLimit = 64 << 10

// errTooLong and errNotRegular are what is wrong with a file that cannot be an attribute.
var (
	errTooLong    = errors.New("longer than an attribute can be")
	errNotRegular = errors.New("not a regular file")
)

// open opens name inside the root. It never blocks: a FIFO opens at once. With another root than "/" the kernel
// resolves links inside the root (openat2, Linux 5.6); an older kernel, or a seccomp filter that does not know the
// call, gets the same by resolving in user space, which is enough where only root can change the tree meanwhile.
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
	defer runtime.KeepAlive(h) // and with it the descriptor of the root
	for range 8 {              // EAGAIN: a rename somewhere raced with "..", see openat2(2)
		fd, err := unix.Openat2(int(h.dir.Fd()), clean, &how)
		switch {
		case err == nil:
			return fd, nil
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err == unix.ENOSYS || err == unix.EPERM:
			return h.openJoined(clean, flags, name)
		}
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return -1, &fs.PathError{Op: "open", Path: name, Err: unix.EAGAIN}
}

// openJoined is open without openat2.
func (h *Host) openJoined(clean string, flags int, name string) (int, error) {
	p, err := securejoin.SecureJoin(h.root, clean)
	if err != nil {
		return -1, relabel(err, name)
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

// openFile is open with an os.File.
func (h *Host) openFile(name string, flags int) (*os.File, error) {
	fd, err := h.open(name, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(h.root, name)), nil
}

// ReadAttribute reads the attribute file name and trims white space and NUL bytes around it. It never blocks and reads
// at most [AttributeLimit] bytes; it fails for anything but a regular file and for a longer one.
func (h *Host) ReadAttribute(name string) (string, error) {
	b, err := h.readBounded(name)
	return trimAttribute(b), err
}

// ReadBinary is [Host.ReadAttribute] without the trimming, for notes and firmware variables.
func (h *Host) ReadBinary(name string) ([]byte, error) { return h.readBounded(name) }

func (h *Host) readBounded(name string) ([]byte, error) {
	fd, err := h.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	var small [512]byte
	return readClose(fd, name, small[:])
}

// Dir is an open directory of the machine, for reading many attributes at the price of one path. It is not safe for
// concurrent use.
type Dir struct {
	h    *Host
	name string
	fd   int
	buf  [512]byte
}

// OpenDir opens the directory name. The caller closes it.
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

// Name is the directory's path as the machine sees it.
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
			err = relabel(err, path.Join(d.name, file))
		}
		return trimAttribute(b), err
	case unix.ENOENT: // most often asked for and not there: no joined name, no allocation
		return "", unix.ENOENT
	case unix.ELOOP, unix.EINTR: // a link: sysfs has none here, a copy may
		return d.h.ReadAttribute(path.Join(d.name, file))
	}
	return "", &fs.PathError{Op: "open", Path: path.Join(d.name, file), Err: err}
}

// Readlink returns the text of the link file in the directory, empty when it is none.
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
	buf := make([]byte, 32<<10)
	if _, err := unix.Seek(d.fd, 0, io.SeekStart); err != nil {
		return nil, &fs.PathError{Op: "seek", Path: d.name, Err: err}
	}
	for {
		n, err := unix.ReadDirent(d.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: err}
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	sort.Strings(names)
	return names, nil
}

// readClose reads a regular file to its end, at most AttributeLimit bytes, and closes it. The answer may share buf.
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
		// A file with a size (sysfs says one page, a copy says the truth) ends with a short read; procfs says 0.
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

// readAll reads a regular file of any size.
func (h *Host) readAll(name string) ([]byte, error) {
	f, err := h.openFile(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, relabel(err, name)
	}
	if !st.Mode().IsRegular() && !st.IsDir() { // reading a directory fails by itself, with its own error number
		return nil, &fs.PathError{Op: "read", Path: name, Err: errNotRegular}
	}
	return appendAll(make([]byte, 0, min(st.Size(), 64<<20)+1), f, name)
}

func appendAll(b []byte, f io.Reader, name string) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, relabel(err, name)
		}
	}
}
