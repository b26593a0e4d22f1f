package driver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

// witness records progress reports, each as one line.
type witness struct {
	mu    sync.Mutex
	lines []string
}

func (w *witness) see(p accel.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%s %s %d/%d %d/%d", p.Kind, p.Stage, p.Step, p.Steps, p.Done, p.Total)
	if p.Guessed {
		line += "?"
	}
	if p.What != "" {
		line += " " + p.What
	}
	if p.Ended {
		line += " ended"
	}
	if p.Problem != "" {
		line += ": " + p.Problem
	}
	if p.Since.IsZero() {
		line += " at no time"
	}
	w.lines = append(w.lines, line)
}

// take returns the reports since the last call.
func (w *witness) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.lines
	w.lines = nil
	return out
}

// TestStagesOfABuild: the first build of a kind does not know how many commands it will run. Later builds expect as
// many as the previous one ran, until they run more.
func TestStagesOfABuild(t *testing.T) {
	w := newWorkshop(t, `cat $(M)/says; `+goodMake)
	var all witness
	d := New(w.h, Options{StateDir: w.state, Progress: all.see})
	builds := []struct {
		says  string
		stage accel.Stage // "" for all
		want  []string
	}{
		{"  CC [M]  a.o\na warning\n  LD [M]  edu.o\n", "", []string{
			"qemu-edu copy 1/0 0/0 SOURCE", "qemu-edu copy 1/0 0/0 SOURCE ended",
			"qemu-edu build 2/3 0/0", "qemu-edu build 2/3 0/0 make", "qemu-edu build 2/3 1/0 CC [M] a.o",
			"qemu-edu build 2/3 2/0 LD [M] edu.o",
			"qemu-edu build 2/3 2/2 LD [M] edu.o ended",
			"qemu-edu finish 3/3 0/1", "qemu-edu finish 3/3 0/1 edu", "qemu-edu finish 3/3 1/1",
			"qemu-edu finish 3/3 1/1 ended",
		}},
		{"  CC [M]  a.o\n  CC [M]  b.o\n  LD [M]  edu.o\n", accel.StageBuild, []string{
			"qemu-edu build 2/3 0/2?", "qemu-edu build 2/3 0/2? make", "qemu-edu build 2/3 1/2? CC [M] a.o",
			"qemu-edu build 2/3 2/2? CC [M] b.o",
			"qemu-edu build 2/3 3/0 LD [M] edu.o", "qemu-edu build 2/3 3/3 LD [M] edu.o ended",
		}},
		{"  CC [M]  a.o\n", accel.StageBuild, []string{
			"qemu-edu build 2/3 0/3?", "qemu-edu build 2/3 0/3? make", "qemu-edu build 2/3 1/3? CC [M] a.o",
			"qemu-edu build 2/3 1/1 CC [M] a.o ended",
		}},
	}
	for i, c := range builds {
		w.write(w.source, "says", c.says)
		if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem != nil {
			t.Fatal(problem)
		}
		got := slices.DeleteFunc(all.take(), func(l string) bool {
			return c.stage != "" && !strings.Contains(l, string(c.stage)+" ")
		})
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], w.source, "SOURCE")
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("build %d, -want +got:\n%s", i, diff)
		}
	}
	// A driver in the store is not built, and a build that fails reports it at its end.
	if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem != nil || len(all.take()) != 2 {
		t.Error("a driver of the store was built:", problem)
	}
	w.write(w.headers, "Makefile", "modules:\n\t@echo '  CC [M]  a.o'; echo '"+w.source+
		"/a.c:1:2: error: bad'; exit 1\n")
	w.write(w.source, "says", "")
	_, problem := d.sources.Build(t.Context(), w.definition(), w.facts())
	got := all.take()
	if problem == nil || !strings.HasPrefix(got[len(got)-1], "qemu-edu build 2/3 1/1? CC [M] a.o ended: ") ||
		!strings.Contains(got[len(got)-1], "error: bad") {
		t.Errorf("%v: %q", problem, got)
	}
}

