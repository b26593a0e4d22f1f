// Package bench measures what a build by acceld costs beside a plain make of the same source on the same machine: the
// copy of the source, the scope, the checks and the store.
package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host"
)

// rounds is how often each contender runs; they take turns.
const rounds = 7

// TestBuildAgainstMake builds the edu driver, for which every millisecond counts: it compiles in about two seconds, a
// GPU's takes minutes.
func TestBuildAgainstMake(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
	found, _ := filepath.Glob("/lib/modules/*/build/Module.symvers")
	if len(found) == 0 {
		t.Fatal("no kernel headers are installed: /lib/modules/*/build is not there")
	}
	headers := filepath.Dir(found[0])
	source, err := filepath.Abs("../../edu/module")
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for the user who builds
		t.Fatal(err)
	}
	def := &accel.Definition{Kind: "qemu-edu", Driver: accel.DriverDefinition{
		Binds: "edu", Modules: []accel.Module{{Name: "edu"}},
		Sources: []accel.Source{{Type: accel.SourceBuild, Path: source, System: accel.BuildKbuild}},
	}}
	facts := accel.Facts{Kernel: accel.Kernel{
		Release: filepath.Base(filepath.Dir(headers)), Version: "#1",
		Arch: "x86_64", Headers: headers,
	}}
	contenders := map[string]func(round int) error{
		"plain make": func(round int) error {
			work := filepath.Join(dir, fmt.Sprint("plain", round))
			if err := os.CopyFS(work, os.DirFS(source)); err != nil {
				return err
			}
			// At the priority that a build by acceld has, so that what else runs on the machine slows both alike.
			return exec.Command("nice", "-n", "19", "make", "-C", headers, "M="+work,
				fmt.Sprintf("-j%d", runtime.NumCPU()), "modules").Run()
		},
		"acceld": func(round int) error {
			d := driver.New(h, driver.Options{
				StateDir: filepath.Join(dir, fmt.Sprint("state", round)), CPUWeight: 20,
				BuildMemory: 4 << 30,
			})
			if _, problem := d.Sources().Build(t.Context(), def, facts); problem != nil {
				return problem
			}
			return nil
		},
		"acceld, from the store": func(round int) error {
			d := driver.New(h, driver.Options{StateDir: filepath.Join(dir, fmt.Sprint("state", round))})
			if _, problem := d.Sources().Build(t.Context(), def, facts); problem != nil {
				return problem
			}
			return nil
		},
	}
	names := []string{"plain make", "acceld", "acceld, from the store"}
	took := map[string][]time.Duration{}
	for round := range rounds {
		for _, name := range names {
			start := time.Now()
			if err := contenders[name](round); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			took[name] = append(took[name], time.Since(start))
		}
	}
	for _, name := range names {
		slices.Sort(took[name])
		t.Logf("%-24s median %8v, fastest %8v", name, took[name][rounds/2].Round(time.Millisecond),
			took[name][0].Round(time.Millisecond))
	}
	t.Logf("acceld / plain make: median %.3f, fastest %.3f", ratio(took, rounds/2), ratio(took, 0))
}

func ratio(took map[string][]time.Duration, i int) float64 {
	return took["acceld"][i].Seconds() / took["plain make"][i].Seconds()
}
