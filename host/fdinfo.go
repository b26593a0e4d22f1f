package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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
