package nvidia

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/kernels"
	"github.com/acceld/acceld/test/vm/progress"
)

// bed needs root, because the files of a Debian belong to root, the archive, and the two kernels.
func bed(t *testing.T) (cache.Dir, *progress.Log, kernels.Pair) {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("fetches and compiles NVIDIA's source: needs ACCELD_TESTBED=1, root and the distribution's archive")
	}
	log := progress.New(os.Stderr)
	c, err := cache.Open(log.Say)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := Kernels(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	if !pair.Both() {
		t.Log(pair.Lost())
		t.Skip(
			"the distribution's archive no longer has two kernels of which the driver's source compiles for one alone, and the cache has none")
	}
	return c, log, pair
}

// TestRealSubset compiles the smallest part of NVIDIA's source that breaks, for the kernel that it is for and for the
// one after it.
func TestRealSubset(t *testing.T) {
	c, log, pair := bed(t)
	source, err := Source(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	for release, want := range map[string]string{pair.Older: "", pair.Newer: Error} {
		t.Run(release, func(t *testing.T) {
			root, dir, err := Headers(t.Context(), c, log, release)
			if err != nil {
				t.Fatal(err)
			}
			place := filepath.Join(root, "var/tmp")
			work, err := os.MkdirTemp(place, "acceld-nvidia")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(work) })
			if err := os.Chmod(work, 0o755); err != nil { // for the user who builds
				t.Fatal(err)
			}
			if err := Subset(source, "../edu/module", filepath.Join(work, "edu")); err != nil {
				t.Fatal(err)
			}
			h, err := host.New(root)
			if err != nil {
				t.Fatal(err)
			}
			inside := "/" + strings.TrimPrefix(strings.TrimPrefix(work, root), "/")
			def := &accel.Definition{Kind: "qemu-edu", Driver: accel.DriverDefinition{
				Binds: "edu", Modules: []accel.Module{{Name: "edu"}},
				Sources: []accel.Source{{Type: accel.SourceBuild, Path: inside + "/edu"}},
			}}
			facts := accel.Facts{Kernel: accel.Kernel{
				Release: release, Version: "#1", Arch: "x86_64", Headers: dir,
				NotRunning: true,
			}}
			d := driver.New(h, driver.Options{StateDir: inside + "/state"})
			build := func(how string) {
				t.Helper()
				start := time.Now()
				_, problem := d.Sources().Build(t.Context(), def, facts)
				t.Logf("%s: took %v: %v", how, time.Since(start).Round(time.Second), problem)
				if want == "" && problem != nil || want != "" &&
					(problem == nil || problem.Reason != accel.BuildFailed || !strings.Contains(problem.Message,
						want)) {
					t.Errorf("%s: got %v, want %q", how, problem, want)
				}
			}
			if release == pair.Newer { // once is enough: it is what takes the time
				build("probing itself")
			}
			if err := Probe(t.Context(), c, log, filepath.Join(work, "edu"), release); err != nil {
				t.Fatal(err)
			}
			build("probed before")
			if left, _ := os.ReadDir(filepath.Join(work, "state/build")); len(left) > 0 {
				t.Errorf("the build left %v", left)
			}
		})
	}
}

const definition = `kind: nvidia-gpu
title: NVIDIA GPU
resource: nvidia.com/gpu
match:
  - {vendor: "10de", class: "0302"}
driver:
  version: "` + Version + `"
  binds: nvidia
  modules: [{name: nvidia}, {name: nvidia_uvm}, {name: nvidia_modeset}, {name: nvidia_drm}]
  sources:
    - type: build
      path: /usr/src/nvidia-{{.DriverVersion}}
      system: make
      make: ["KERNEL_UNAME={{.KernelVersion}}"]
`

// TestWholeSource answers for both kernels by the real program, twice for the good one, and compiles the same source
// with a plain make beside it.
func TestWholeSource(t *testing.T) {
	c, log, pair := bed(t)
	root, err := Root(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "acceld")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/acceld").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, filepath.Join(root, "etc/acceld/definitions.d/nvidia.yaml"), definition)
	preflight := func(state, release string) (driver.PreflightResult, string, time.Duration) {
		t.Helper()
		write(t, filepath.Join(dir, "config.yaml"), "stateDir: "+state+"\n")
		t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(root, state)) })
		if err := os.RemoveAll(filepath.Join(root, state)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "--config", filepath.Join(dir, "config.yaml"), "--host-root", root,
			"driver", "preflight", "nvidia-gpu", "--kernel", release, "-o", "json")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		var results []driver.PreflightResult
		if json.Unmarshal(out, &results) != nil || len(results) != 1 || results[0].Ready != (err == nil) {
			t.Fatalf("%v: %s", err, out)
		}
		manifest, _ := os.ReadFile(filepath.Join(root, state, "kmod", results[0].Key, "manifest.json"))
		return results[0], string(manifest), processor(cmd)
	}
	bad, _, _ := preflight("/var/lib/acceld-bad", pair.Newer)
	if bad.Ready || bad.Problem.Reason != accel.BuildFailed || !strings.Contains(bad.Problem.Message, Error) {
		t.Errorf("%s: %+v", pair.Newer, bad)
	}
	first, manifest, ours := preflight("/var/lib/acceld-one", pair.Older)
	if !first.Ready || first.Source != accel.SourceBuild || first.Key == "" || first.Version != Version {
		t.Fatalf("%s: %+v", pair.Older, first)
	}
	second, again, _ := preflight("/var/lib/acceld-two-of-another-length", pair.Older)
	if second.Key != first.Key || sums(t, manifest) != sums(t, again) {
		t.Errorf("two builds differ:\n%s\n%s", manifest, again)
	}
	plain, used := plainMake(t, root, pair.Older)
	t.Logf("wall: acceld %.0f s, plain make %.0f s, ratio %.3f; processor: %v, %v, ratio %.3f", first.Seconds,
		plain.Seconds(), first.Seconds/plain.Seconds(),
		ours, used, ours.Seconds()/used.Seconds())
}

// plainMake compiles the source as its README says.
func plainMake(t *testing.T, root, release string) (wall, used time.Duration) {
	t.Helper()
	work := filepath.Join(root, "var/tmp/plain")
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	if out, err := exec.Command("cp", "-r", filepath.Join(root, "usr/src/nvidia-"+Version),
		work).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command("nice", "-n", "19", "chroot", root, "make", "-j2", "-C", "/var/tmp/plain",
		"KERNEL_UNAME="+release, "modules")
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-2000):])
	}
	return time.Since(start), processor(cmd)
}

// processor is the time that a program and those that it waited for used.
func processor(cmd *exec.Cmd) time.Duration {
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return 0
}

// sums are the digests of a manifest's modules.
func sums(t *testing.T, manifest string) string {
	t.Helper()
	var m store.Manifest
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range m.Modules {
		out = append(out, s.Name+" "+s.SHA256)
	}
	return strings.Join(out, "\n")
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
