package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// workshop is this machine with a real make, a source tree and headers whose Makefile does what a test says.
type workshop struct {
	t                      *testing.T
	h                      *host.Host
	state, source, headers string
}

func newWorkshop(t *testing.T, makefile string) *workshop {
	t.Helper()
	for _, program := range []string{"make", "gcc", "ld"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("program %q is not installed", program)
		}
	}
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{t: t, h: h, state: t.TempDir(), source: t.TempDir(), headers: t.TempDir()}
	w.write(w.source, "edu.c", "int x;\n")
	w.write(w.source, "made.ko", "what an earlier build left")
	w.write(w.headers, "good.bin", string(edu().bytes()))
	w.write(w.headers, "Makefile", "modules:\n\t@echo run >> "+w.headers+"/runs\n\t@"+strings.ReplaceAll(makefile, "\n", "\n\t@")+"\n")
	return w
}

func (w *workshop) write(dir, name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workshop) runs() int {
	b, _ := os.ReadFile(filepath.Join(w.headers, "runs"))
	return strings.Count(string(b), "run")
}

func (w *workshop) definition() *accel.Definition {
	def := eduDefinition()
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: w.source}}
	return def
}

func (w *workshop) facts() accel.Facts {
	return accel.Facts{Kernel: accel.Kernel{Release: testRelease, Version: "#1", Arch: "x86_64", Headers: w.headers}}
}

const goodMake = `cp good.bin $(M)/edu.ko`

func TestBuildFails(t *testing.T) {
	other := edu()
	other.vermagic = "5.0 SMP"
	for _, c := range []struct {
		name, makefile, version string
		want                    accel.Reason
		says                    string
	}{
		{"compiler", `echo "$(M)/edu.c:1:2: error: bad" >&2; exit 1`, "", accel.BuildFailed, "edu.c:1:2: error: bad; log: "},
		{"no module", `true`, "", accel.BuildFailed, `made no module "edu"`},
		{"half a module", `head -c 200 good.bin > $(M)/edu.ko`, "", accel.ModuleInvalid, "not a whole ELF file"},
		{"other version", goodMake, "2.0.0", accel.SourceMissing, `is of version "1.0.0", wanted is "2.0.0"`},
		{"other kernel", `cp other.bin $(M)/edu.ko`, "", accel.KernelMismatch, `built for kernel "5.0"`},
		{"disk", `echo "x.c: fatal error: error writing: No space left on device"; exit 1`, "", accel.NoSpace, "No space left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkshop(t, c.makefile)
			w.write(w.headers, "other.bin", string(other.bytes()))
			d := New(w.h, Options{StateDir: w.state})
			def := w.definition()
			def.Driver.Version = c.version
			_, problem := d.Build(t.Context(), def, w.facts())
			if problem == nil || problem.Reason != c.want || !strings.Contains(problem.Message, c.says) {
				t.Fatalf("got %v, want %s with %q", problem, c.want, c.says)
			}
			w.isClean(0)
			if logs, _ := filepath.Glob(w.state + "/kmod/failed/*.log"); len(logs) != 1 || !strings.Contains(problem.Message, logs[0]) {
				t.Errorf("the log is not kept: %v, %s", logs, problem.Message)
			}
		})
	}
}

// isClean checks that no half state is left and that the store has so many entries.
func (w *workshop) isClean(entries int) {
	w.t.Helper()
	if left, _ := os.ReadDir(w.state + "/build"); len(left) != 0 {
		w.t.Errorf("the build left %v", left)
	}
	all, err := New(w.h, Options{StateDir: w.state}).List()
	if err != nil || len(all) != entries {
		w.t.Errorf("the store has %+v, %v", all, err)
	}
}

func TestBuildOnce(t *testing.T) {
	w := newWorkshop(t, `sleep 0.2; test ! -e $(M)/made.ko; `+goodMake)
	var all sync.WaitGroup
	keys := make([]string, 4)
	for i := range keys {
		all.Go(func() {
			e, problem := New(w.h, Options{StateDir: w.state}).Build(context.Background(), w.definition(), w.facts())
			if problem != nil {
				t.Error(problem)
			}
			keys[i] = e.Key
		})
	}
	all.Wait()
	if w.runs() != 1 || keys[0] == "" || keys[0] != keys[3] {
		t.Errorf("%d builds, keys %v", w.runs(), keys)
	}
	// Neither headers nor compiler are asked for what is there.
	if err := os.RemoveAll(w.headers); err != nil {
		t.Fatal(err)
	}
	d := New(w.h, Options{StateDir: w.state})
	if e, problem := d.Build(t.Context(), w.definition(), w.facts()); problem != nil || e.Key != keys[0] {
		t.Fatal(e, problem)
	}
	w.isClean(1)
	// Another byte of source, another argument or another kernel is another driver.
	w.write(w.source, "edu.c", "int y;\n")
	if _, problem := d.Build(t.Context(), w.definition(), w.facts()); problem == nil || problem.Reason != accel.HeadersMissing {
		t.Error(problem)
	}
	st, err := os.Stat(w.state + "/kmod/" + keys[0])
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Error(st.Mode(), err)
	}
}

