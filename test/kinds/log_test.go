package kinds

import (
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/health"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

// TestKernelLines gives the rules of a kind lines as its driver writes them, one after the other: what is left said of
// the device, and what was counted. The sources of the lines are those that the definition names.
func TestKernelLines(t *testing.T) {
	const id = "0000:3b:00.0"
	defs := definitions(t)
	for _, c := range []struct {
		name, kind string
		lines      []string
		state      accel.HealthState
		action     accel.Action
		code       string // the one that was counted first
	}{
		{
			"the driver resets it", "amd-gpu",
			[]string{
				"amdgpu 0000:3b:00.0: amdgpu: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
			},
			accel.Unhealthy, accel.ActionResetDevice, "reset",
		},
		{
			"the same in newer kernels", "amd-gpu",
			[]string{"amdgpu 0000:3b:00.0: {4}Uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!"},
			accel.Unhealthy, accel.ActionResetDevice, "reset",
		},
		{"and that went well", "amd-gpu", []string{
			"amdgpu 0000:3b:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
			"amdgpu 0000:3b:00.0: amdgpu: GPU reset(2) succeeded!",
		}, accel.Healthy, "", "reset"},
		{"and that went wrong", "amd-gpu", []string{
			"amdgpu 0000:3b:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
			"amdgpu 0000:3b:00.0: amdgpu: GPU reset(2) failed",
		}, accel.Unhealthy, accel.ActionReboot, "reset"},
		{
			"given up", "amd-gpu",
			[]string{"amdgpu 0000:3b:00.0: [drm] device wedged, needs recovery"},
			accel.Unhealthy,
			accel.ActionResetDevice, "wedged",
		},
		{
			"recovered by itself", "amd-gpu",
			[]string{"amdgpu 0000:3b:00.0: [drm] device wedged, but recovered through reset"},
			accel.Healthy, "", "",
		},
		{
			"bad pages up to the threshold", "amd-gpu",
			[]string{"amdgpu 0000:3b:00.0: amdgpu: Saved bad pages 256 reaches threshold value 256"},
			accel.Degraded,
			accel.ActionService, "bad-pages",
		},
		{"bad pages above it", "amd-gpu", []string{
			"amdgpu 0000:3b:00.0: amdgpu: RAS records:257 exceed threshold:256, GPU will not be initialized. Replace this GPU or increase the threshold",
		}, accel.Unhealthy, accel.ActionService, "bad-pages"},
		{
			"new errors of the memory", "amd-gpu",
			[]string{
				"amdgpu 0000:3b:00.0: amdgpu: socket: 0, die: 0, 3 new uncorrectable hardware errors detected in umc block",
			},
			accel.Healthy, "", "uncorrectable",
		},
		{
			"slow", "amd-gpu",
			[]string{"amdgpu 0000:3b:00.0: amdgpu: WARN: GPU is throttled, expect performance decrease. VR."},
			accel.Healthy, "", "throttled",
		},
		{"slow of heat", "amd-gpu", []string{
			"amdgpu 0000:3b:00.0: amdgpu: WARN: GPU thermal throttling temperature reached, expect performance decrease. TEMP HOTSPOT.",
		}, accel.Healthy, "", "throttled"},
		{
			"a program's fault", "amd-gpu",
			[]string{
				"amdgpu 0000:3b:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32770)",
			},
			accel.Healthy, "", "page-fault",
		},
		{
			"a program's work", "amd-gpu",
			[]string{"amdgpu 0000:3b:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=7, emitted seq=9"},
			accel.Healthy, "", "timeout",
		},
		{
			"of other things", "amd-gpu",
			[]string{"amdgpu 0000:3b:00.0: amdgpu: ring comp_1.0.0 uses VM inv eng 4 on hub 0"},
			accel.Healthy, "", "",
		},

		{"given up", "intel-gpu-xe", []string{
			"xe 0000:3b:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:3b:00.0 as wedged.\nIOCTLs and executions are blocked. Only a rebind may clear the failure",
			"xe 0000:3b:00.0: [drm] device wedged, needs recovery",
		}, accel.Unhealthy, accel.ActionResetDevice, "wedged"},
		{
			"another one given up", "intel-gpu-xe",
			[]string{"xe 0000:3b:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:5c:00.0 as wedged.\n"},
			accel.Healthy, "", "",
		},
		{
			"corrected", "intel-gpu-xe",
			[]string{"xe 0000:3b:00.0: [drm] [Hardware Error]: Tile0 reported CORRECTABLE error 0x1"},
			accel.Healthy,
			"", "CORRECTABLE",
		},
		{
			"not corrected", "intel-gpu-xe",
			[]string{"xe 0000:3b:00.0: [drm] *ERROR* [Hardware Error]: Tile0 reported NONFATAL error 0x20000"},
			accel.Degraded, "", "NONFATAL",
		},
		{
			"fatal", "intel-gpu-xe",
			[]string{"xe 0000:3b:00.0: [drm] *ERROR* [Hardware Error]: Tile0 reported FATAL error 0x20000"},
			accel.Unhealthy, accel.ActionResetDevice, "FATAL",
		},
		{
			"an engine", "intel-gpu-xe",
			[]string{"xe 0000:3b:00.0: [drm] Tile0: GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=2"},
			accel.Healthy, "", "engine-reset",
		},
		{
			"a program's work", "intel-gpu-xe",
			[]string{
				"xe 0000:3b:00.0: [drm] GT0: Timedout job: seqno=123, lrc_seqno=123, guc_id=2 in python3 [184372]",
			},
			accel.Healthy, "", "timeout",
		},

		{
			"the reset failed", "intel-gpu",
			[]string{"i915 0000:3b:00.0: [drm] *ERROR* Failed to reset chip"},
			accel.Unhealthy, accel.ActionReboot, "wedged",
		},
		{
			"it does not start again", "intel-gpu",
			[]string{"i915 0000:3b:00.0: [drm] *ERROR* GT0: Failed to initialise HW following reset (-5)"},
			accel.Unhealthy, accel.ActionReboot, "wedged",
		},
		{
			"the reset does not end", "intel-gpu",
			[]string{
				"i915 0000:3b:00.0: [drm] *ERROR* intel_gt_reset_global timed out, cancelling all in-flight rendering.",
			},
			accel.Unhealthy, accel.ActionReboot, "wedged",
		},
		{
			"a program's work", "intel-gpu",
			[]string{
				"i915 0000:3b:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python3 [4242]",
				"i915 0000:3b:00.0: [drm] Resetting chip for stopped heartbeat on rcs0",
			},
			accel.Healthy, "", "hang",
		},
		{
			"no firmware", "intel-gpu",
			[]string{"i915 0000:3b:00.0: [drm] *ERROR* GT0: GuC firmware i915/dg2_guc_70.bin: fetch failed -ENOENT"},
			accel.Unhealthy, accel.ActionService, "firmware",
		},

		{
			"the firmware", "habana-gaudi",
			[]string{"habanalabs 0000:3b:00.0: Device heartbeat failed! PCI link is healthy"},
			accel.Healthy, "",
			"heartbeat",
		},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			def := defs[c.kind]
			e := health.New(health.Options{
				Host: hosttest.New(t).Host, File: "/run/acceld/health.json",
				Definitions: func() map[string]*accel.Definition { return map[string]*accel.Definition{c.kind: def} },
			})
			records := make(chan host.KmsgRecord, len(c.lines))
			for i, line := range c.lines {
				records <- host.KmsgRecord{
					Sequence: uint64(7 + i), Level: 3, Boot: time.Second, Text: line,
					Fields: map[string]string{"SUBSYSTEM": "pci", "DEVICE": "+pci:" + id},
				}
			}
			close(records)
			e.Follow(records)
			a := e.Judge(def, nil, []accel.Accelerator{{ID: id, Health: accel.Health{State: accel.Healthy}}})[0]
			code := ""
			if len(a.Faults) > 0 {
				code = a.Faults[0].Code
			}
			if a.Health.State != c.state || a.Health.Action != c.action || code != c.code {
				t.Errorf("%+v, code %q; want %s, %q, code %q", a.Health, code, c.state, c.action, c.code)
			}
			if c.state != accel.Healthy && (a.Health.Message == "" || a.Health.Evidence == "") {
				t.Errorf("a verdict without a sentence or without its evidence: %+v", a.Health)
			}
		})
	}
}

// TestEveryRuleIsTried holds the lines above to the definitions: a rule that no line has tried may match nothing at
// all.
func TestEveryRuleIsTried(t *testing.T) {
	tried := map[string]bool{
		"amd-gpu": true, "intel-gpu": true, "intel-gpu-xe": true, "habana-gaudi": true, // above
		"nvidia-gpu": true, "qemu-edu": true, // agent
	}
	for kind, def := range definitions(t) {
		if len(def.Log) > 0 && !tried[kind] {
			t.Errorf("no line of a kernel log tries the rules of %s", kind)
		}
	}
}
