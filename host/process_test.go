package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

func tempHost(t *testing.T) *Host {
	t.Helper()
	h, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func put(t *testing.T, h *Host, name, text string) {
	t.Helper()
	p := filepath.Join(h.Root(), name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	h := tempHost(t)
	release, err := h.Locks().Try("/lock", "me")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Locks().Try("/lock", "you"); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatal(err)
	}
	if text, _ := h.ReadAttribute("/lock"); text != "me" {
		t.Error("a lock that was not got changed its text to", text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := h.Locks().Take(ctx, "/lock", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		next, err := h.Locks().Take(t.Context(), "/lock", "next")
		if err == nil {
			defer next()
		}
		got <- err
	}()
	release()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	// The waiter that gave up does not keep a lock that comes late.
	if release, err = h.Locks().Take(t.Context(), "/lock", ""); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := h.Locks().Try("/no/dir/lock", ""); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestHolders(t *testing.T) {
	h := tempHost(t)
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	id := strings.Repeat("0f", 32)
	node := accel.DeviceNode{Path: "/dev/edu0", Major: 240}
	put(t, h, "/proc/9/comm", "nine\n")
	put(t, h, "/proc/9/maps", "1-2 rw-p 0 00:00 0 /dev/edu00\n") // another node
	put(t, h, "/proc/100/comm", "later\n")
	put(t, h, "/proc/100/maps", "1-2 rw-s 0 00:00 0    /dev/edu0\n")
	put(t, h, "/proc/20/comm", "python3\n")
	put(t, h, "/proc/20/cgroup", "12:devices:/kubepods/burstable/pod"+uid+"/"+id+"\n")
	put(t, h, "/proc/20/fd/.keep", "")
	put(t, h, "/proc/self/comm", "x")
	if err := os.Symlink("/dev/edu0", filepath.Join(h.Root(), "proc/20/fd/5")); err != nil {
		t.Fatal(err)
	}
	want := []Holder{
		{PID: 20, Comm: "python3", Node: "/dev/edu0", Pod: uid, Container: id},
		{PID: 100, Comm: "later", Node: "/dev/edu0"},
	}
	got := h.Processes().Holders([]accel.DeviceNode{node})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := got[0].String() + ", " + got[1].String(); s != "python3 (pid 20, pod "+uid+"), later (pid 100)" {
		t.Error(s)
	}
	if got := h.Processes().Holders(nil); got != nil {
		t.Error(got)
	}
}

// holdsZero returns this machine, on which this process has /dev/zero open until the test ends.
func holdsZero(t *testing.T) *Host {
	t.Helper()
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // opened for reading
	return h
}

// firstThreadEnds is the variable of the environment that makes this program that of TestHolderWithoutFirstThread.
const firstThreadEnds = "ACCELD_TEST_FIRST_THREAD_ENDS"

// endFirstThread ends the thread that it runs on. Another one waits for the end of the program's input.
func endFirstThread() {
	go func() {
		runtime.LockOSThread()
		var b [1]byte
		_, _ = unix.Read(0, b[:])
		unix.Exit(0)
	}()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// TestHolderWithoutFirstThread finds a process that has a device open although its first thread has ended: then
// /proc/<pid>/fd is empty.
func TestHolderWithoutFirstThread(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), firstThreadEnds+"=1"), []*os.File{zero}
	end, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = zero.Close() // the other process has it
	defer func() {
		_ = end.Close()
		_ = cmd.Wait() // however it ends
	}()
	exe := fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Readlink(exe); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(until) {
			t.Fatal("its first thread does not end")
		}
	}
	if !slices.ContainsFunc(h.Processes().Holders([]accel.DeviceNode{{Path: "/dev/other-name", Major: 1, Minor: 5}}),
		func(o Holder) bool { return o.PID == cmd.Process.Pid }) {
		t.Error("it is not among the holders of /dev/zero")
	}
}

// TestHoldersLive finds this process by the number of a device that it has open under another name.
func TestHoldersLive(t *testing.T) {
	h := holdsZero(t)
	for _, o := range h.Processes().Holders([]accel.DeviceNode{{Path: "/dev/other-name", Major: 1, Minor: 5}}) {
		if o.PID == os.Getpid() && o.Node == "/dev/other-name" {
			return
		}
	}
	t.Error("this process is not among the holders of /dev/zero")
}

// holds reports whether this process is among the holders of a node.
func holds(h *Host, node accel.DeviceNode) bool {
	return slices.ContainsFunc(h.Processes().Holders([]accel.DeviceNode{node}), func(o Holder) bool {
		return o.PID == os.Getpid() && o.Node == node.Path
	})
}

// TestHoldersElsewhere finds this process by a device that it has open, and then mapped, outside any /dev.
func TestHoldersElsewhere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("device nodes can be made by root alone")
	}
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	name, node := filepath.Join(t.TempDir(), "zero"), accel.DeviceNode{Path: "/dev/zero", Major: 1, Minor: 5}
	if err := unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(node.Major, node.Minor))); err != nil {
		t.Skipf("no device node can be made here: %v", err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Skipf("devices cannot be opened in the directory for temporary files: %v", err)
	}
	if !holds(h, node) {
		t.Errorf("this process is not among the holders of /dev/zero, which it has open as %q", name)
	}
	mapping, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadDir("/proc/self/map_files")
	if err != nil || len(maps) == 0 {
		t.Fatal(maps, err)
	}
	if _, err := os.Stat("/proc/self/map_files/" + maps[0].Name()); err == nil && !holds(h, node) {
		t.Errorf("this process is not among the holders of /dev/zero, which it has mapped as %q", name)
	}
	if err := syscall.Munmap(mapping); err != nil {
		t.Error(err)
	}
	if holds(h, node) {
		t.Error("this process is among the holders of /dev/zero, which it has closed")
	}
}

