package bench

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jaypipes/ghw"
	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host"
)

// rounds is how often each contender runs; they take turns, so that a noisy moment hits all alike.
const rounds = 31

func BenchmarkDetect(b *testing.B) {
	h, err := host.New(makeTree(b))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if f := detect.Detect(h, detect.Options{Names: true}); len(f.PCI) != functions {
			b.Fatalf("%d functions, want %d: %q", len(f.PCI), functions, f.Problems)
		}
	}
}

// contender is one way to do the work: how long it took, and for a process the most memory it used, else what it
// allocates.
type contender struct {
	name    string
	run     func() time.Duration
	command []string // empty in process
	took    []time.Duration
}

func TestDetectAgainstLspci(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
	lspci, err := exec.LookPath("lspci")
	if err != nil {
		t.Fatal("lspci (pciutils) is not installed")
	}
	root := makeTree(t)
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "detect")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	process := func(marker string, command ...string) *contender {
		return &contender{command: command, run: func() time.Duration {
			start := time.Now()
			out, err := exec.Command(command[0], command[1:]...).Output()
			took := time.Since(start)
			if n := bytes.Count(out, []byte(marker)); err != nil || n != functions {
				t.Fatalf("%q told of %d functions, want %d: %v", command, n, functions, err)
			}
			return took
		}}
	}
	inside := func(o detect.Options) *contender {
		return &contender{run: func() time.Duration {
			start := time.Now()
			if f := detect.Detect(h, o); len(f.PCI) != functions || len(f.Modules) != modules || len(f.Problems) != 0 {
				t.Fatalf("incomplete: %d functions, %d modules, %q", len(f.PCI), len(f.Modules), f.Problems)
			}
			return time.Since(start)
		}}
	}
	library := &contender{run: func() time.Duration {
		start := time.Now()
		quiet := ghw.WithLogger(slog.New(slog.DiscardHandler))
		info, err := ghw.PCI(ghw.WithChroot(root), ghw.WithDisableTools(), ghw.WithDisableTopology(), quiet)
		if err != nil || len(info.Devices) != functions {
			t.Fatalf("ghw: %+v, %v", info, err)
		}
		return time.Since(start)
	}}
	all := []*contender{
		process("Slot:", lspci, "-vmmk", "-A", "linux-sysfs", "-O", "sysfs.path="+root+"/sys/bus/pci"),
		inside(detect.Options{}), inside(detect.Options{Names: true}),
		process(`"address"`, program, root), process(`"address"`, program, "names", root), library,
	}
	for i, name := range []string{
		"lspci -vmmk", "Detect, in process", "Detect with names, in process", "Detect, as a process",
		"Detect with names, as a process", "ghw.PCI, in process",
	} {
		all[i].name = name
	}
	for i := range rounds + 2 {
		for _, c := range all {
			took := c.run()
			if i >= 2 { // the first two warm the caches
				c.took = append(c.took, took)
			}
		}
	}
	base := median(all[0].took)
	for _, c := range all {
		m := median(c.took)
		t.Logf("%-32s median %8s  ratio to lspci %.2f  peak RSS %-9s  allocates %s",
			c.name, m.Round(10*time.Microsecond), float64(m)/float64(base), peak(t, c.command), c.allocates())
	}
	for _, c := range all[1:3] {
		if m := median(c.took); m > base {
			t.Errorf("%s took %s, lspci %s", c.name, m, base)
		}
	}
}

// allocates returns what one run in this process allocates.
func (c *contender) allocates() string {
	if c.command != nil {
		return "-"
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.run()
	runtime.ReadMemStats(&after)
	return fmt.Sprintf("%d kB", (after.TotalAlloc-before.TotalAlloc)>>10)
}

// peak returns the most memory that a command used, as the kernel says while the command waits to write its last page
// of output. The usage that wait(2) gives is of no use here: it includes the memory of this process before the exec.
func peak(t *testing.T, command []string) string {
	if len(command) == 0 {
		return "-"
	}
	cmd := exec.Command(command[0], command[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := out.(*os.File); ok {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, 4096) // a larger pipe measures a little earlier
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hwm := "unknown"
	for buf := make([]byte, 4096); ; {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // gone when it has ended
		for line := range strings.SplitSeq(string(status), "\n") {
			if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				hwm = strings.TrimSpace(v)
			}
		}
		if _, err := out.Read(buf); err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return hwm
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
