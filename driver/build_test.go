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
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/ko"
)

// workshop is a machine with a real make, a source tree, and headers whose Makefile does what a test says.
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
	for _, dir := range []string{filepath.Dir(w.headers), w.headers} { // readable for the unprivileged user that builds
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	w.write(w.headers, "runs", "")
	if err := os.Chmod(filepath.Join(w.headers, "runs"), 0o666); err != nil { // each build runs as another user
		t.Fatal(err)
	}
	w.write(w.source, "edu.c", "int x;\n")
	w.write(w.source, "made.ko", "what an earlier build left")
	w.write(w.headers, "good.bin", string(ko.Edu().Bytes()))
	w.write(w.headers, "Makefile", "modules:\n\t@echo run >> "+w.headers+"/runs\n\t@"+strings.ReplaceAll(makefile, "\n",
		"\n\t@")+"\n")
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
	def := ko.Definition()
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: w.source}}
	return def
}

func (w *workshop) facts() accel.Facts {
	return accel.Facts{Kernel: accel.Kernel{Release: ko.Release, Version: "#1", Arch: "x86_64", Headers: w.headers}}
}

const goodMake = `cp good.bin $(M)/edu.ko`

func TestBuildFails(t *testing.T) {
	other := ko.Edu()
	other.Vermagic = "5.0 SMP"
	for _, c := range []struct {
		name, makefile, version string
		want                    accel.Reason
		says                    string
	}{
		{
			"compiler", `echo "$(M)/edu.c:1:2: error: bad" >&2; exit 1`, "", accel.BuildFailed,
			"edu.c:1:2: error: bad; log: ",
		},
		{"no module", `true`, "", accel.BuildFailed, `made no module "edu"`},
		{"half a module", `head -c 200 good.bin > $(M)/edu.ko`, "", accel.ModuleInvalid, "not a whole ELF file"},
		{"other version", goodMake, "2.0.0", accel.SourceMissing, `is of version "1.0.0", wanted is "2.0.0"`},
		{"other kernel", `cp other.bin $(M)/edu.ko`, "", accel.KernelMismatch, `built for kernel "5.0"`},
		{
			"disk", `echo "x.c: fatal error: error writing: No space left on device"; exit 1`, "", accel.NoSpace,
			"No space left",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkshop(t, c.makefile)
			w.write(w.headers, "other.bin", string(other.Bytes()))
			d := New(w.h, Options{StateDir: w.state})
			def := w.definition()
			def.Driver.Version = c.version
			_, problem := d.sources.Build(t.Context(), def, w.facts())
			if problem == nil || problem.Reason != c.want || !strings.Contains(problem.Message, c.says) {
				t.Fatalf("got %v, want %s with %q", problem, c.want, c.says)
			}
			w.isClean(0)
			if logs, _ := filepath.Glob(w.state + "/kmod/failed/*.log"); len(logs) != 1 ||
				!strings.Contains(problem.Message, logs[0]) {
				t.Errorf("the log is not kept: %v, %s", logs, problem.Message)
			}
		})
	}
}

// isClean checks that no partial state is left and that the store has this many entries.
func (w *workshop) isClean(entries int) {
	w.t.Helper()
	if left, _ := os.ReadDir(w.state + "/build"); len(left) != 0 {
		w.t.Errorf("the build left %v", left)
	}
	all, err := New(w.h, Options{StateDir: w.state}).store.List()
	if err != nil || len(all) != entries {
		w.t.Errorf("the store has %+v, %v", all, err)
	}
}

