package agent

import (
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/health"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/vendors"
)

// TestKernelLogOfVendors: lines as the drivers write them, by the rules of the built-in definitions.
func TestKernelLogOfVendors(t *testing.T) {
	defs, problem := vendors.Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	const id = "0000:3b:00.0"
	for _, c := range []struct {
		kind, line string
		state      accel.HealthState
		action     accel.Action
		code       string
	}{
		{
			"nvidia-gpu",
			"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			accel.Unhealthy, accel.ActionReboot, "79",
		},
		{
			"nvidia-gpu",
			"NVRM: Xid (PCI:0000:3b:00): 13, pid=2280636, name=python3, Graphics Exception: ESR 0x50df30=0x107000e",
			accel.Healthy, "", "13",
		},
		{
			"nvidia-gpu", "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 95, pid=77, name=a,b, Uncontained: LTC TAG",
			accel.Unhealthy, accel.ActionResetDevice, "95",
		},
		{
			"nvidia-gpu",
			"NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 94, pid=77, name=x, Contained: CE User Channel",
			accel.Healthy, "", "94",
		},
		{
			"nvidia-gpu",
			"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
			accel.Unhealthy, accel.ActionResetDevice, "154",
		},
		{
			"nvidia-gpu",
			"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
			accel.Unhealthy, accel.ActionReboot, "154",
		},
		{
			"nvidia-gpu",
			"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
			accel.Healthy, "", "154",
		},
		{
			"nvidia-gpu",
			"NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 07 (0x00000004 0x80000000 0x00000000)",
			accel.Degraded, "", "145",
		},
		{"nvidia-gpu", "NVRM: Xid (PCI:0000:3b:00): 174, something new", accel.Healthy, "", "174"},
		{"nvidia-gpu", "NVRM: Xid (PCI:0000:5c:00): 79, GPU has fallen off the bus.", accel.Healthy, "", ""},
		{"amd-gpu", "amdgpu 0000:3b:00.0: amdgpu: GPU reset(3) failed", accel.Unhealthy, accel.ActionReboot, "reset"},
		{"amd-gpu", "amdgpu 0000:3b:00.0: amdgpu: GPU reset(3) succeeded!", accel.Healthy, "", "reset"},
		{
			"amd-gpu", "amdgpu 0000:3b:00.0: amdgpu: socket: 0 2 uncorrectable hardware errors detected in gfx block",
			accel.Healthy, "", "uncorrectable",
		},
		{
			"amd-gpu", "amdgpu 0000:3b:00.0: amdgpu: socket: 0 0 uncorrectable hardware errors detected in gfx block",
			accel.Healthy, "", "",
		},
		{"qemu-edu", "edu 0000:3b:00.0: EDU-ERR 79: does not answer", accel.Unhealthy, accel.ActionResetDevice, "79"},
	} {
		def := defs[c.kind]
		if def == nil {
			t.Fatalf("no definition %q", c.kind)
		}
		lines := make(chan host.KmsgRecord, 1)
		e := health.New(health.Options{
			Host: hosttest.New(t).Host, File: "/run/acceld/health.json",
			Definitions: func() map[string]*accel.Definition { return map[string]*accel.Definition{c.kind: def} },
		})
		lines <- host.KmsgRecord{
			Sequence: 7, Level: 3, Boot: time.Second, Text: c.line,
			Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:" + id},
		}
		close(lines)
		e.Follow(lines)
		a := e.Judge(def, nil, []accel.Accelerator{{ID: id, Health: accel.Health{State: accel.Healthy}}})[0]
		code := ""
		if len(a.Faults) > 0 {
			code = a.Faults[0].Code
		}
		if a.Health.State != c.state || a.Health.Action != c.action || code != c.code {
			t.Errorf("%s:\n%+v, code %q; want %s, %q, code %q", c.line, a.Health, code, c.state, c.action, c.code)
		}
	}
}
