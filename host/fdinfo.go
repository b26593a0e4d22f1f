package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/guard"
)

// OpenFile is an open file of a device node, with what the kernel says about it in /proc/<pid>/fdinfo/<fd>
// (proc_pid_fdinfo(5)). The driver has written most of it.
type OpenFile struct {
	Node string // the device node as the machine sees it
	Info string
	Err  error // why it cannot be read; nil if it was
}

// maxFiles is of how many open files of one process fdinfo is read.
const maxFiles = 256

var errManyFiles = errors.New("the process has too many files of devices open")

// ask adds what the kernel says of an open file, if somebody asks and the kernel says something.
func (s *search) ask(node string, pid int, fd string) {
	if s.read == nil {
		return
	}
	f := OpenFile{Node: node, Err: errManyFiles}
	if len(s.files) < maxFiles {
		f.Info, f.Err = s.read(node, fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	}
	if f.Info != "" || f.Err != nil {
		s.files = append(s.files, f)
	}
}

// onlyNamed reports whether a descriptor that leads to a node does not have it open. With O_PATH (open(2)) it only
// names the file: the driver knows nothing of it. OCI runtimes hold each node like that for a moment when they have
// made it in a container that starts. Dir is the process's directory of descriptors.
func (s *search) onlyNamed(dir int, node string, pid int, fd string) bool {
	var st unix.Stat_t
	// The link's mode says whether it was opened for reading or writing (tid_fd_update_inode, fs/proc/fd.c). With
	// access mode 3, a node is open for neither.
	const readOrWritten = unix.S_IRUSR | unix.S_IWUSR
	if err := unix.Fstatat(dir, fd, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&readOrWritten != 0 {
		return err == unix.ENOENT // it was closed meanwhile
	}
	if s.flags == nil { // one for all descriptors: it knows which nodes do not answer
		if s.flags = s.read; s.read == nil {
			s.flags = s.h.Processes().InfoReader()
		}
	}
	info, err := s.flags(node, fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	return err == nil && (info == "" || openFlags(info)&unix.O_PATH != 0)
}

// openFlags returns the flags of open(2) in a text of /proc/<pid>/fdinfo/<fd>, where they are octal; 0 without any. The
// kernel writes them before the driver adds its own lines (seq_show, fs/proc/fd.c).
func openFlags(info string) uint64 {
	for line := range strings.Lines(info) {
		if value, is := strings.CutPrefix(line, "flags:"); is {
			flags, _ := strconv.ParseUint(strings.TrimSpace(value), 8, 64)
			return flags
		}
	}
	return 0
}

// infoTimeout is how long the driver may take to say something about an open file.
const infoTimeout = 2 * time.Second

// InfoReader returns a function that reads what the kernel says of an open file of a device node, at most
// [AttributeLimit] bytes. The driver answers, and some wait for a lock that a device which hangs never gives back. So
// the function gives up after two seconds, and asks nothing about that node before the read has ended. What has been
// closed meanwhile has an empty text.
func (p Processes) InfoReader() func(node, file string) (string, error) {
	return infoReader(func(file string) (string, error) {
		text, err := p.h.ReadAttribute(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return "", nil
		}
		return text, err
	})
}

func infoReader(read func(file string) (string, error)) func(node, file string) (string, error) {
	type answer struct {
		text string
		err  error
	}
	var mu sync.Mutex
	hangs := map[string]time.Time{} // when the read that hangs began, by node
	since := func(node string) (time.Time, bool) {
		mu.Lock()
		defer mu.Unlock()
		at, hung := hangs[node]
		return at, hung
	}
	mark := func(node string, began time.Time, ended bool) {
		mu.Lock()
		defer mu.Unlock()
		if hangs[node] = began; ended {
			delete(hangs, node)
		}
	}
	return func(node, file string) (string, error) {
		hung := func(at time.Time) error {
			return fmt.Errorf("the driver of %s has not answered since %s", node, at.Format("15:04:05"))
		}
		if at, is := since(node); is {
			return "", hung(at)
		}
		began, done := time.Now(), make(chan answer, 1)
		mark(node, began, false)
		guard.Go(func() {
			var got answer
			err := guard.Try(func() error { got.text, got.err = read(file); return nil })
			mark(node, began, true)
			got.err = cmp.Or(got.err, err)
			done <- got
		})
		late := time.NewTimer(infoTimeout)
		defer late.Stop()
		select {
		case got := <-done:
			return got.text, got.err
		case <-late.C:
			return "", hung(began)
		}
	}
}
