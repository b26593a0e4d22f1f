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

		{
			"no firmware", "amd-npu",
			[]string{
				"amdxdna 0000:3b:00.0: [drm] *ERROR* aie2_init: failed to request_firmware amdnpu/17f0_10/, ret -2",
			},
			accel.Unhealthy, accel.ActionService, "firmware",
		},
		{
			"another firmware", "amd-npu",
			[]string{
				"amdxdna 0000:3b:00.0: [drm] *ERROR* aie2_check_protocol: Incompatible firmware protocol major 5 minor 0",
			},
			accel.Unhealthy, accel.ActionService, "firmware",
		},
		{
			"a firmware that does not start", "amd-npu",
			[]string{"amdxdna 0000:3b:00.0: [drm] *ERROR* aie2_hw_start: firmware is not alive"},
			accel.Unhealthy, accel.ActionReboot, "firmware",
		},
		{
			"a reset that failed", "amd-npu",
			[]string{"amdxdna 0000:3b:00.0: [drm] *ERROR* aie4_reset_done: reset failed: -110, service offline"},
			accel.Unhealthy, accel.ActionReboot, "reset",
		},
		{
			"its power", "amd-npu",
			[]string{
				"amdxdna 0000:3b:00.0: [drm] *ERROR* aie4_async_note_worker: async notification power error: " +
					"unrecoverable power sequencing error",
			},
			accel.Unhealthy, accel.ActionReboot, "power",
		},
		{
			"a program's work", "amd-npu",
			[]string{"amdxdna 0000:3b:00.0: [drm] *ERROR* aie2_tdr_detect: TDR timeout detected"},
			accel.Healthy, "", "timeout",
		},
		{
			"no firmware", "intel-npu",
			[]string{"intel_vpu 0000:3b:00.0: [drm] *ERROR* ivpu_fw_request(): Failed to request firmware: -2"},
			accel.Unhealthy, accel.ActionService, "firmware",
		},
		{
			"an old firmware", "intel-npu",
			[]string{
				"intel_vpu 0000:3b:00.0: [drm] *ERROR* ivpu_fw_check_api(): Incompatible FW BOOT API version: 2.5, " +
					"required 3.0 or later",
			},
			accel.Unhealthy, accel.ActionService, "firmware",
		},
		{
			"it does not start", "intel-npu",
			[]string{"intel_vpu 0000:3b:00.0: [drm] *ERROR* ivpu_boot(): Failed to boot the firmware: -110"},
			accel.Unhealthy, accel.ActionResetDevice, "boot",
		},
		{
			"it was reset after a hang", "intel-npu",
			[]string{
				"intel_vpu 0000:3b:00.0: [drm] *ERROR* ivpu_pm_trigger_recovery(): Recovery triggered by TDR",
				"intel_vpu 0000:3b:00.0: [drm] *ERROR* ivpu_pm_recovery_work(): Recovering the NPU (reset #1)",
			},
			accel.Healthy, "", "recovery",
		},
		{
			"it was reset, and stays down", "intel-npu",
			[]string{
				"intel_vpu 0000:3b:00.0: [drm] *ERROR* ivpu_pm_trigger_recovery(): Recovery triggered by TDR",
				"intel_vpu 0000:3b:00.0: [drm] *ERROR* ivpu_pm_reset_complete(): Failed to resume NPU: -110",
			},
			accel.Unhealthy, accel.ActionResetDevice, "boot",
		},
		{
			"a fatal error", "qualcomm-aic100",
			[]string{
				"qaic 0000:3b:00.0: RAS event.\nClass:Fatal\nDescription:Uncorrectable error from DDR\n" +
					"Error Threshold for this report 1\nSyndrome:\n    Instance 0",
			},
			accel.Degraded, "", "fatal",
		},
		{
			"heat", "qualcomm-aic100",
			[]string{
				"qaic 0000:3b:00.0: RAS event.\nClass:Critical\nDescription:Correctable error from Temperature Sensors\n",
			},
			accel.Degraded, "", "hot",
		},
		{
			"an error that did not stop it", "qualcomm-aic100",
			[]string{
				"qaic 0000:3b:00.0: RAS event.\nClass:Warning\nDescription:Uncorrectable Non-Fatal error from PCIE\n",
			},
			accel.Healthy, "", "nonfatal",
		},
		{
			"a corrected error", "qualcomm-aic100",
			[]string{"qaic 0000:3b:00.0: RAS event.\nClass:Warning\nDescription:Correctable error from NSP Memory\n"},
			accel.Healthy, "", "corrected",
		},
		{
			"it does not start", "qualcomm-aic100",
			[]string{"qaic 0000:3b:00.0: mhi_async_power_up failed after reset -110"},
			accel.Unhealthy, accel.ActionResetDevice, "boot",
		},
		{
			"another firmware", "qualcomm-aic100",
			[]string{
				"qaic 0000:3b:00.0: qaic_mhi_probe: Control protocol version (6.0) not supported. " +
					"Supported version is (5.0). Ret: 0",
			},
			accel.Unhealthy, accel.ActionService, "version",
		},
		{
			"its firmware stopped", "qualcomm-aic100",
			[]string{"qaic 0000:3b:00.0: Fatal error received from device. Attempting to recover"},
			accel.Degraded, "", "fatal",
		},
		{
			"it does not start", "tenstorrent-tensix",
			[]string{"tenstorrent 0000:3b:00.0: Device initialization failed"},
			accel.Unhealthy, accel.ActionReboot, "start",
		},
		{
			"a Wormhole hangs", "tenstorrent-tensix",
			[]string{"tenstorrent 0000:3b:00.0: Watchdog is disabled and device is unresponsive, cannot reset."},
			accel.Unhealthy, accel.ActionReboot, "hang",
		},
		{
			"the same with its watchdog", "tenstorrent-tensix",
			[]string{"tenstorrent 0000:3b:00.0: Device is unresponsive, cannot reset."},
			accel.Unhealthy, accel.ActionReboot, "hang",
		},
		{
			"a Blackhole hangs", "tenstorrent-tensix",
			[]string{"tenstorrent 0000:3b:00.0: Couldn't communicate with firmware; NOC is likely hung."},
			accel.Unhealthy, accel.ActionReboot, "hang",
		},
		{
			"no measurements", "tenstorrent-tensix",
			[]string{"tenstorrent 0000:3b:00.0: Timed out waiting for FW telemetry"},
			accel.Healthy, "", "telemetry",
		},
		{
			"no firmware", "hailo-h8",
			[]string{
				"hailo 0000:3b:00.0: Failed writing NNC firmware files. err -2", "hailo 0000:3b:00.0: Firmware load failed",
			},
			accel.Unhealthy, accel.ActionResetDevice, "firmware",
		},
		{
			"it does not answer", "hailo-h8",
			[]string{"hailo 0000:3b:00.0: hailo_fw_control, timeout waiting for control (timeout_ms=1000)"},
			accel.Healthy, "", "timeout",
		},
		{
			"no firmware", "hailo-h1x",
			[]string{"hailo1x 0000:3b:00.0: Firmware load failed"},
			accel.Unhealthy, accel.ActionResetDevice, "firmware",
		},
		{
			"another firmware", "hailo-h1x",
			[]string{
				"hailo1x 0000:3b:00.0: Mismatch Driver version pcie driver 5:3:0 pci_ep driver 5:2:0",
			},
			accel.Unhealthy, accel.ActionService, "version",
		},
		{
			"it does not answer", "hailo-h1x",
			[]string{"hailo1x 0000:3b:00.0: Timeout waiting for soc control (timeout_ms=1000)"},
			accel.Healthy, "", "timeout",
		},
		{
			"a firewall", "amd-alveo", []string{
				"xocl 0000:3b:00.0:  ffff888103c8f0c0 xocl_mailbox_srv: AXI Firewall 2 tripped",
				"xocl 0000:3b:00.0:  ffff888103c8f0c0 xocl_mailbox_srv: Card is in a BAD state, please issue xrt-smi reset",
			}, accel.Healthy, "", "firewall",
		},
		{
			"its reset failed", "amd-alveo",
			[]string{"xocl 0000:3b:00.0:  ffff888103c8f0c0 xocl_hot_reset: Requested peer failed -110"},
			accel.Unhealthy, accel.ActionReboot, "reset",
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
		"amd-npu": true, "intel-npu": true, "qualcomm-aic100": true, "tenstorrent-tensix": true, "hailo-h8": true,
		"hailo-h1x": true, "amd-alveo": true, // above, too
		"nvidia-gpu": true, "qemu-edu": true, // agent
	}
	for kind, def := range definitions(t) {
		if len(def.Log) > 0 && !tried[kind] {
			t.Errorf("no line of a kernel log tries the rules of %s", kind)
		}
	}
}