// TestStagesOfDKMS: each program that DKMS would run is one step.
func TestStagesOfDKMS(t *testing.T) {
	w := newWorkshop(t, `echo '  CC [M]  a.o'; `+goodMake)
	w.write(w.source, "dkms.conf",
		"PACKAGE_NAME=edu\nPACKAGE_VERSION=1.0.0\nBUILT_MODULE_NAME[0]=edu\nDEST_MODULE_LOCATION[0]=/updates\nMAKE[0]=\"make -C $kernel_source_dir M=$dkms_tree/edu/1.0.0/build modules\"\nPRE_BUILD=\"pre.sh\"\n")
	w.write(w.source, "pre.sh", "#!/bin/sh\ntrue\n")
	if err := w.h.Chmod(w.source+"/pre.sh", 0o755); err != nil {
		t.Fatal(err)
	}
	var all witness
	d := New(w.h, Options{StateDir: w.state, Progress: all.see})
	if _, problem := d.sources.Build(t.Context(), w.definition(), w.facts()); problem != nil {
		t.Fatal(problem)
	}
	got := slices.DeleteFunc(all.take(), func(l string) bool { return !strings.Contains(l, " build ") })
	if diff := cmp.Diff([]string{
		"qemu-edu build 2/4 0/0", "qemu-edu build 2/4 0/0 PRE_BUILD", "qemu-edu build 3/4 0/0 MAKE",
		"qemu-edu build 3/4 1/0 CC [M] a.o", "qemu-edu build 3/4 1/1 CC [M] a.o ended",
	}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestStageOfWaiting: a wait for another acceld names the process that holds the lock.
func TestStageOfWaiting(t *testing.T) {
	m := newMachine(t)
	release, problem := m.driver(Options{}).locks.Driver(t.Context(), "")
	if problem != nil {
		t.Fatal(problem)
	}
	var all witness
	d := m.driver(Options{Progress: func(p accel.Progress) {
		if all.see(p); p.Stage == accel.StageWait && !p.Ended {
			release()
		}
	}})
	m.enter(d, ko.Edu(), 1)
	if _, problem := d.Ensure(t.Context(), ko.Definition(), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	got := all.take()
	if len(got) < 2 || !strings.HasPrefix(got[0], "qemu-edu wait 0/0 0/0 process ") || got[1] != got[0]+" ended" {
		t.Errorf("%q", got)
	}
}

// TestStagesOfLoads: loads and upgrades report modules and the self-test.
func TestStagesOfLoads(t *testing.T) {
	m, _ := serving(t)
	var all witness
	d := m.driver(Options{Progress: all.see})
	if _, problem := d.Upgrade(t.Context(), wants("2.0.0"), m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	if diff := cmp.Diff([]string{
		"qemu-edu unload 0/0 0/1", "qemu-edu unload 0/0 0/1 edu", "qemu-edu unload 0/0 1/1",
		"qemu-edu unload 0/0 1/1 ended",
		"qemu-edu load 0/0 0/1", "qemu-edu load 0/0 0/1 edu", "qemu-edu load 0/0 1/1", "qemu-edu load 0/0 1/1 ended",
		"qemu-edu prove 0/0 0/0 " + ko.Device, "qemu-edu prove 0/0 0/0 " + ko.Device + " ended",
	}, all.take()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCalledOff: an interrupted pull ends at once, and no further source is asked.
func TestCalledOff(t *testing.T) {
	s := newShop(t)
	def := fromShop(s)
	s.stock(t, def, ko.Edu(), nil, nil)
	def.Driver.Sources = append(def.Driver.Sources, accel.Source{Type: accel.SourceBuild, Path: "/src"})
	m := newMachine(t)
	m.Write("/src/edu.c", "int x;\n")
	var all witness
	d := m.driver(Options{Progress: all.see})
	for name, work := range map[string]func(context.Context) *accel.Problem{
		"ensure": func(ctx context.Context) *accel.Problem {
			_, problem := d.Ensure(ctx, def, m.Facts(), m.accs())
			return problem
		},
		"preflight": func(ctx context.Context) *accel.Problem {
			return d.Preflight(ctx, def, m.Facts(), PreflightOptions{}).Problem
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		s.spoil = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			cancel()
			<-r.Context().Done()
		}
		began := time.Now()
		problem := work(ctx)
		got := all.take()
		if problem == nil || time.Since(began) > 5*time.Second || len(got) != 2 ||
			!strings.HasPrefix(got[1], got[0]+" ended: ") ||
			!strings.HasPrefix(got[0], "qemu-edu pull 0/0 0/0 "+s.host()+"/edu:v-") {
			t.Errorf("%s: %v: %q", name, problem, got)
		}
	}
}
