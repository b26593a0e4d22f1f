package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/host"
)

// files makes changes below a root, one system call at a time. Keys are resolved paths as the machine sees them.
type files struct {
	root string
	// fault is called before each step. If it returns an error, the step is not made, or only half made if that is
	// possible. It is nil outside tests, which use it to kill the process or fill the disk at every line.
	fault func(step, key string) error
}

func (f *files) path(key string) string { return filepath.Join(f.root, key) }

// step makes one change unless fault returns an error.
func (f *files) step(what, key string, do func(p string) error) error {
	if f.fault != nil {
		if err := f.fault(what, key); err != nil {
			return &fs.PathError{Op: what, Path: key, Err: err}
		}
	}
	return host.Relabel(do(f.path(key)), key)
}

// passage returns the temporary name under which key is created before it is renamed. It is in the same directory,
// because libraries that watch CDI directories do not see a file that is renamed in from elsewhere. It is the same
// each time, so that what a crash leaves behind is found. For directories "*.conf.d" it is in the directory above,
// because their reader parses every file in them.
func passage(key string) string {
	sum := sha256.Sum256([]byte(key))
	dir := path.Dir(key)
	if strings.HasSuffix(dir, ".conf.d") {
		dir = path.Dir(dir)
	}
	return path.Join(dir, tempPrefix+hex.EncodeToString(sum[:8])+tempSuffix)
}

// All readers of such directories skip names that start with a dot or end in ".tmp".
const (
	tempPrefix = ".acceld-"
	tempSuffix = ".tmp"
)

func passing(base string) bool {
	return strings.HasPrefix(base, tempPrefix) && strings.HasSuffix(base, tempSuffix)
}

// Passing reports whether name is a temporary name of the ledger. Someone who watches the directory sees an event for
// the final name next.
func Passing(name string) bool { return passing(path.Base(name)) }

// beside is [passage] in the path's own directory, for when the directory above is on another file system.
func beside(key string) string { return path.Join(path.Dir(key), path.Base(passage(key))) }

