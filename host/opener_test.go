package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// process makes a process of a copy of a machine, which has files open.
func process(t testing.TB, h *Host, pid, parent int, comm, cgroup string, open ...string) {
	t.Helper()
	dir := filepath.Join(h.Root(), "proc", fmt.Sprint(pid))
	stat := fmt.Sprintf("%d (%s) S %d%s %d\n", pid, comm, parent, strings.Repeat(" 0", 17), 100*pid)
	err := os.MkdirAll(dir+"/fd", 0o755)
	for name, text := range map[string]string{"stat": stat, "comm": comm + "\n", "cgroup": cgroup, "maps": ""} {
		err = errors.Join(err, os.WriteFile(dir+"/"+name, []byte(text), 0o644))
	}
	for i, target := range open {
		err = errors.Join(err, os.Symlink(target, fmt.Sprintf("%s/fd/%d", dir, i+3)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpeners(t *testing.T) {
	h := tempHost(t)
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	id := strings.Repeat("0f", 32)
	nodes := []accel.DeviceNode{{Path: "/dev/edu0"}, {Path: "/dev/edu1"}, {Path: "/dev/edu2"}}
	process(t, h, 20, 1, "python3 ) x", "0::/kubepods/pod"+uid+"/"+id+"\n", "/dev/null", "/dev/edu1", "/dev/edu0", "/dev/edu1")
	process(t, h, 9, 1, "\x1b[2J\xff"+strings.Repeat("ü", 40), "0::/system.slice/a\x07b.service/x\n", "/dev/edu0")
	process(t, h, 100, 1, "sh", "0::/user.slice/user-0.slice/kubepods/pod"+uid+"/session-3.scope\n", "/dev/edu2 (deleted)")
	process(t, h, 101, 1, "other", "0::/\n", "/dev/edu00", "socket:[1]")
	put(t, h, "/proc/100/maps", "1-2 rw-s 0 00:00 0    /dev/edu0\n")
	if err := os.Remove(filepath.Join(h.Root(), "proc/9/maps")); err != nil {
		t.Fatal(err)
	}
	want := []Opener{
		{
			PID: 9, Start: 9 * time.Second, Comm: "?[2J?" + strings.Repeat("ü", 29) + "?", Nodes: []string{"/dev/edu0"},
			Unit: "a?b.service",
		},
		{
			PID: 20, Start: 20 * time.Second, Comm: "python3 ) x", Nodes: []string{"/dev/edu0", "/dev/edu1"}, Pod: uid,
			Container: id, Unit: id,
		},
		{
			PID: 100, Start: 100 * time.Second, Comm: "sh", Nodes: []string{"/dev/edu0", "/dev/edu2"}, Unit: "session-3.scope",
		},
	}
	got, err := h.Processes().Openers(t.Context(), nodes, nil)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := h.Processes().Openers(t.Context(), nil, nil); err != nil || got != nil {
		t.Errorf("of no nodes: %v, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := h.Processes().Openers(ended, nodes, nil); err == nil {
		t.Errorf("when the time is over: %v", got)
	}
	if err := os.RemoveAll(filepath.Join(h.Root(), "proc")); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Processes().Openers(t.Context(), nodes, nil); err == nil {
		t.Errorf("without /proc: %v", got)
	}
}

// TestOpenersLive finds this process by two devices, and not by a block device with the number of one of them.
func TestOpenersLive(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/dev/zero", "/dev/null"} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
	}
	all, err := h.Processes().Openers(t.Context(), []accel.DeviceNode{
		{Path: "/dev/zero", Major: 1, Minor: 5}, {Path: "/dev/null", Major: 1, Minor: 3}, {Path: "/dev/full", Major: 1, Minor: 7},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(o Opener) bool { return o.PID == os.Getpid() })
	if i < 0 || !slices.Contains(all[i].Nodes, "/dev/zero") || !slices.Contains(all[i].Nodes, "/dev/null") ||
		slices.Contains(all[i].Nodes, "/dev/full") || all[i].Start == 0 {
		t.Errorf("%+v", all)
	}
	s := newSearch(h, []accel.DeviceNode{{Path: "/dev/zero", Major: 1, Minor: 5}}, 1)
	if len(s.of(os.Getpid())) != 1 || s.types[0] != unix.S_IFCHR {
		t.Errorf("/dev/zero is of type %#x, or not open", s.types[0])
	}
	if s.types[0] = unix.S_IFBLK; len(s.of(os.Getpid())) > 0 {
		t.Error("a character device counts as the block device with its number")
	}
}

// TestOnlyNamed: a process that holds a node with O_PATH, as an OCI runtime briefly does, does not have it open.
func TestOnlyNamed(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	node := accel.DeviceNode{Path: "/dev/full", Major: 1, Minor: 7}
	for _, c := range []struct {
		name  string
		flags int
		open  bool
	}{
		{"named", unix.O_PATH, false},
		{"read", unix.O_RDONLY, true},
		{"written", unix.O_WRONLY, true},
		{"both", unix.O_RDWR, true},
		{"neither, such as for ioctl(2)", unix.O_ACCMODE, true},
	} {
		for _, read := range []func(node, file string) (string, error){nil, h.Processes().InfoReader()} {
			fd, err := unix.Open(node.Path, c.flags|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := newSearch(h, []accel.DeviceNode{node}, 1)
			s.read = read
			if found := len(s.of(os.Getpid())) > 0; found != c.open || len(s.files) > 0 != (c.open && read != nil) {
				t.Errorf("%s: open %t, files %+v", c.name, found, s.files)
			}
			_ = unix.Close(fd)
		}
	}
}

func TestUnitOf(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/a.service\n":                                 "a.service",
		"0::/system.slice/a.service/sub\n":                             "a.service",
		"0::/user.slice/user-0.slice/user@0.service/app.slice/b.scope": "b.scope",
		"12:devices:/user.slice\n1:name=systemd:/user.slice/c.scope\n": "c.scope",
		"12:devices:/x\n11:cpu:/\n":                                    "x",
		"0::/../../../system.slice/d.service":                          "d.service",
		"0::/":                                                         "",
		"":                                                             "",
		"nonsense":                                                     "",
		"0::/" + strings.Repeat("e", 100):                              strings.Repeat("e", openerText),
		"0::/docker/" + strings.Repeat("0f", 32):                       strings.Repeat("0f", 32),
		"0::/system.slice/\x1b]0;x\x07.service":                        "?]0;x?.service",
		"0::/a:b.service\n":                                            "a:b.service",
	} {
		if got := unitOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzOpener: whatever a process calls itself and its control groups, what is kept of it is short and can be shown.
func FuzzOpener(f *testing.F) {
	f.Add("python3", "0::/system.slice/a.service\n")
	f.Add("\x1b[2J\xff", "0::/kubepods/pod0a1b2c3d-1111-2222-3333-444455556666/"+strings.Repeat("0f", 32))
	f.Fuzz(func(t *testing.T, comm, cgroup string) {
		pod, container := PodOf(cgroup)
		for _, text := range []string{tidy(comm), unitOf(cgroup), pod, container} {
			odd := func(r rune) bool { return !unicode.IsPrint(r) }
			if len(text) > openerText || !utf8.ValidString(text) || strings.ContainsFunc(text, odd) {
				t.Errorf("%q", text)
			}
		}
	})
}

func TestDescendsFrom(t *testing.T) {
	h := tempHost(t)
	process(t, h, 10, 1, "agent", "0::/\n")
	process(t, h, 11, 10, "a ) 1 (", "0::/\n")
	process(t, h, 12, 11, "b", "0::/\n")
	process(t, h, 13, 14, "c", "0::/\n") // two that say of each other that they are its parent
	process(t, h, 14, 13, "d", "0::/\n")
	for pid, want := range map[int]bool{10: true, 11: true, 12: true, 13: false, 1: false, 99: false} {
		if got := h.Processes().DescendsFrom(pid, 10); got != want {
			t.Errorf("%d: %t", pid, got)
		}
	}
}

// TestRuns: a process is known by the file that it runs, not by its name.
func TestRuns(t *testing.T) {
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("this machine has no sleep")
	}
	cmd := exec.CommandContext(t.Context(), sleep, "60")
	cmd.Args[0] = "acceld"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := h.Processes()
	if p.Runs(cmd.Process.Pid, self, "/none") || p.Runs(cmd.Process.Pid) {
		t.Error("a process that calls itself otherwise runs this program")
	}
	if !p.Runs(cmd.Process.Pid, "/none", sleep) || !p.Runs(os.Getpid(), self) {
		t.Error("a process does not run its own program")
	}
}

// BenchmarkOpeners looks for a device among the processes of a large host: each has twenty files open and fifty mapped,
// ten have the device. It is a copy in files: the true /proc answers a listing more slowly and a link more quickly.
func BenchmarkOpeners(b *testing.B) {
	h, err := New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	const processes = 4000
	var maps strings.Builder
	for i := range 50 {
		fmt.Fprintf(&maps, "7f00000%05x-7f00001%05x r-xp 00000000 fe:00 1234 /usr/lib/x86_64-linux-gnu/libexample.so.%d\n", i, i, i)
	}
	for pid := 1; pid <= processes; pid++ {
		var open []string
		for i := range 20 {
			open = append(open, []string{"socket:[4711]", "/dev/null", "/var/log/x", "anon_inode:[eventpoll]"}[i%4])
		}
		if pid%(processes/10) == 0 {
			open = append(open, "/dev/edu0")
		}
		process(b, h, pid, 1, "x", "0::/system.slice/x.service\n", open...)
		if err := os.WriteFile(fmt.Sprintf("%s/proc/%d/maps", h.Root(), pid), []byte(maps.String()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := spent()
	defer func() { b.ReportMetric((spent()-begin).Seconds()*1000/float64(b.N), "cpu-ms/op") }()
	for b.Loop() {
		all, err := h.Processes().Openers(b.Context(), []accel.DeviceNode{{Path: "/dev/edu0"}, {Path: "/dev/edu1"}}, nil)
		if err != nil || len(all) != 10 {
			b.Fatalf("%d processes, %v", len(all), err)
		}
	}
}