func TestBuildTimeout(t *testing.T) {
	w := newWorkshop(t, `echo $$$$ > pid; exec sleep 600`)
	d := New(w.h, Options{StateDir: w.state, BuildTimeout: 500 * time.Millisecond})
	start := time.Now()
	_, problem := d.Build(t.Context(), w.definition(), w.facts())
	if problem == nil || problem.Reason != accel.BuildTimeout || time.Since(start) > 10*time.Second {
		t.Fatal(problem, time.Since(start))
	}
	pid, err := os.ReadFile(w.headers + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	// A child of make that was killed may be a zombie until its new parent looks.
	status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/status")
	if err == nil && !strings.Contains(string(status), "State:\tZ") {
		t.Errorf("the compiler outlived its time: %s", status)
	}
	w.isClean(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, problem := d.Build(ctx, w.definition(), w.facts()); problem == nil {
		t.Error("a build that was called off succeeded")
	}
}

func TestBuildRepairsAnEntry(t *testing.T) {
	w := newWorkshop(t, goodMake)
	d := New(w.h, Options{StateDir: w.state})
	e, problem := d.Build(t.Context(), w.definition(), w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	w.write(e.Path, "manifest.json", "{")
	if all, err := d.List(); err != nil || len(all) != 1 || all[0].Problem == "" {
		t.Fatal(all, err)
	}
	if again, problem := d.Build(t.Context(), w.definition(), w.facts()); problem != nil || again.Key != e.Key {
		t.Fatal(again, problem)
	}
	w.isClean(1)
	if w.runs() != 2 {
		t.Error(w.runs())
	}
}

// TestSweep leaves a build as a crash does, and one at work.
func TestSweep(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	m.write(d.buildDir()+"/dead/work/a.c", "x")
	m.write(d.buildDir()+"/dead.lock", "")
	m.write(d.buildDir()+"/deader/work/a.c", "x")
	m.write(d.buildDir()+"/alive/work/a.c", "x")
	release, err := m.h.TryLock(d.buildDir()+"/alive.lock", "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	m.driver(Options{})
	var left []string
	for _, name := range m.h.Glob(d.buildDir(), "*") {
		left = append(left, filepath.Base(name))
	}
	if fmt.Sprint(left) != "[alive alive.lock]" {
		t.Error(left)
	}
}

func TestCopyTree(t *testing.T) {
	m := newMachine(t)
	m.write("/a/x.c", "1")
	m.write("/a/sub/y.c", "2")
	if err := os.Symlink("sub/y.c", m.path("/a/link.c")); err != nil {
		t.Fatal(err)
	}
	sum := func(to string) string {
		t.Helper()
		if err := m.h.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := copyTree(m.h, "/a", to)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := sum("/1")
	if b, err := os.ReadFile(m.path("/1/link.c")); err != nil || string(b) != "2" {
		t.Error(string(b), err)
	}
	for _, junk := range []string{"x.o", ".x.o.cmd", "edu.ko", "edu.mod", "edu.mod.c", "Module.symvers", "modules.order", ".git/HEAD"} {
		m.write("/a/"+junk, "junk")
	}
	if err := os.Chtimes(m.path("/a/x.c"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if sum("/2") != first {
		t.Error("what a build left changes the digest")
	}
	m.write("/a/shipped.o", "vendor's")
	second := sum("/3")
	if second == first {
		t.Error("an object that the vendor ships does not count")
	}
	if err := os.Chmod(m.path("/a/x.c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if sum("/4") == second {
		t.Error("a file that becomes executable does not count")
	}
	if err := os.Symlink("../../etc/shadow", m.path("/a/sub/out")); err != nil {
		t.Fatal(err)
	}
	if _, err := copyTree(m.h, "/a", "/1"); err == nil {
		t.Error("a link out of the tree was copied")
	}
	m.write("/empty/.git/x", "")
	if _, err := copyTree(m.h, "/empty", "/1"); err == nil {
		t.Error("an empty tree was copied")
	}
}

func TestReasonOfDisk(t *testing.T) {
	m := newMachine(t)
	m.write("/src/a.c", "x")
	m.write("/var/lib/acceld", "a file where the directory should be")
	d := m.driver(Options{})
	def := eduDefinition()
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
	if _, problem := d.Build(t.Context(), def, m.facts()); problem == nil {
		t.Error("no problem")
	}
	if p := problemOf(errors.Join(errors.New("x"), &os.PathError{Op: "write", Path: "/x", Err: errNoSpace()}), "cannot write"); p.Reason != accel.NoSpace {
		t.Error(p)
	}
}

// TestBuildInAnotherRoot builds as the agent in a container does: the machine's root is not its own, and make runs
// inside the machine's.
func TestBuildInAnotherRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the root directory needs root")
	}
	w := newWorkshop(t, `test -e /proc/self/root/$(M)/edu.c; `+goodMake)
	h, err := host.New("/proc/self/root") // the machine's root by another name
	if err != nil {
		t.Fatal(err)
	}
	w.h = h
	d := New(w.h, Options{StateDir: w.state})
	e, problem := d.Build(t.Context(), w.definition(), w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	if a := d.useEntry(w.definition(), w.facts(), e); a.verdict != satisfied {
		t.Error(a.problem)
	} else {
		a.plan.close()
	}
	w.isClean(1)
}