func TestPeer(t *testing.T) {
	root, err := os.MkdirTemp("", "peer") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Processes().Peer(t.Context(), "/run/x.sock"); err == nil {
		t.Error("a socket that is not there has a peer")
	}
	l, err := net.Listen("unix", filepath.Join(root, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if pid, err := h.Processes().Peer(t.Context(), "/x.sock"); err != nil || pid != os.Getpid() {
		t.Errorf("peer is %d, %v; want %d", pid, err, os.Getpid())
	}
}

// TestHoldersPretended: a plain file with the name of a node is no device.
func TestHoldersPretended(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "edu0")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if holds(h, accel.DeviceNode{Path: name, Major: 240, Minor: 7}) {
		t.Error("a plain file counts as a device")
	}
}

func TestPodOf(t *testing.T) {
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	id := strings.Repeat("0f", 32)
	for text, want := range map[string][2]string{
		"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b2c3d_1111_2222_3333_444455556666.slice/crio-" + id + ".scope": {
			uid,
			id,
		},
		"0::/kubepods/pod" + uid + "/" + id: {uid, id},
		// a static pod
		"0::/kubepods/pod" + strings.Repeat("a", 32) + "/": {strings.Repeat("a", 32), ""},
		"0::/machine.slice/libpod-" + id + ".scope":        {"", id},
		"0::/user.slice/user-0.slice":                      {"", ""},
		"":                                                 {"", ""},
	} {
		pod, container := PodOf(text)
		if [2]string{pod, container} != want {
			t.Errorf("%q: pod %q, container %q", text, pod, container)
		}
	}
}

// TestStart: a program outlives the thread that asked for it, which exits with its goroutine.
func TestStart(t *testing.T) {
	cmd := Helper(t.Context(), []string{"/bin/sh", "-c", "read -r end"})
	if _, err := cmd.StdinPipe(); err != nil { // it stays open
		t.Fatal(err)
	}
	got := make(chan (<-chan error), 1)
	onSpareThread(func() {
		ended, err := Start(cmd)
		if err != nil {
			t.Error(err)
		}
		got <- ended
	})
	ended := <-got
	select {
	case err := <-ended:
		t.Fatalf("it ended with the thread: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := cmd.Cancel(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("it was killed, and ended well")
	}
	if _, err := Start(Helper(t.Context(), []string{"/not/there"})); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestKernelTail(t *testing.T) {
	h := tempHost(t)
	put(t, h, "/dev/kmsg", "6,1,1,-;before\n")
	tail, err := h.Kernel().Tail()
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	f, err := os.OpenFile(filepath.Join(h.Root(), "dev/kmsg"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprint(f, "3,2,5,-;edu: one; two\n SUBSYSTEM=pci\n12,3,6,-;a process says so\n4,4,7,-;ha")
	if diff := cmp.Diff([]string{"edu: one; two"}, tail.Lines()); diff != "" {
		t.Error(diff)
	}
	fmt.Fprint(f, "lf\\x0a\n")
	if diff := cmp.Diff([]string{"half\n"}, tail.Lines()); diff != "" {
		t.Error(diff)
	}
	if got := tail.Lines(); got != nil {
		t.Error(got)
	}
}

func TestModulesOfACopy(t *testing.T) {
	h := tempHost(t)
	f, err := MemoryFile("x", func(w io.Writer) error {
		_, err := io.WriteString(w, "content")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "content" {
		t.Error(string(b), err)
	}
	if w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY, 0); err == nil {
		if _, err := w.WriteString("other"); !errors.Is(err, syscall.EPERM) {
			t.Error("a sealed file was written:", err)
		}
		_ = w.Close()
	}
	full := errors.New("full")
	if _, err := MemoryFile("x", func(io.Writer) error { return full }); !errors.Is(err, full) {
		t.Error(err)
	}
	if err := h.Kernel().LoadModule(f, ""); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
	if err := h.Kernel().DeleteModule("x"); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
}

func TestTree(t *testing.T) {
	h := tempHost(t)
	dir, err := h.MakeTemp("/", "x")
	if err != nil {
		t.Fatal(err)
	}
	f, err := h.Create(dir+"/file", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := h.Create(dir+"/file", 0o600); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if err := h.Symlink("file", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if text, err := h.Readlink(dir + "/link"); err != nil || text != "file" {
		t.Error(text, err)
	}
}

// TestSeesMachine: a process with a mount namespace of its own does not see the machine.
func TestSeesMachine(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	if sees, err := h.Processes().SeesMachine(1); err != nil || !sees {
		t.Skip("process 1 may not be inspected here")
	}
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if err := c.Start(); err != nil {
		t.Skip("mount namespaces may not be created here")
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	if sees, err := h.Processes().SeesMachine(c.Process.Pid); err != nil || sees {
		t.Errorf("its own mounts are the machine's: %t, %v", sees, err)
	}
	if _, err := h.Processes().SeesMachine(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is not there: %v", err)
	}
}
