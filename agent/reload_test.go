package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
)

// The agent follows its configuration: an override, a definition and a request are taken over without a restart, and a
// file that cannot be used changes nothing and is shown.
func TestReload(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	o := options(root, filepath.Join(dir, "config.yaml"))
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(o.ConfigFile, "logLevel: error\n")
	s, problem := Open(o)
	if problem != nil {
		t.Fatal(problem)
	}
	a := reloading(t, o, s)
	eventually := func(what string, holds func(accel.Want) bool) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); !holds(a.loop.Machine().Want); time.Sleep(
			10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: %+v", what, a.loop.Machine().Want.Problem)
			}
		}
	}
	version := func(v string) func(accel.Want) bool {
		return func(w accel.Want) bool { return w.Problem == nil && w.Kinds["qemu-edu"].Driver.Version == v }
	}
	const override = "logLevel: error\nkinds: {qemu-edu: {driver: {version: '3.0.0'}}}\n"
	write(o.ConfigFile, override)
	eventually("an override", version("3.0.0"))
	write(o.ConfigFile, strings.Replace(override, "version", "verzion", 1))
	eventually("a bad file", func(w accel.Want) bool {
		return w.Problem != nil && w.Problem.Reason == accel.ConfigInvalid &&
			w.Kinds["qemu-edu"].Driver.Version == "3.0.0"
	})
	write(o.ConfigFile, override)
	eventually("the file corrected", version("3.0.0"))
	if problem := driver.Ask(s.Host, s.Config.StateDir, "qemu-edu", driver.Request{
		Version: "4.0.0", Over: "3.0.0",
		Asked: time.Now(),
	}); problem != nil {
		t.Fatal(problem)
	}
	eventually("a request", version("4.0.0"))
	definition := filepath.Join(root, "etc/acceld/definitions.d/new.yaml")
	write(definition,
		"kind: example-npu\nresource: example.com/npu\nmatch: [{vendor: f00d, device: '0001'}]\ndriver: {binds: npu, modules: [{name: npu}]}\n")
	eventually("a definition", func(w accel.Want) bool { return w.Problem == nil && w.Kinds["example-npu"] != nil })
	const device = "sys/devices/platform/QEMU0002:00"
	write(filepath.Join(root, device, "uevent"), "MODALIAS=acpi:QEMU0002:\n")
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "sys/bus/platform/devices"), 0o755),
		os.Symlink("../../../devices/platform/QEMU0002:00", filepath.Join(root, "sys/bus/platform/devices/QEMU0002:00")),
	); err != nil {
		t.Fatal(err)
	}
	write(definition,
		"kind: example-npu\nresource: example.com/npu\nmatch: [{subsystem: platform, name: QEMU0002}]\ndriver: {binds: npu, modules: [{name: npu}]}\n")
	eventually("a kind elsewhere, and its devices", func(accel.Want) bool {
		return len(a.loop.Machine().Facts.Devices) == 1
	})
	write(definition, "kind: example-npu\n")
	eventually("a bad definition", func(w accel.Want) bool { return w.Problem != nil && w.Kinds["example-npu"] != nil })
	if err := os.Remove(definition); err != nil {
		t.Fatal(err)
	}
	eventually("a definition that is gone", func(w accel.Want) bool {
		return w.Problem == nil && w.Kinds["example-npu"] == nil
	})
	write(o.ConfigFile, "logLevel: error\n")
	eventually("the configuration has the last word", version(s.BaseKinds["qemu-edu"].Driver.Version))
	write(o.ConfigFile, "logLevel: error\nbuild: {memory: 1Gi}\nkinds: {qemu-edu: {driver: {version: '5.0.0'}}}\n")
	eventually("an option that is read at the start", func(w accel.Want) bool {
		return w.Problem != nil && w.Problem.Reason == accel.ConfigPending && strings.HasSuffix(w.Problem.Message,
			": build") && w.Kinds["qemu-edu"].Driver.Version == "5.0.0"
	})
	write(o.ConfigFile, "logLevel: error\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // it must not end the agent
		t.Fatal(err)
	}
	eventually("SIGHUP", version(s.BaseKinds["qemu-edu"].Driver.Version))
}

// reloading is an agent that follows its configuration, on a machine without anything. It ends with the test.
func reloading(t *testing.T, o SetupOptions, s *Setup) *Agent {
	t.Helper()
	a := bare(t, o, s)
	a.reader = detect.NewTimeoutReader(a.Host, func() {})
	a.loop = loop.New(loop.Options{
		Want: a.Want(), Log: s.Log, SampleEvery: time.Minute, Resync: time.Minute,
		Probes: loop.Probes{
			Facts:        func() accel.Facts { return accel.Facts{Devices: a.reader.Detect().Devices} },
			Read:         func(*accel.Definition, map[string]bool) {},
			Accelerators: func(*accel.Definition, map[string]bool) []accel.Accelerator { return nil },
			Enrich:       func(*accel.Definition, []accel.Accelerator) []accel.Accelerator { return nil },
			Judge: func(*accel.Definition, []accel.PCIDevice, []accel.Accelerator) []accel.Accelerator {
				return nil
			},
			Program: func(string) *accel.ProbeHave { return nil },
			Runtime: func(*accel.Definition, []accel.Accelerator, accel.Want) (accel.RuntimeHave, *accel.Problem) {
				return accel.RuntimeHave{}, nil
			},
		},
		Effects: loop.Effects{Withdraw: func(*accel.Definition) *accel.Problem { return nil }},
	})
	follow(t, a)
	return a
}

// follow runs the loop and what follows the configuration until the test ends.
func follow(t *testing.T, a *Agent) {
	t.Helper()
	a.reloader = &reloader{
		Setup: a.Setup, options: a.o.SetupOptions, want: accel.Want{Kinds: a.Kinds, PoliciesUnknown: a.PoliciesUnknown},
		machine: a.machine, configure: a.loop.Configure, wanted: a.reader.Want, watcher: a.watcher,
	}
	if err := a.reloader.watch(a.ctx); err != nil {
		t.Fatal(err)
	}
	a.group.Go(func() { _ = a.reloader.run(a.ctx) })
	a.group.Go(func() { _ = a.loop.Run(a.ctx) })
}