// TestBuildOfAnotherModule: a definition gains a module, and nothing else changes. The entry without the module, though
// it is the current one, keeps neither the build nor the entry with the module from being used.
func TestBuildOfAnotherModule(t *testing.T) {
	w := newWorkshop(t, goodMake+`; cp extra.bin $(M)/extra.ko`)
	extra := ko.Edu()
	extra.Name, extra.BuildID = "extra", strings.Repeat("e", 40)
	w.write(w.headers, "extra.bin", string(extra.Bytes()))
	d := New(w.h, Options{StateDir: w.state})
	def, facts := w.definition(), w.facts()
	acquire := func(from accel.SourceType, modules, runs int) *store.Generation {
		t.Helper()
		p, tried, problem := d.sources.Acquire(t.Context(), def, facts, source.Options{})
		if problem != nil {
			t.Fatal(problem, tried)
		}
		defer p.Close()
		if p.Source != from || len(p.Modules) != modules || w.runs() != runs {
			t.Fatalf("%d modules from %q after %d builds", len(p.Modules), p.Source, w.runs())
		}
		return store.GenerationOf(p, def)
	}
	first := acquire(accel.SourceBuild, 1, 1)
	if err := d.store.Choose(def.Kind, facts.Kernel, d.store.Choice(def.Kind, facts.Kernel).Serve(first)); err != nil {
		t.Fatal(err)
	}
	def.Driver.Modules = append(def.Driver.Modules, accel.Module{Name: "extra"})
	acquire(accel.SourceBuild, 2, 2)
	acquire(accel.SourceStore, 2, 2)
	w.isClean(2)
}

func TestBuildOnce(t *testing.T) {
	w := newWorkshop(t, `sleep 0.2; test ! -e $(M)/made.ko; `+goodMake)
	var all sync.WaitGroup
	keys := make([]string, 4)
	for i := range keys {
		all.Go(func() {
			e, problem := New(w.h, Options{StateDir: w.state}).sources.Build(context.Background(), w.definition(),
				w.facts())
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
	// Neither headers nor compiler are needed for what is already in the store.
	if err := os.RemoveAll(w.headers); err != nil {
		t.Fatal(err)
	}
	d := New(w.h, Options{StateDir: w.state})
	if e, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem != nil || e.Key != keys[0] {
		t.Fatal(e, problem)
	}
	w.isClean(1)
	// Changed source, another argument or another kernel makes another driver.
	w.write(w.source, "edu.c", "int y;\n")
	if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem == nil ||
		problem.Reason != accel.HeadersMissing {
		t.Error(problem)
	}
	st, err := os.Stat(w.state + "/kmod/" + keys[0])
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Error(st.Mode(), err)
	}
}

func TestBuildTimeout(t *testing.T) {
	sleep := fmt.Sprintf("6%06d", os.Getpid())
	w := newWorkshop(t, `setsid sleep `+sleep+` & exec sleep `+sleep)
	d := New(w.h, Options{StateDir: w.state, BuildTimeout: 500 * time.Millisecond})
	start := time.Now()
	_, problem := d.sources.Build(t.Context(), w.definition(), w.facts())
	if problem == nil || problem.Reason != accel.BuildTimeout || time.Since(start) > 10*time.Second {
		t.Fatal(problem, time.Since(start))
	}
	w.isGone(sleep)
	w.isClean(0)
	ctx, cancel := context.WithCancel(t.Context())
	d = New(w.h, Options{StateDir: w.state, Progress: func(p accel.Progress) {
		if p.Done > 0 {
			cancel()
		}
	}})
	w.write(w.headers, "Makefile", "modules:\n\t@echo '  CC [M] x.o'; setsid sleep "+sleep+" & exec sleep "+sleep+"\n")
	start = time.Now()
	if _, problem := d.sources.Build(ctx, w.definition(), w.facts()); problem == nil ||
		!strings.Contains(problem.Message, "called off") || time.Since(start) > 10*time.Second {
		t.Error("a build that was called off:", problem)
	}
	w.isGone(sleep)
	w.isClean(0)
}

// isGone checks that no process with this argument is alive: a killed build would leave its grandchild behind.
func (w *workshop) isGone(argument string) {
	w.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), argument) && os.Geteuid() == 0 {
			w.t.Errorf("%s outlived the build: %q", file, b)
		}
	}
}

