package host

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// createTemp creates a file next to base that is later renamed to base. Its own name starts with a dot and ends in
// ".tmp", which every reader of such directories skips. It stays locked while it is open, so that whoever finds it
// after its writer was killed can tell that it is abandoned.
func createTemp(dir, base string) (*os.File, error) {
	removeAbandoned(dir, "."+base+".")
	for {
		f, err := os.CreateTemp(dir, "."+base+".*.tmp")
		if err != nil {
			return nil, err
		}
		var st unix.Stat_t
		// without locks on the file system, no abandoned files are removed
		locked := unix.Flock(int(f.Fd()), unix.LOCK_EX) == nil
		if known := unix.Fstat(int(f.Fd()), &st) == nil; !locked || !known || st.Nlink > 0 {
			return f, nil
		}
		closeQuietly(f) // another process took it for abandoned before it was locked
	}
}

// RemoveAbandoned removes the temporary files in a directory whose writers were killed. Each write of a file removes
// those of earlier writes of it; this is for directories with files that may never be written again.
func (l Locks) RemoveAbandoned(dir string) {
	if name, err := l.h.Path(dir); err == nil {
		removeAbandoned(name, ".")
	}
}

// removeAbandoned removes the temporary files that no process holds and whose names begin with a prefix. A file that
// cannot be removed stays; it does no harm.
func removeAbandoned(dir, prefix string) {
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !strings.HasSuffix(e.Name(), ".tmp") || !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(dir, e.Name())
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(name)
		}
		closeQuietly(f)
	}
}
