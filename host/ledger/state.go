package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/host"
)

// Kind is the type of what is at a path.
type Kind string

// The kinds. Sockets and FIFOs are never replaced, so they only appear where somebody else put them in place of what
// acceld wrote.
const (
	Absent    Kind = "absent"
	File      Kind = "file"
	Link      Kind = "symbolic link"
	Dir       Kind = "directory"
	CharNode  Kind = "character device"
	BlockNode Kind = "block device"
	Attribute Kind = "attribute" // of sysfs or procfs: it has only a text
	Other     Kind = "socket or FIFO"
)

// State is what is at a path at one moment, as far as it can be restored.
type State struct {
	Kind Kind `json:"kind"`
	// SHA256 and Size describe a file's content.
	SHA256 string `json:"sha256,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Text is the target of a link or the text of an attribute.
	Text string `json:"text,omitempty"`
	// Device holds the numbers of a node, combined as by makedev(3).
	Device uint64 `json:"device,omitempty"`
	// Mode holds the permissions with the set-id and sticky bits, 07777 of st_mode.
	Mode  uint32    `json:"mode,omitempty"`
	UID   int       `json:"uid,omitempty"`
	GID   int       `json:"gid,omitempty"`
	Mtime time.Time `json:"mtime,omitzero"`
	// Xattrs holds the extended attributes: SELinux label, POSIX ACL, capabilities, user attributes.
	Xattrs map[string][]byte `json:"xattrs,omitempty"`
	// Names is the number of hard links of a file.
	Names uint64 `json:"names,omitempty"`
}

// sameContent reports whether two states have the same kind and content; the metadata may differ.
func (s *State) sameContent(o *State) bool {
	return s.Kind == o.Kind && s.SHA256 == o.SHA256 && s.Text == o.Text && s.Device == o.Device
}

// sameMeta compares permissions (except those of links), owner and extended attributes.
func (s *State) sameMeta(o *State) bool {
	return (s.Kind == Link || s.Mode == o.Mode) && s.UID == o.UID && s.GID == o.GID &&
		maps.EqualFunc(s.Xattrs, o.Xattrs, func(a, b []byte) bool { return string(a) == string(b) })
}

// whole reports whether s, which has the same content as o, also has the same metadata.
func (s *State) whole(o *State) bool {
	switch s.Kind {
	case Absent, Attribute:
		return true
	case Dir: // its time is recorded separately
		return s.sameMeta(o)
	}
	return s.sameMeta(o) && s.Mtime.Equal(o.Mtime)
}

// differs says, for people, how s differs from the wanted state.
func (s *State) differs(wanted *State) string {
	switch {
	case s.Kind == Absent:
		return "it is gone"
	case s.Kind != wanted.Kind:
		return fmt.Sprintf("it is a %s now", s.Kind)
	case s.Kind == File:
		return fmt.Sprintf(
			"its content is not what acceld wrote (%d bytes, SHA-256 %.12s; written were %d bytes, %.12s)", s.Size,
			s.SHA256, wanted.Size, wanted.SHA256)
	case s.Kind == Link:
		return fmt.Sprintf("it links to %q, acceld linked to %q", s.Text, wanted.Text)
	case s.Kind == Attribute:
		return fmt.Sprintf("it says %q, acceld wrote %q", s.Text, wanted.Text)
	}
	return "it is another device"
}

// observe returns what key is now. It follows no link. It reads a file's content to its end.
func (f *files) observe(key string) (*State, error) {
	p := f.path(key)
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		// ENOTDIR: a parent is not a directory, so key does not exist either.
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return &State{Kind: Absent}, nil
		}
		return nil, &fs.PathError{Op: "stat", Path: key, Err: err}
	}
	s := &State{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid), Mtime: time.Unix(st.Mtim.Unix()).UTC()}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.Kind, s.Names = File, uint64(st.Nlink) //nolint:unconvert // 32 bits on some architectures
		s.SHA256, s.Size, err = f.sum(key)
	case unix.S_IFLNK:
		s.Kind, s.Mode = Link, 0
		s.Text, err = os.Readlink(p)
	case unix.S_IFDIR:
		s.Kind = Dir
	case unix.S_IFCHR:
		s.Kind, s.Device = CharNode, st.Rdev
	case unix.S_IFBLK:
		s.Kind, s.Device = BlockNode, st.Rdev
	default:
		s.Kind = Other
	}
	if err != nil {
		return nil, host.Relabel(err, key)
	}
	s.Xattrs, err = xattrs(p)
	return s, host.Relabel(err, key)
}

// sum reads a regular file and returns its SHA-256 in hexadecimal and its size.
func (f *files) sum(key string) (sum string, size int64, err error) {
	file, err := os.OpenFile(f.path(key), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	h := sha256.New()
	size, err = io.Copy(h, file)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// restorable reports whether an extended attribute belongs to the file itself: overlayfs stores its own data in some,
// and an EVM signature is bound to the inode.
func restorable(attr string) bool {
	return !strings.HasPrefix(attr, "trusted.overlay.") && attr != "security.evm"
}

// xattrs returns the extended attributes of a path without following a link; none if the file system does not support
// them.
func xattrs(p string) (map[string][]byte, error) {
	list, err := grow(func(b []byte) (int, error) { return unix.Llistxattr(p, b) })
	if err != nil || len(list) == 0 {
		return nil, err
	}
	out := map[string][]byte{}
	for attr := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if !restorable(attr) {
			continue
		}
		value, err := grow(func(b []byte) (int, error) { return unix.Lgetxattr(p, attr, b) })
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the extended attribute %q: %w", attr, err)
		}
		out[attr] = value
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// grow calls read with a buffer that is large enough. It returns nothing if extended attributes are not supported.
func grow(read func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := read(nil)
		if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		buf := make([]byte, n)
		if n == 0 {
			return buf, nil
		}
		n, err = read(buf)
		if errors.Is(err, unix.ERANGE) { // it grew
			continue
		}
		return buf[:max(n, 0)], err
	}
}

// listing returns a digest that tells whether a directory still holds the same names. The ledger's temporary names are
// ignored.
func (f *files) listing(key string) (sum string, names []string, mtime time.Time, err error) {
	st, err := os.Lstat(f.path(key))
	if err != nil {
		return "", nil, time.Time{}, host.Relabel(err, key)
	}
	entries, err := os.ReadDir(f.path(key))
	if err != nil {
		return "", nil, time.Time{}, host.Relabel(err, key)
	}
	h := sha256.New()
	for _, e := range entries {
		if passing(e.Name()) {
			continue
		}
		names = append(names, e.Name())
		_, _ = io.WriteString(h, e.Name()+"\x00") // a hash never fails
	}
	slices.Sort(names)
	return hex.EncodeToString(h.Sum(nil)), names, st.ModTime().UTC(), nil
}
