package host

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ViewOutdated reports whether name cannot be written by this process alone, because its own view of the file system is
// older than a directory on the way to name; a start of it then gets a view that has the directory.
//
// A service manager gives a service mounts of its own, all read-only but for the directories of a list, and those that
// are not there at that moment it passes over (systemd.exec(5), ReadWritePaths= with a dash). Whatever comes into being
// later is read-only to the service for as long as it runs. So three things are asked: that the mount is read-only to
// this process, that it is not to process 1, and that a directory on the way was made after this process started. False
// when one of them cannot be known, and for another root than "/": who made that one knows what may be written in it.
//
// The times are of the clock as it is set now. Set forward since, it makes a directory seem older than this process,
// and the answer is false. Set back, it makes old ones seem new: those of the future are not believed, and one of the
// past is younger than this process and older than the next, which therefore does not say so again.
func (h *Host) ViewOutdated(name string) bool {
	if h.root != "/" {
		return false
	}
	dir, err := nearest(path.Dir(path.Clean("/" + name)))
	if err != nil || !readOnly(dir) || !writable(filepath.Join("/proc/1/root", dir)) {
		return false
	}
	now := time.Now()
	started, err := h.started(now)
	if err != nil {
		return false
	}
	for ; dir != "/"; dir = path.Dir(dir) {
		if since(h.Born(dir), started, now) {
			return true
		}
	}
	return false
}

// since reports whether what was born then is younger than what started; not when that is unknown, or cannot be.
func since(born, started, now time.Time) bool { return born.After(started) && !born.After(now) }

// nearest returns dir, or of the directories above it the first that is there, without links.
func nearest(dir string) (string, error) {
	for {
		real, err := filepath.EvalSymlinks(dir)
		if !errors.Is(err, fs.ErrNotExist) {
			return real, err
		}
		dir = path.Dir(dir)
	}
}

func readOnly(dir string) bool {
	flags, err := mountFlags(dir)
	return err == nil && flags&unix.ST_RDONLY != 0
}

func writable(dir string) bool {
	flags, err := mountFlags(dir)
	return err == nil && flags&unix.ST_RDONLY == 0
}

// mountFlags are those of the mount and of its file system together (statfs(2)).
func mountFlags(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Flags), nil //nolint:unconvert // 32 bits on some architectures
}

// started returns when this process started, by the clock that says now.
func (h *Host) started(now time.Time) (time.Time, error) {
	start, err := h.StartedAfterBoot("self")
	if err != nil {
		return time.Time{}, err
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, os.NewSyscallError("clock_gettime", err)
	}
	return now.Add(start - time.Duration(boot.Nano())), nil
}
