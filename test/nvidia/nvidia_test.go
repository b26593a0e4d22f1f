package nvidia

import (
	"encoding/json"
	"fmt"
	"maps"
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
	"github.com/acceld/acceld/test/vm/image"
	"github.com/acceld/acceld/test/vm/kernels"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/vendors"
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

// shipped is the real program with the definition that it brings, on this machine's mirrors of Debian and with a
// builder image.
type shipped struct {
	t            *testing.T
	program, dir string
	mirrors      accel.Mirrors
}

// newShipped takes what puts a builder image into the registry.
func newShipped(t *testing.T, builder func(*image.Registry) error) shipped {
	t.Helper()
	registry, err := image.Serve(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	if err := builder(registry); err != nil {
		t.Fatal(err)
	}
	x := shipped{t: t, dir: t.TempDir(), mirrors: accel.Mirrors{"docker.io": {registry.Address()}}}
	x.program = filepath.Join(x.dir, "acceld")
	if out, err := exec.Command("go", "build", "-o", x.program, "../../cmd/acceld").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return x
}

// distribution is the definition that acceld brings, taking the driver from the distribution.
func distribution(t *testing.T) *accel.Definition {
	t.Helper()
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	def := *defs["nvidia-gpu"]
	def.Driver.Sources = []accel.Source{{Type: accel.SourceDistribution}}
	return &def
}

// mirrors are this machine's, of the repositories that the definition names for a release of Debian, and a file of
// apt's with the same.
func mirrors(t *testing.T, release string) (out accel.Mirrors, apt string) {
	t.Helper()
	out = accel.Mirrors{}
	for _, s := range distribution(t).On(release).Driver.Sources {
		for _, set := range s.Needs {
			for _, r := range set.Each() {
				if out[r.URL] != nil {
					continue
				}
				mirror, err := mirrorOf(t.Context(), r.Suite)
				if err != nil {
					t.Fatal(err)
				}
				out[r.URL] = []string{mirror}
				apt += fmt.Sprintf("deb %s %s main\n", mirror, r.Suite)
			}
		}
	}
	return out, apt
}

// preflight gets the driver for a kernel of a host; want is "version: …" or "branch: …".
func (x shipped) preflight(root, state, release, want string) (driver.PreflightResult, store.Manifest, time.Duration) {
	x.t.Helper()
	named, err := json.Marshal(x.mirrors) // which is YAML too
	if err != nil {
		x.t.Fatal(err)
	}
	config := filepath.Join(x.dir, "config.yaml")
	write(x.t, config, fmt.Sprintf(`stateDir: %s
kinds: {nvidia-gpu: {driver: {%s, sources: [{type: distribution}]}}}
mirrors: %s
`, state, want, named))
	x.t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(root, state)) })
	if err := os.RemoveAll(filepath.Join(root, state)); err != nil {
		x.t.Fatal(err)
	}
	cmd := exec.Command(x.program, "--config", config, "--host-root", root, "driver", "preflight", "nvidia-gpu",
		"--kernel", release, "-o", "json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var results []driver.PreflightResult
	if json.Unmarshal(out, &results) != nil || len(results) != 1 || results[0].Ready != (err == nil) {
		x.t.Fatalf("%v: %s", err, out)
	}
	failed, _ := filepath.Glob(filepath.Join(root, state, "kmod/failed/*.log"))
	for _, name := range failed {
		text, _ := os.ReadFile(name)
		x.t.Logf("%s ends with\n%s", filepath.Base(name), text[max(0, len(text)-3000):])
	}
	var m store.Manifest
	text, err := os.ReadFile(filepath.Join(root, state, "kmod", results[0].Key, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if results[0].Ready && err != nil {
		x.t.Fatal(err)
	}
	return results[0], m, processor(cmd)
}

// TestWholeSource: the definition that acceld brings builds the open modules out of Debian's packages for both kernels,
// twice for the good one, whose headers the host has. With ACCELD_BENCH=1 a plain make compiles the same source beside
// it.
func TestWholeSource(t *testing.T) {
	c, log, pair := bed(t)
	root, err := Root(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	x := newShipped(t, func(r *image.Registry) error { return Builder(t.Context(), c, log, r) })
	repositories, _ := mirrors(t, "debian12")
	maps.Copy(x.mirrors, repositories)
	bad, _, _ := x.preflight(root, "/var/lib/acceld-bad", pair.Newer, "version: "+Version)
	if bad.Ready || bad.Problem.Reason != accel.BuildFailed || !strings.Contains(bad.Problem.Message, Error) {
		t.Errorf("%s: %+v", pair.Newer, bad)
	}
	first, manifest, ours := x.preflight(root, "/var/lib/acceld-one", pair.Older, "version: "+Version)
	if !first.Ready || first.Source != accel.SourceBuild || first.Version != Version || len(manifest.Firmware) != 2 {
		t.Fatalf("%s: %+v, %+v", pair.Older, first, manifest)
	}
	second, again, _ := x.preflight(root, "/var/lib/acceld-two-of-another-length", pair.Older,
		"version: "+Version)
	if second.Key != first.Key || sums(manifest) != sums(again) {
		t.Errorf("two builds differ:\n%+v\n%+v", manifest, again)
	}
	if os.Getenv("ACCELD_BENCH") != "1" {
		return
	}
	plain, used := plainMake(t, root, pair.Older)
	t.Logf("wall: acceld %.0f s, plain make %.0f s, ratio %.3f; processor: %v, %v, ratio %.3f", first.Seconds,
		plain.Seconds(), first.Seconds/plain.Seconds(),
		ours, used, ours.Seconds()/used.Seconds())
}

// TestFromNothing: a host that has the newer kernel, and neither headers nor a compiler, gets the driver of Debian's
// security updates, of which there are no open modules, from the mirrors that its apt uses. It asks for the branch.
func TestFromNothing(t *testing.T) {
	c, log, pair := bed(t)
	full, err := Root(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	version, err := Newest(t.Context(), "bookworm-security", "non-free", "nvidia-kernel-dkms")
	if err != nil {
		t.Fatal(err)
	}
	x := newShipped(t, func(r *image.Registry) error { return Builder(t.Context(), c, log, r) })
	root := bare(t, full, pair.Newer)
	_, apt := mirrors(t, "debian12")
	write(t, filepath.Join(root, "etc/apt/sources.list"), apt)
	got, manifest, _ := x.preflight(root, "/var/lib/acceld", pair.Newer, fmt.Sprintf("branch: %q", accel.BranchOf(version)))
	if !got.Ready || got.Version != version || len(manifest.Modules) < 4 || len(manifest.Firmware) != 2 {
		t.Fatalf("%+v, %+v", got, manifest)
	}
	t.Logf("%s for %s: %.0f s, %d modules, %d files of firmware", version, pair.Newer, got.Seconds, len(manifest.Modules),
		len(manifest.Firmware))
}

// TestDebian13: the same on Debian 13 with its newest kernel. Either the driver is built, or the compiler's own
// sentence says that Debian's source is not for that kernel, as it does in November 2026. Nothing else may be in the
// way.
func TestDebian13(t *testing.T) {
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("fetches and compiles NVIDIA's source: needs ACCELD_TESTBED=1, root and the distribution's archive")
	}
	version, err := Newest(t.Context(), "trixie", "contrib", "nvidia-open-kernel-dkms")
	if err != nil {
		t.Fatal(err)
	}
	var full, release string
	x := newShipped(t, func(r *image.Registry) (err error) {
		full, release, err = Next(t.Context(), t.TempDir(), progress.New(os.Stderr), r)
		return err
	})
	root := bare(t, full, release)
	_, apt := mirrors(t, "debian13")
	write(t, filepath.Join(root, "etc/apt/sources.list"), apt)
	got, manifest, _ := x.preflight(root, "/var/lib/acceld", release, fmt.Sprintf("branch: %q", accel.BranchOf(version)))
	if !got.Ready && got.Problem.Reason == accel.BuildFailed && strings.Contains(got.Problem.Message, Error) {
		t.Logf("%s does not compile for %s: %s", version, release, got.Problem.Message)
		return
	}
	if !got.Ready || got.Version != version || got.Source != accel.SourceBuild || len(manifest.Modules) < 4 ||
		len(manifest.Firmware) != 2 {
		t.Fatalf("%+v, %+v", got, manifest)
	}
	t.Logf("%s for %s: %.0f s, %d modules, %d files of firmware", version, release, got.Seconds, len(manifest.Modules),
		len(manifest.Firmware))
}

// bare is the root of a host that has a kernel and Debian's keys, and neither headers nor a compiler.
func bare(t *testing.T, from, release string) string {
	t.Helper()
	root := t.TempDir()
	const script = `cd "$1"
mkdir -p "$2/etc" "$2/usr/lib" "$2/usr/share/keyrings" "$2/usr/lib/modules" "$2/boot" "$2/var/lib" "$2/var/tmp" "$2/run" "$2/usr/src" "$2/proc" "$2/tmp"
ln -s usr/lib "$2/lib"
cp usr/lib/os-release "$2/usr/lib/"; ln -s ../usr/lib/os-release "$2/etc/os-release"
cp usr/share/keyrings/debian-archive-keyring.gpg "$2/usr/share/keyrings/"
cp boot/*-"$3" "$2/boot/"
cp -r "usr/lib/modules/$3" "$2/usr/lib/modules/"; rm -f "$2/usr/lib/modules/$3/build" "$2/usr/lib/modules/$3/source"`
	if out, err := exec.Command("sh", "-euc", script, "sh", from, root, release).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return root
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
func sums(m store.Manifest) string {
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
