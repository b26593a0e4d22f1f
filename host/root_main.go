package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// rootScratch bounds what the program of a [Root] may write outside of the directories that it was given. It is memory.
const rootScratch = "size=64m,nr_inodes=64k,mode=0755"

// RootMain is the main function of the process that becomes a program in a [Root]. It was started in namespaces of its
// own as this program with [RootCommand], reads what to do from in, makes the mounts, gives up its rights and becomes
// the program. It returns only if it cannot, with the exit status; descriptor 3 gets the reason.
func RootMain(in *os.File) int {
	answer := os.NewFile(3, "answer")
	runtime.LockOSThread() // some of what follows belongs to the thread that becomes the program
	unix.CloseOnExec(int(in.Fd()))
	unix.CloseOnExec(int(answer.Fd()))
	err := errors.New("it got no order")
	var o rootOrder
	if json.NewDecoder(in).Decode(&o) == nil {
		err = o.become(in)
	}
	f := rootFailure{Text: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno, f.Text = int(errno), strings.TrimSuffix(f.Text, ": "+errno.Error())
	}
	_ = json.NewEncoder(answer).Encode(f) // if nobody reads it any more, nobody wants to know
	const failed = 125                    // as of env(1) and others that become a program
	return failed
}

// become makes the mounts and executes the program.
func (o rootOrder) become(in *os.File) error {
	unix.Umask(0o022)
	root := filepath.Join(o.Scratch, "root")
	if err := o.mounts(root); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	// The old root is put on top of the new one and taken away: no directory for it is needed (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot leave the machine's root: %w", err)
	}
	if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	if err := o.humble(); err != nil {
		return err
	}
	// The signal that ends this process with its parent was lost with its user.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("cannot end with acceld: %w", err)
	}
	order := []unix.PollFd{{Fd: int32(in.Fd())}}
	_, _ = unix.Poll(order, 0) // what it could not see, it does not report
	if order[0].Revents&unix.POLLHUP != 0 {
		return errors.New("acceld has ended")
	}
	if err := unix.Dup3(int(null.Fd()), 0, 0); err != nil {
		return err
	}
	if o.MemoryKiB > 0 { // last: this process has reserved more than a compiler may use
		limit := unix.Rlimit{Cur: uint64(o.MemoryKiB) << 10, Max: unix.RLIM_INFINITY}
		if err := unix.Setrlimit(unix.RLIMIT_AS, &limit); err != nil {
			return fmt.Errorf("cannot limit its memory: %w", err)
		}
	}
	if err := syscall.Exec(o.Path, append([]string{o.Path}, o.Args...), o.Env); err != nil {
		return fmt.Errorf("cannot execute it: %w", err)
	}
	return nil
}

// mounts makes the file system of the program at root, which is below the scratch directory.
func (o rootOrder) mounts(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot keep mounts to itself: %w", err)
	}
	const plain = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("acceld", o.Scratch, "tmpfs", plain, rootScratch); err != nil {
		return fmt.Errorf("cannot mount a tmpfs: %w", err)
	}
	if err := os.Chdir(o.Scratch); err != nil { // the names in the options of an overlay then need no escapes
		return err
	}
	for _, dir := range []string{"image", "upper", "work", "root"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := bind(o.Image, "image", unix.MS_RDONLY|plain); err != nil {
		return err
	}
	if err := unix.Mount("acceld", "root", "overlay", plain,
		"lowerdir=image,upperdir=upper,workdir=work"); err != nil {
		return fmt.Errorf("cannot mount an overlay, which needs a kernel with overlayfs: %w", err)
	}
	proc, err := mountPoint(root, "/proc")
	if err != nil {
		return err
	}
	if err := unix.Mount("proc", proc, "proc", plain|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	if err := devices(root); err != nil {
		return err
	}
	for _, b := range o.Binds {
		to, err := mountPoint(root, b.To)
		if err != nil {
			return err
		}
		flags := uintptr(plain)
		if !b.Write {
			flags |= unix.MS_RDONLY
		}
		if err := bind(b.From, to, flags); err != nil {
			return err
		}
	}
	return nil
}

// mountPoint returns the directory name below root, which it creates if it is missing. Links lead nowhere else: root
// has the links of the image.
func mountPoint(root, name string) (string, error) {
	p, err := securejoin.SecureJoin(root, name)
	if err == nil {
		err = os.MkdirAll(p, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("cannot make %q in the image: %w", name, err)
	}
	return p, nil
}

// bind shows the file or directory from at to, with at least these flags.
func bind(from, to string, flags uintptr) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount %q in the image: %w", from, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(to, &st); err != nil {
		return fmt.Errorf("cannot read the mount of %q: %w", from, err)
	}
	flags |= uintptr(st.Flags) & (unix.MS_RDONLY | unix.MS_NOEXEC) // the same bits as ST_RDONLY and ST_NOEXEC
	if err := unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("cannot limit the mount of %q: %w", from, err)
	}
	return nil
}

// devices makes /dev below root, of the few nodes that every program may expect and none may harm.
func devices(root string) error {
	dev, err := mountPoint(root, "/dev")
	if err != nil {
		return err
	}
	const still = unix.MS_NOSUID | unix.MS_NOEXEC
	if err := unix.Mount("acceld", dev, "tmpfs", still, "size=64k,nr_inodes=32,mode=0755"); err != nil {
		return fmt.Errorf("cannot mount /dev: %w", err)
	}
	for _, name := range []string{"null", "zero", "full", "urandom", "tty"} {
		from := filepath.Join("/dev", name)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) && name != "null" {
			continue
		}
		to := filepath.Join(dev, name)
		if err := os.WriteFile(to, nil, 0o644); err != nil {
			return err
		}
		if err := bind(from, to, still); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(text, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return unix.Mount("", dev, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NODEV|still, "")
}

// humble gives up the rights of this process: it becomes the user, with the lowest priority and no way back.
func (o rootOrder) humble() error {
	const lowest = 19 // setpriority(2)
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, lowest)
	err := syscall.Setgroups(nil)
	if err == nil {
		err = syscall.Setresgid(o.User, o.User, o.User)
	}
	if err == nil {
		err = syscall.Setresuid(o.User, o.User, o.User)
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("cannot become user %d: %w", o.User, err)
	}
	return nil
}