// TestBuildWithoutRights checks, from inside a build, what it may do.
func TestBuildWithoutRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving up rights needs root")
	}
	w := newWorkshop(t, `test $$(id -u) -gt 1879048191; test -w $(M)/edu.c; ! cat /etc/shadow 2>/dev/null; ! ls `+
		"$(M)/../entry"+` 2>/dev/null; test $$(grep -c : /proc/net/dev) = 1; test $$(nice) = 19; touch "$$TMPDIR/x"; `+
		goodMake)
	if _, problem := New(w.h, Options{StateDir: w.state}).sources.Build(t.Context(), w.definition(),
		w.facts()); problem != nil {
		b, _ := filepath.Glob(w.state + "/kmod/failed/*")
		t.Fatal(problem, b)
	}
	st, err := os.Stat(w.state + "/kmod")
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Error("the store is open", st, err)
	}
}

func TestBuildOutOfMemory(t *testing.T) {
	w := newWorkshop(t,
		`dd if=/dev/zero of=/dev/null bs=300M count=1 2>/dev/null || { echo "cc1: out of memory allocating 9 bytes"; exit 1; }; `+goodMake)
	d := New(w.h, Options{StateDir: w.state, BuildMemory: 64 << 20})
	if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem == nil ||
		problem.Reason != accel.BuildOutOfMemory {
		t.Error(problem)
	}
	w.isClean(0)
}

func TestBuildRepairsAnEntry(t *testing.T) {
	w := newWorkshop(t, goodMake)
	d := New(w.h, Options{StateDir: w.state})
	e, problem := d.sources.Build(t.Context(), w.definition(), w.facts())
	if problem != nil {
		t.Fatal(problem)
	}
	w.write(e.Path, "manifest.json", "{")
	if all, err := d.store.List(); err != nil || len(all) != 1 || all[0].Problem == "" {
		t.Fatal(all, err)
	}
	if again, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem != nil || again.Key != e.Key {
		t.Fatal(again, problem)
	}
	w.isClean(1)
	if w.runs() != 2 {
		t.Error(w.runs())
	}
}

// TestSweep has one build that a crash left behind, and one in progress.
func TestSweep(t *testing.T) {
	m := newMachine(t)
	d := m.driver(Options{})
	m.Write(d.store.BuildDir()+"/dead/work/a.c", "x")
	m.Write(d.store.BuildDir()+"/dead.lock", "")
	m.Write(d.store.BuildDir()+"/deader/work/a.c", "x")
	m.Write(d.store.BuildDir()+"/alive/work/a.c", "x")
	release, err := m.Host.Locks().Try(d.store.BuildDir()+"/alive.lock", "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	m.driver(Options{})
	var left []string
	for _, name := range m.Host.Glob(d.store.BuildDir(), "*") {
		left = append(left, filepath.Base(name))
	}
	if fmt.Sprint(left) != "[alive alive.lock]" {
		t.Error(left)
	}
}

func TestReasonOfDisk(t *testing.T) {
	m := newMachine(t)
	m.Write("/src/a.c", "x")
	m.Write("/var/lib/acceld", "a file where the directory should be")
	d := m.driver(Options{})
	def := ko.Definition()
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
	if _, problem := d.sources.Build(t.Context(), def, m.Facts()); problem == nil {
		t.Error("no problem")
	}
	if p := accel.ProblemOf(errors.Join(errors.New("x"), &os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}),
		"cannot write"); p.Reason != accel.NoSpace {
		t.Error(p)
	}
}

// TestBuildInAnotherRoot builds like an agent in a container: the machine's root is not its own, and make runs in the
// machine's root.
func TestBuildInAnotherRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the root directory needs root")
	}
	w := newWorkshop(t, `test -e /proc/self/root/$(M)/edu.c; `+goodMake)
	h, err := host.New("/proc/self/root") // another path to the machine's root
	if err != nil {
		t.Fatal(err)
	}
	w.h = h
	d := New(w.h, Options{StateDir: w.state})
	if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem != nil {
		t.Fatal(problem)
	}
	if a := ask(t, d, w.definition(), w.facts(), accel.SourceStore); a.Verdict != source.Satisfied {
		t.Error(a.Problem)
	} else {
		a.Plan.Close()
	}
	w.isClean(1)
}
