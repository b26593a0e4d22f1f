package driver

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

const otherRelease = "6.1.0-other"

func otherKernel() accel.Facts {
	return accel.Facts{Kernel: accel.Kernel{
		Release: otherRelease, Version: "#2 SMP", BuildID: "bb", Arch: "x86_64",
		NotRunning: true, Headers: "/usr/src/h",
	}}
}

// TestPreflightChecks judges an installed driver by the other kernel's own files only, ignoring everything that is
// live.
func TestPreflightChecks(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(m *testMachine, e *ko.Module)
		want    accel.Reason
		message string
	}{
		"well": {func(*testMachine, *ko.Module) {}, "", ""},
		"a live module of the name": {func(m *testMachine, _ *ko.Module) {
			m.Write("/sys/module/edu/initstate", "live\n")
		}, "", ""},
		"another kernel's": {func(_ *testMachine, e *ko.Module) {
			e.Vermagic = ko.Release + " " + ko.Flags
		}, accel.KernelMismatch, `built for kernel "6.1.0-test", wanted is "6.1.0-other"`},
		"symbol version": {func(_ *testMachine, e *ko.Module) {
			e.CRCs["pci_read"] = 7
		}, accel.SymbolMismatch, `"pci_read"`},
		"symbol that only the running kernel has": {func(m *testMachine, e *ko.Module) {
			m.Write("/proc/kallsyms", "0 T gone\n")
			e.Undefined = append(e.Undefined, "gone")
		}, accel.SymbolMissing, `"gone"`},
		"dependency that only is live": {func(m *testMachine, e *ko.Module) {
			m.Write("/sys/module/helper/initstate", "live\n")
			e.Info = append(e.Info, "depends=helper")
		}, accel.DependencyMissing, `"helper"`},
		"dependency": {func(m *testMachine, e *ko.Module) {
			e.Info = append(e.Info, "depends=helper")
			m.Write("/lib/modules/"+otherRelease+"/modules.dep", "extra/edu.ko: extra/helper.ko\nextra/helper.ko:\n")
			m.Write("/lib/modules/"+otherRelease+"/extra/helper.ko",
				string(ko.Module{Name: "helper", Vermagic: otherRelease + " " + ko.Flags}.Bytes()))
		}, "", ""},
		"unsigned": {func(*testMachine, *ko.Module) {}, accel.Unsigned, "unsigned"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			e := ko.Edu()
			e.Vermagic = otherRelease + " " + ko.Flags
			e.Undefined, e.CRCs = []string{"pci_read"}, map[string]uint32{"pci_read": 1}
			m.Write("/lib/modules/"+otherRelease+"/modules.dep", "extra/edu.ko:\n")
			m.Write("/usr/src/h/Module.symvers", "0x00000001\tpci_read\tvmlinux\tEXPORT_SYMBOL\t\n")
			c.change(m, &e)
			m.Write("/lib/modules/"+otherRelease+"/extra/edu.ko", string(e.Bytes()))
			facts := otherKernel()
			facts.Kernel.SigEnforce = name == "unsigned"
			r := m.driver(Options{}).Preflight(t.Context(), ko.Definition(), facts, PreflightOptions{})
			if r.Ready != (c.want == "") || r.Problem != nil && (r.Problem.Reason != c.want ||
				!strings.Contains(r.Problem.Message, c.message)) {
				t.Errorf("%+v, want %s with %q", r, c.want, c.message)
			}
			if r.Ready && r.Source != accel.SourceInstalled {
				t.Error(r)
			}
			if len(m.loads) > 0 {
				t.Error("the kernel was asked to load", m.loads)
			}
		})
	}
}

// TestPreflightBuilds builds for a kernel that is not running, and then that kernel boots.
func TestPreflightBuilds(t *testing.T) {
	other := ko.Edu()
	other.Vermagic = otherRelease + " " + ko.Flags
	w := newWorkshop(t, `cp other.bin $(M)/edu.ko`)
	w.write(w.headers, "other.bin", string(other.Bytes()))
	facts := otherKernel()
	facts.Kernel.Headers = w.headers
	d := New(w.h, Options{StateDir: w.state})
	r := d.Preflight(t.Context(), w.definition(), facts, PreflightOptions{Discard: true})
	if !r.Ready || r.Source != accel.SourceBuild || r.Key != "" || r.Version != "1.0.0" {
		t.Errorf("%+v", r)
	}
	w.isClean(0)
	kept := d.Preflight(t.Context(), w.definition(), facts, PreflightOptions{})
	if !kept.Ready || kept.Key == "" {
		t.Fatalf("%+v", kept)
	}
	if again := d.Preflight(t.Context(), w.definition(), facts,
		PreflightOptions{Discard: true}); again.Source != accel.SourceStore || again.Key != kept.Key {
		t.Errorf("%+v", again)
	}
	w.isClean(1)
	running := facts
	running.Kernel.NotRunning, running.Kernel.BootID = false, "b"
	if found, err := d.store.Find(w.definition(), running.Kernel); err != nil || len(found) != 1 ||
		found[0].Key != kept.Key {
		t.Error("the boot does not find it", found, err)
	}
	running.Kernel.BuildID = "cc" // the same release, built again
	if found, _ := d.store.Find(w.definition(), running.Kernel); len(found) != 0 {
		t.Error("another build of the release finds it", found)
	}
	untold := facts
	untold.Kernel.BuildID = "" // a kernel image with an unsupported compression
	if r := d.Preflight(t.Context(), w.definition(), untold, PreflightOptions{}); !r.Ready || r.Key == kept.Key {
		t.Errorf("%+v", r)
	}
	if found, _ := d.store.Find(w.definition(), running.Kernel); len(found) != 1 {
		t.Error("the boot does not find what is known by uname -v", found)
	}
	if w.runs() != 3 {
		t.Error(w.runs())
	}
}

func TestPreflightFails(t *testing.T) {
	w := newWorkshop(t, `echo "$(M)/edu.c:1:2: error: too few arguments to function 'f'"; exit 1`)
	facts := otherKernel()
	facts.Kernel.Headers = w.headers
	d := New(w.h, Options{StateDir: w.state})
	r := d.Preflight(t.Context(), w.definition(), facts, PreflightOptions{})
	if r.Ready || r.Problem.Reason != accel.BuildFailed || !strings.Contains(r.Problem.Message, "too few arguments") ||
		len(r.Problem.Tried) != 3 {
		t.Errorf("%+v", r)
	}
	facts.Kernel.BuildID, facts.Kernel.Version = "", ""
	if r := d.Preflight(t.Context(), w.definition(), facts, PreflightOptions{}); r.Ready ||
		r.Problem.Reason != accel.KernelUnknown {
		t.Errorf("%+v", r)
	}
}
