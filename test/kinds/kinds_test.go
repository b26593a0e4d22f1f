package kinds

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/test/machines"
	"github.com/acceld/acceld/vendors"
)

var update = flag.Bool("update", false, "write the golden files")

// view is what acceld makes of one kind on one machine.
type view struct {
	Accelerators []accel.Accelerator `json:"accelerators"`
	Unreadable   string              `json:"unreadable,omitempty"`
	Driver       accel.DriverHave    `json:"driver"`
	Problem      string              `json:"problem,omitempty"`
	Runtime      string              `json:"runtime,omitempty"`
	Spec         json.RawMessage     `json:"spec,omitempty"`
}

func definitions(t *testing.T) map[string]*accel.Definition {
	t.Helper()
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	return defs
}

// look does what the agent does, without changing more than the copy.
func look(t *testing.T, h *host.Host, def *accel.Definition, facts accel.Facts) view {
	t.Helper()
	var v view
	v.Accelerators = detect.Accelerators(h, def, facts.PCI)
	for i, a := range v.Accelerators {
		metrics, err := detect.Collect(h, def, a)
		if err != nil {
			v.Unreadable = err.Error()
		}
		v.Accelerators[i].Metrics = metrics
	}
	have, problem := driver.New(h, driver.Options{}).Probe(def, facts, v.Accelerators)
	v.Driver = have
	if problem != nil {
		v.Problem = string(problem.Reason) + ": " + problem.Message
	}
	run, problem := runtime.New(h, runtime.Options{}).Apply(def, v.Accelerators, accel.Want{CDI: true})
	if problem != nil {
		v.Runtime = string(problem.Reason) + ": " + problem.Message
		return v
	}
	if run.Spec == "" {
		return v
	}
	spec, err := h.ReadFile(run.Spec)
	if err != nil {
		t.Fatal(err)
	}
	v.Spec = spec
	return v
}

// TestGolden compares each kind's view of each machine that has a device of it.
func TestGolden(t *testing.T) {
	defs := definitions(t)
	for _, name := range []string{
		"nvidia", "amd", "amd-parts", "amd-radeon", "intel", "intel-parts", "habana", "gaudi",
		"mixed", "qemu-edu", "aws", "amd-npu", "intel-npu", "qualcomm", "tenstorrent", "hailo", "alveo",
	} {
		t.Run(name, func(t *testing.T) {
			h := machines.Unpack(t, name)
			facts := detect.Detect(h, detect.Options{})
			views := map[string]view{}
			for kind, def := range defs {
				if v := look(t, h, def, facts); len(v.Accelerators) > 0 {
					views[kind] = v
				}
			}
			golden(t, name, views)
		})
	}
}

// golden compares a value with the file of that name, or writes it there with -update.
func golden(t *testing.T, name string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("-golden +got\n%s", diff)
	}
}

// TestEveryTemplate fills every template of every definition on machines of four distributions.
func TestEveryTemplate(t *testing.T) {
	for _, name := range []string{"nvidia", "amd", "intel", "mixed", "incomplete"} {
		facts := detect.Detect(machines.Unpack(t, name), detect.Options{})
		for kind, def := range definitions(t) {
			facts.Cluster = accel.Cluster{Version: "1.37"}
			expanded, problem := template.Expand(def, facts)
			if problem != nil {
				t.Errorf("%s on %s: %v", kind, name, problem)
				continue
			}
			if faults := vendors.Validate(expanded); len(faults) > 0 {
				t.Errorf("%s on %s: %v", kind, name, faults)
			}
		}
	}
}

// TestOneKindEach holds every function of every machine to at most one kind that gives it out; kinds that come after
// that one add to it.
func TestOneKindEach(t *testing.T) {
	defs := definitions(t)
	resources := map[string]string{}
	for kind, def := range defs {
		if other := resources[def.Resource]; other != "" {
			t.Errorf("%s and %s have the resource %q", kind, other, def.Resource)
		}
		resources[def.Resource] = kind
	}
	for _, name := range machines.Names(t) {
		pci, _ := detect.PCI(machines.Unpack(t, name))
		for _, d := range pci {
			var kinds []string
			for _, kind := range slices.Sorted(maps.Keys(defs)) {
				if defs[kind].Recognises(d) && len(defs[kind].After) == 0 {
					kinds = append(kinds, kind)
				}
			}
			if len(kinds) > 1 {
				t.Errorf("%s of %s is of the kinds %v", d.Address, name, kinds)
			}
		}
	}
}

// TestSharedDirectory looks at kinds whose nodes are in one directory: no node is given out by two of them.
func TestSharedDirectory(t *testing.T) {
	h := machines.Unpack(t, "mixed")
	facts := detect.Detect(h, detect.Options{})
	owner := map[string]string{}
	for kind, def := range definitions(t) {
		for _, a := range detect.Accelerators(h, def, facts.PCI) {
			for _, n := range a.Nodes {
				if len(def.After) > 0 {
					continue
				}
				if owner[n.Path] != "" {
					t.Errorf("%s is of %s and of %s %s", n.Path, owner[n.Path], kind, a.ID)
				}
				owner[n.Path] = kind + " " + a.ID
			}
		}
	}
	if owner["/dev/dri/renderD129"] != "amd-gpu 0000:03:00.0" ||
		owner["/dev/dri/renderD130"] != "nvidia-gpu 0000:41:00.0" {
		t.Errorf("render nodes: %v", owner)
	}
}

// TestNodeOfOneDevice looks at all machines: a kind that is on gives no node to two devices.
func TestNodeOfOneDevice(t *testing.T) {
	for _, name := range machines.Names(t) {
		h := machines.Unpack(t, name)
		pci, _ := detect.PCI(h)
		owner := map[string]string{}
		for kind, def := range definitions(t) {
			if len(def.After) > 0 || def.Enabled != nil && !*def.Enabled {
				continue
			}
			for _, a := range detect.Accelerators(h, def, pci) {
				for _, n := range a.Nodes {
					if other := owner[n.Path]; other != "" {
						t.Errorf("%s: %s is of %s and of %s %s", name, n.Path, other, kind, a.ID)
					}
					owner[n.Path] = kind + " " + a.ID
				}
			}
		}
	}
}

// TestLibraryOfAnotherVersion refuses user space that the loaded driver cannot work with.
func TestLibraryOfAnotherVersion(t *testing.T) {
	h := machines.Unpack(t, "nvidia")
	if err := h.WriteFile("/sys/module/nvidia/version", []byte("575.57.08\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	v := look(t, h, definitions(t)["nvidia-gpu"], detect.Detect(h, detect.Options{}))
	if !strings.HasPrefix(v.Runtime,
		string(accel.LibraryMismatch)+`: library "libcuda.so.1" of the host is "/usr/lib64/libcuda.so.580.95.05"`) {
		t.Errorf("got %q", v.Runtime)
	}
}
