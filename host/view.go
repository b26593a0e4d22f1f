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

// ViewOutdated reports whether this process alone cannot write name because its view of the file system is older than
// a directory on the way to name. If so, a restart of this process gets a view with that directory.
//
// A service manager can give a service its own mounts, all read-only except for a list of directories. It skips
// directories that do not exist at that moment (systemd.exec(5), ReadWritePaths= with a dash). A directory that is
// created later stays read-only to the service for as long as it runs. So ViewOutdated checks three things: the mount
// is read-only to this process, it is not read-only to process 1, and a directory on the way was created after this
// process started. The result is false if one of them is unknown, or if the root is not "/": whoever set up another
// root decided what may be written in it.
//
// All times are taken from the clock as it is set now. If it was set forward meanwhile, a directory seems older than
// this process, and the result is false. If it was set back, old directories seem new. A time in the future is
// ignored. A time in the past can be later than this process's start, but it is earlier than the next process's start,
// so a restart happens at most once.
func (h *Host) ViewOutdated(name string) bool {
	if h.root != "/" {
		return false
	}
	dir, err := nearest(path.Dir(path.Clean("/" + name)))
	ours, err1 := readOnly(dir)
	theirs, err2 := readOnly(filepath.Join("/proc/1/root", dir))
	if errors.Join(err, err1, err2) != nil || !ours || theirs {
		return false
	}
	now := time.Now()
	started, err := h.Processes().started(now)
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

// since reports whether born is after started. It is false if born is zero or in the future.
func since(born, started, now time.Time) bool { return born.After(started) && !born.After(now) }

// nearest returns dir or its nearest existing ancestor, with links resolved.
func nearest(dir string) (string, error) {
	for {
		real, err := filepath.EvalSymlinks(dir)
		if !errors.Is(err, fs.ErrNotExist) {
			return real, err
		}
		dir = path.Dir(dir)
	}
}

// readOnly reports whether the mount of dir or its file system is read-only (statfs(2)).
func readOnly(dir string) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return st.Flags&unix.ST_RDONLY != 0, err
}

// started returns when this process started, on the clock that now was read from.
func (p Processes) started(now time.Time) (time.Time, error) {
	start, err := p.StartedAfterBoot("self")
	if err != nil {
		return time.Time{}, err
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, os.NewSyscallError("clock_gettime", err)
	}
	return now.Add(start - time.Duration(boot.Nano())), nil
}