// clear removes what an interrupted change of key left behind.
func (f *files) clear(key string) error {
	for _, temp := range slices.Compact([]string{passage(key), beside(key)}) {
		st, err := os.Lstat(f.path(temp))
		if err != nil {
			continue // including a missing directory
		}
		if st.IsDir() {
			err = f.rmdir(temp)
		} else {
			err = f.unlink(temp)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *files) unlink(key string) error {
	return f.step("unlink", key, func(p string) error { return unlinked(unix.Unlink(p)) })
}

func (f *files) rmdir(key string) error {
	return f.step("rmdir", key, func(p string) error { return unlinked(unix.Rmdir(p)) })
}

// unlinked treats a path that is already gone as success.
func unlinked(err error) error {
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

func (f *files) mkdir(key string, mode fs.FileMode) error {
	return f.step("mkdir", key, func(p string) error {
		if err := os.Mkdir(p, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
}

// mkdirLasting creates a directory durably. If the directory's own name is not synced, everything synced inside it is
// lost with it.
func (f *files) mkdirLasting(key string, mode fs.FileMode) error {
	err := f.mkdir(key, mode)
	if err == nil {
		err = f.syncDir(path.Dir(key))
	}
	return err
}

// syncDir syncs a directory, so that the changes in it are durable.
func (f *files) syncDir(key string) error {
	return f.step("fsync", key, host.SyncDir)
}

// write creates the file key, mode 0600, with the content of from.
func (f *files) write(key string, from io.Reader) error {
	var file *os.File
	err := f.step("create", key, func(p string) (err error) {
		file, err = os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	err = f.step("write", key, func(string) error { _, err := io.Copy(file, from); return err })
	if err != nil && f.fault != nil {
		_, _ = io.CopyN(file, from, 5) // the fault of a test came in the middle of it
	}
	return errors.Join(err, file.Close())
}

// make creates a state under the name temp, complete with its metadata and durable. The content of a file is read from
// from.
func (f *files) make(temp string, s *State, from io.Reader) error {
	var err error
	switch s.Kind {
	case File:
		err = f.write(temp, from)
	case Link:
		err = f.step("symlink", temp, func(p string) error { return os.Symlink(s.Text, p) })
	case Dir:
		err = f.mkdir(temp, 0o700)
	case CharNode, BlockNode:
		mode := map[Kind]uint32{CharNode: unix.S_IFCHR | 0o600, BlockNode: unix.S_IFBLK | 0o600}[s.Kind]
		err = f.step("mknod", temp, func(p string) error { return unix.Mknod(p, mode, int(s.Device)) })
	default:
		err = fmt.Errorf("cannot make a %s", s.Kind)
	}
	if err == nil {
		err = f.dress(temp, s)
	}
	if err == nil && s.Kind == File {
		err = f.syncDir(temp) // fsync(2) of the file itself
	}
	return err
}

// dress gives a new path its owner, mode, extended attributes and time. The order matters: chown(2) clears set-id bits
// and capabilities, and an ACL changes the mode.
func (f *files) dress(temp string, s *State) error {
	if err := f.step("chown", temp, func(p string) error { return os.Lchown(p, s.UID, s.GID) }); err != nil {
		return err
	}
	if s.Kind != Link {
		if err := f.step("chmod", temp, func(p string) error { return unix.Chmod(p, s.Mode) }); err != nil {
			return err
		}
	}
	have, err := xattrs(f.path(temp))
	if err != nil {
		return host.Relabel(err, temp)
	}
	for attr := range have {
		// The directory or the security module set it, but the state does not have it. A label cannot be removed.
		if _, wanted := s.Xattrs[attr]; !wanted && !strings.HasPrefix(attr, "security.") {
			if err := f.step("removexattr", temp, func(p string) error {
				return unix.Lremovexattr(p, attr)
			}); err != nil {
				return err
			}
		}
	}
	for attr, value := range s.Xattrs {
		if string(have[attr]) == string(value) && len(value) > 0 {
			continue
		}
		if err := f.step("setxattr", temp, func(p string) error {
			return unix.Lsetxattr(p, attr, value, 0)
		}); err != nil {
			return fmt.Errorf("cannot set the extended attribute %q: %w", attr, err)
		}
	}
	if s.Mtime.IsZero() {
		return nil
	}
	return f.setTime(temp, s.Mtime)
}

func (f *files) setTime(key string, t time.Time) error {
	return f.step("utimes", key, func(p string) error {
		ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(t.UnixNano())}
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, ts, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// replace puts a state in the place of key in one step: a reader sees either the old state or the new one. The content
// of a file is nil for every other kind.
func (f *files) replace(key string, s *State, from io.ReadSeeker) error {
	err := f.replaceBy(passage(key), key, s, from)
	if errors.Is(err, unix.EXDEV) {
		if from != nil {
			if _, err := from.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
		err = f.replaceBy(beside(key), key, s, from)
	}
	return err
}

func (f *files) replaceBy(temp, key string, s *State, from io.Reader) error {
	err := f.clear(key)
	if err != nil {
		return err
	}
	err = f.make(temp, s, from)
	if err == nil {
		err = f.step("rename", key, func(p string) error { return os.Rename(f.path(temp), p) })
	}
	if err != nil {
		return errors.Join(err, f.clear(key))
	}
	return f.syncDir(path.Dir(key))
}

// remove removes key; a directory only if it is empty.
func (f *files) remove(key string, s *State) error {
	if err := f.clear(key); err != nil {
		return err
	}
	var err error
	if s.Kind == Dir {
		err = f.rmdir(key)
	} else {
		err = f.unlink(key)
	}
	if err != nil {
		return err
	}
	err = f.syncDir(path.Dir(key))
	if errors.Is(err, fs.ErrNotExist) { // gone with its directory
		return nil
	}
	return err
}
