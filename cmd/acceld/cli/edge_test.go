package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/runtime/engine"
)

// opened returns the parts of a command on a fake machine.
func opened(t *testing.T, m *hosttest.Machine) *parts {
	t.Helper()
	var cmd cobra.Command
	cmd.SetContext(t.Context())
	p, problem := (&common{
		hostRoot: m.Host.Root(), config: filepath.Join(t.TempDir(), "config.yaml"), console: &console{out: os.Stderr},
	}).open(&cmd)
	if problem != nil {
		t.Fatal(problem)
	}
	p.Log = slog.New(slog.DiscardHandler)
	return p
}

// TestEnginesKnown: each name of --engine is that of a container runtime whose files acceld can read.
func TestEnginesKnown(t *testing.T) {
	m := hosttest.New(t)
	for _, name := range choices()["engine"] {
		if e, ok := detect.EngineNamed(m.Host, name); !ok || engine.RowOf(e.Name).Name == "" {
			t.Errorf("%s has a row in detect/layout.go (%t), and %q none in runtime/engine/rows.go", name, ok, e.Name)
		}
	}
}

// TestResetWhole: a part of a device is not reset, nor is the whole device because of it. All devices of a fabric
// must be named.
func TestResetWhole(t *testing.T) {
	m := hosttest.New(t)
	for _, id := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
		m.AddPCI(accel.PCIDevice{Address: id, Class: "00ff00", Vendor: "1234", Device: "11e8"})
	}
	p := opened(t, m)
	well := accel.Health{State: accel.Healthy}
	r := &reset{parts: p, facts: accel.Facts{PCI: []accel.PCIDevice{
		{Address: "0000:01:00.0", Class: "00ff00", Vendor: "1234", Device: "11e8"},
		{Address: "0000:02:00.0", Class: "00ff00", Vendor: "1234", Device: "11e8"},
		{Address: "0000:03:00.0", Class: "00ff00", Vendor: "1234", Device: "11e8"},
	}}}
	r.machine.Have = map[string]accel.Have{"qemu-edu": {Accelerators: []accel.Accelerator{
		{
			ID: "0000:01:00.0", Health: well,
			Partitions: []accel.Accelerator{{ID: "0000:01:00.0-half-p0", Parent: "0000:01:00.0"}},
		},
		{ID: "0000:02:00.0", Health: well, Fabric: "f"},
		{ID: "0000:03:00.0", Health: well, Fabric: "f"},
	}}}
	if got, problem := r.target("0000:01:00.0-half-p0"); problem == nil || problem.Reason != accel.CannotReset {
		t.Errorf("a part: %+v, %v", got, problem)
	}
	if got, problem := r.target("0000:01:00.0"); problem != nil || got.Device.ID != "0000:01:00.0" ||
		len(got.Linked) != 0 {
		t.Errorf("the whole: %+v, %v", got, problem)
	}
	if got, problem := r.target("0000:02:00.0"); problem != nil ||
		!slices.Equal(got.Linked, []string{"0000:02:00.0", "0000:03:00.0"}) {
		t.Errorf("one of a fabric: %+v, %v", got, problem)
	}
}

// TestResetAgainst: everything that prevents a reset is found, whichever source knows it.
func TestResetAgainst(t *testing.T) {
	const id = "0000:01:00.0"
	reasons := func(r *reset, plans ...driver.ResetPlan) (all []accel.Reason) {
		for _, p := range r.against(t.Context(), plans) {
			all = append(all, p.Reason)
		}
		return all
	}
	p := opened(t, hosttest.New(t))
	target := driver.ResetTarget{Def: &accel.Definition{Kind: "qemu-edu"}, Device: accel.Accelerator{ID: id}}
	plan := driver.ResetPlan{ResetTarget: target}
	kubelet := accel.Facts{Kubelet: accel.Kubelet{Present: true}}
	silent := &reset{parts: p, facts: kubelet, targets: []driver.ResetTarget{target}}
	if got := reasons(silent, plan); !slices.Contains(got, accel.ProbeUnanswered) {
		t.Errorf("a kubelet and no agent: %v", got)
	}
	silent.facts.Kubelet.Present = false
	if got := reasons(silent, plan); slices.Contains(got, accel.ProbeUnanswered) || slices.Contains(got, accel.InUse) {
		t.Errorf("neither kubelet nor agent: %v", got)
	}
	held := &reset{
		parts: p, facts: kubelet, targets: []driver.ResetTarget{target},
		agent: answering(t, "Fri, 02 Jan 2026 03:04:05 GMT", `{"`+id+`": [{"namespace": "ml", "pod": "train-0"}]}`,
			accel.Machine{}),
	}
	if got := reasons(held, plan); !slices.Contains(got, accel.InUse) || slices.Contains(got, accel.ProbeUnanswered) {
		t.Errorf("a pod that has no process on it: %v", got)
	}
}
