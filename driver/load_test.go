package driver

import (
	"context"
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/test/ko"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestLoadLooksAgain: a load takes account of what happened since the driver was chosen.
func TestLoadLooksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*testMachine, *Driver, *kmod.Plan)
		want      accel.Reason
	}{
		"another build was loaded": {func(m *testMachine, _ *Driver, _ *kmod.Plan) {
			m.Live(ko.Module{Name: "base", BuildID: "ff"})
		}, accel.OtherModuleLoaded},
		"it brought the machine down twice": {func(m *testMachine, d *Driver, p *kmod.Plan) {
			m.Write(path.Join(d.o.StateDir, "attempts", p.ID+".json"),
				`{"open": true, "bootID": "boot-0", "unclean": 1}`)
		}, accel.Quarantined},
	} {
		m := newMachine(t)
		d := m.driver(Options{})
		def := pair(m)
		p, _, problem := d.sources.Acquire(t.Context(), def, m.Facts(), source.Options{})
		if problem != nil {
			t.Fatal(problem)
		}
		c.meanwhile(m, d, p)
		_, problem = d.load(t.Context(), def, m.Facts(), m.accs(), p)
		p.Close()
		if problem == nil || problem.Reason != c.want || len(m.loads) > 0 {
			t.Errorf("%s: %v, loads %v", name, problem, m.loads)
		}
	}
}

// TestRacedLoad: a module that somebody else loads at the same moment is as good as ours if it is the same. Nothing
// is loaded on top of a different one.
func TestRacedLoad(t *testing.T) {
	for build, c := range map[string]struct {
		want  accel.Reason
		loads []string
	}{
		"aa": {"", []string{"base", "edu"}},
		"ff": {accel.OtherModuleLoaded, []string{"base"}},
	} {
		m := newMachine(t)
		def := pair(m)
		m.onLoad = func(name string) {
			if name == "base" {
				m.Live(ko.Module{Name: name, BuildID: build, Version: "1.0.0"})
			}
		}
		have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
		if c.want == "" && (problem != nil || !have.Serves) || c.want != "" &&
			(problem == nil || problem.Reason != c.want) {
			t.Errorf("build %s: %+v %v", build, have, problem)
		}
		if diff := cmp.Diff(c.loads, m.loads); diff != "" {
			t.Errorf("build %s:\n%s", build, diff)
		}
	}
}

// TestOptionalModule: a driver works without an optional module that the kernel refuses, but not if that module hangs
// in the kernel.
func TestOptionalModule(t *testing.T) {
	for name, c := range map[string]struct {
		end   error
		want  accel.Reason
		loads []string
	}{
		"refused": {syscall.ENOMEM, "", []string{"base", "edu"}},
		"hangs":   {context.DeadlineExceeded, accel.LoadTimeout, []string{"base"}},
	} {
		m := newMachine(t)
		m.Install("updates/base.ko", ko.Module{Name: "base", BuildID: "aa"})
		m.Install("updates/edu.ko", ko.Edu())
		def := ko.Definition()
		def.Driver.Modules = []accel.Module{{Name: "base", Optional: true}, {Name: "edu"}}
		m.refuse["base"] = c.end
		have, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs())
		if c.want == "" && (problem != nil || !have.Serves) || c.want != "" &&
			(problem == nil || problem.Reason != c.want) {
			t.Errorf("%s: %+v %v", name, have, problem)
		}
		if diff := cmp.Diff(c.loads, m.loads); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestLateModuleIsPurged: a module that became live after its timeout still belongs to acceld.
func TestLateModuleIsPurged(t *testing.T) {
	m := newMachine(t)
	m.Install("updates/edu.ko", ko.Edu())
	m.hang = true
	if _, problem := m.driver(Options{LoadTimeout: 30 * time.Millisecond}).Ensure(t.Context(), ko.Definition(),
		m.Facts(), m.accs()); problem == nil || problem.Reason != accel.LoadTimeout {
		t.Fatal(problem)
	}
	m.hang = false
	m.Live(ko.Edu())
	if out, problem := m.driver(Options{}).Purge(t.Context(),
		PurgeOptions{Kinds: m.kinds(ko.Definition())}); problem != nil || m.isLive("edu") {
		t.Errorf("it is still loaded: %+v %v", out, problem)
	}
}
