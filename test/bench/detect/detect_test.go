package bench

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

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

// contender is one way to do the work: how long it took and the most memory it used, 0 where not known.
type contender struct {
	name string
	run  func() (time.Duration, int64)
	took []time.Duration
	kib  int64
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
	process := func(marker string, name string, args ...string) func() (time.Duration, int64) {
		return func() (time.Duration, int64) {
			var out bytes.Buffer
			cmd := exec.Command(name, args...)
			cmd.Stdout = &out
			start := time.Now()
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			if n := bytes.Count(out.Bytes(), []byte(marker)); n != functions {
				t.Fatalf("%s told of %d functions, want %d", name, n, functions)
			}
			usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			return took, usage.Maxrss
		}
	}
	inside := func(o detect.Options) func() (time.Duration, int64) {
		return func() (time.Duration, int64) {
			start := time.Now()
			if f := detect.Detect(h, o); len(f.PCI) != functions || len(f.Modules) != modules || len(f.Problems) != 0 {
				t.Fatalf("incomplete: %d functions, %d modules, %q", len(f.PCI), len(f.Modules), f.Problems)
			}
			return time.Since(start), 0
		}
	}
	all := []*contender{
		{name: "lspci -vmmk", run: process("Slot:", lspci, "-vmmk", "-A", "linux-sysfs", "-O", "sysfs.path="+root+"/sys/bus/pci")},
		{name: "Detect, in process", run: inside(detect.Options{})},
		{name: "Detect with names, in process", run: inside(detect.Options{Names: true})},
		{name: "Detect, as a process", run: process(`"address"`, program, root)},
		{name: "Detect with names, as a process", run: process(`"address"`, program, "names", root)},
	}
	for i := range rounds + 2 {
		for _, c := range all {
			took, kib := c.run()
			if i >= 2 { // the first two warm the caches
				c.took, c.kib = append(c.took, took), max(c.kib, kib)
			}
		}
	}
	base := median(all[0].took)
	for _, c := range all {
		m := median(c.took)
		t.Logf("%-32s median %8s  ratio to lspci %.2f  peak RSS %d KiB", c.name, m.Round(10*time.Microsecond), float64(m)/float64(base), c.kib)
	}
	for _, c := range all[1:3] {
		if m := median(c.took); m > base {
			t.Errorf("%s took %s, lspci %s", c.name, m, base)
		}
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
