package screens

import (
	"fmt"
	"math"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/exporter"
)

// sample is a host with a kind of eight devices of which two are not well, one that is blocked, and one that is not
// there.
func sample(now time.Time) accel.Machine {
	started := now.Add(-31 * time.Hour)
	phases := map[accel.Published]accel.Phase{
		accel.DriverContainer: accel.PhaseReady, accel.RuntimeEnablement: accel.PhaseReady,
		accel.DevicePlugin:     accel.PhaseReady,
		accel.DeviceMonitoring: accel.PhaseReady, accel.FeatureDiscovery: accel.PhaseReady,
	}
	var accs []accel.Accelerator
	var pci []accel.PCIDevice
	for i := range 8 {
		id := fmt.Sprintf("0000:%02x:00.0", 0x18+i*8)
		accs = append(accs, accel.Accelerator{
			ID: id, NUMANode: i / 4, Bound: "npu", Serial: fmt.Sprintf("NPU24A%05d", 4711+i),
			Nodes:  []accel.DeviceNode{{Path: fmt.Sprintf("/dev/npu%d", i)}},
			Health: accel.Health{State: accel.Healthy, Since: started},
			Metrics: map[string]float64{
				"accelerator_temperature_celsius": 41.5 + float64(i),
				"accelerator_utilization_ratio":   0.12 * float64(i), "accelerator_power_usage_watts": 180 +
					20*float64(i),
				"accelerator_memory_used_bytes": float64(i) * 8e9, "accelerator_memory_total_bytes": 80 << 30,
				"accelerator_power_limit_watts": 400, "accelerator_energy_joules_total": 3.6e9,
				"accelerator_memory_temperature_celsius": 61,
			},
		})
		pci = append(pci, accel.PCIDevice{Address: id, DeviceName: "Example NPU 400"})
	}
	accs[2].Health = accel.Health{
		State: accel.Degraded, Reason: accel.LinkDegraded,
		Message: "the link has 8 of 16 lanes", Evidence: "current_link_width 8, max_link_width 16",
		Since: now.Add(-3 * time.Hour),
	}
	accs[5].Health = accel.Health{
		State: accel.Unhealthy, Reason: accel.DeviceFault, Action: accel.ActionResetDevice,
		Message: "fault 79: the device has fallen off the bus", Since: now.Add(-4 * time.Minute),
		Evidence: "npu 0000:40:00.0: fault 79, pid 4242, name python3",
	}
	accs[5].Recorded = 3
	accs[5].Repair = &accel.RepairHave{
		State: accel.RepairWaits, Message: "until nobody has it: pod default/train-7f9c", Attempts: 1,
	}
	accs[3].Settings = []accel.SettingHave{{
		Name: "powerLimitWatts", Want: "250", Value: "300", State: accel.SettingRefused,
		Message: "250 is below 275, the least that this device allows",
	}}
	accs[1].Handover = &accel.HandoverHave{
		State: accel.HandoverUsed, Tenants: []string{"pod 4f5bd3b0-6a1c-4e5e-9d55-1f3c2a7b8e90"}, Cleaned: 41, Seconds: 12.3,
		Last: 0.31,
	}
	accs[5].Faults = []accel.Fault{{Code: "79", Title: "fallen off the bus", Count: 1, Last: now.Add(-4 * time.Minute)}}
	return accel.Machine{
		Taken: now.Add(-time.Second), Agent: accel.Agent{
			Version: "0.5.0", Started: started,
			Node: "gpu-17.example.com",
		},
		Facts: accel.Facts{
			Kernel: accel.Kernel{Release: "6.1.0-47-amd64", Arch: "x86_64", Lockdown: "none"},
			OS:     accel.OS{Pretty: "Debian GNU/Linux 12 (bookworm)"}, PCI: pci,
			Runtime: accel.ContainerEngine{
				Name: "containerd", Version: "2.1.4",
				Endpoint: "unix:///run/containerd/containerd.sock",
			},
			Kubelet: accel.Kubelet{Present: true, Root: "/var/lib/kubelet"},
		},
		Want: accel.Want{Kubernetes: true, Labels: true, CDI: true, Kinds: map[string]*accel.Definition{
			"example-npu":  {Kind: "example-npu", Title: "Example NPU 400", Resource: "example.com/npu"},
			"example-fpga": {Kind: "example-fpga", Title: "Example FPGA", Resource: "example.com/fpga"},
			"qemu-edu":     {Kind: "qemu-edu", Title: "QEMU educational device", Resource: "qemu.org/edu"},
		}},
		Have: map[string]accel.Have{
			"example-npu": {
				Accelerators: accs,
				Driver: accel.DriverHave{
					Serves: true, Source: "store", Version: "535.261.03",
					Modules: []accel.LoadedModule{{Name: "npu", Version: "535.261.03"}}, Proven: started.Add(time.Second),
					Proof: "8 devices computed",
					Next: map[string]accel.Readiness{"6.1.0-56-amd64": {Problem: accel.Problemf(accel.BuildFailed,
						"npu_main.c:181: implicit declaration of function 'drm_gem_prime_export'")}},
				},
				Runtime:    accel.RuntimeHave{Applied: true, Spec: "/var/run/cdi/acceld-example-npu.json"},
				Plugin:     accel.PluginHave{Registered: true, Allocatable: accel.Known(7)},
				Monitoring: accel.Monitoring{Collected: now, Labelled: true},
			},
			"example-fpga": {Accelerators: []accel.Accelerator{{
				ID: "0000:81:00.0", NUMANode: -1,
				Health: accel.Health{State: accel.Healthy, Since: started},
				Withheld: &accel.Withheld{
					By: accel.ByProof, Reason: accel.NotProven,
					Message: "it has not passed its self-test with the driver that is live",
				},
			}}, Work: []accel.Progress{{
				Kind: "example-fpga", Stage: accel.StagePull, What: "registry.example.com/drivers/fpga:2.4.0", Done: 45e6,
				Total: 100e6, Since: now.Add(-time.Minute), Moved: now.Add(-12 * time.Second),
			}}},
		},
		Status: map[string]accel.Status{
			"example-npu": {
				State: accel.Ready, Since: started.Add(4 * time.Second),
				Sentence:  "7 of 8 devices usable; 0000:40:00.0 is unhealthy (fault 79: the device has fallen off the bus)",
				Published: phases,
				Took: map[accel.State]time.Duration{
					accel.DriverMissing:  820 * time.Millisecond,
					accel.DriverUnproven: 41 * time.Millisecond, accel.RuntimeMissing: 6 * time.Millisecond,
					accel.PluginMissing: 15 * time.Millisecond, accel.KubeletPending: 1900 * time.Millisecond,
					accel.Unwatched: 310 * time.Millisecond,
				},
			},
			"example-fpga": {
				State: accel.DriverMissing, Next: accel.StepDriver, Since: started,
				Sentence: "the right kernel modules are not loaded, or not bound to every device (1 device)",
				Blocked: &accel.Failure{
					Step: accel.StepDriver, Since: now.Add(-40 * time.Minute), Attempts: 3,
					RetryAt: now.Add(90 * time.Second),
					Problem: accel.Problem{
						Reason:  accel.HeadersMissing,
						Message: `the headers of kernel "6.1.0-47-amd64" are not installed: install linux-headers-6.1.0-47-amd64`,
						Tried: []string{
							"store: no driver 2.4.0 for kernel 6.1.0-47-amd64",
							`installed: no module "fpga" below /lib/modules/6.1.0-47-amd64`,
							"oci: registry.example.com/drivers/fpga:2.4.0-6.1.0-47-amd64: not found",
						},
					},
				},
			},
			"qemu-edu": {State: accel.Absent},
		},
	}
}

func sampleHolders() map[string][]exporter.Holder {
	return map[string][]exporter.Holder{
		"0000:18:00.0": {{Namespace: "ml", Pod: "train-llama-0", Container: "main", Resource: "example.com/npu"}},
		"0000:20:00.0": {{Namespace: "ml", Pod: "train-llama-1", Container: "main", Resource: "example.com/npu"}},
		"0000:40:00.0": {{
			Namespace: "batch", Pod: "render-7c9d8-x2x5q", Container: "worker",
			Resource: "example.com/npu",
		}},
	}
}

// samplePast is what happened to two devices.
func samplePast(now time.Time) []exporter.Past {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const day = 24 * time.Hour
	return []exporter.Past{{
		Kind: "example-npu", ID: "NPU24A04712", Model: "Example NPU 400", Address: "0000:40:00.0", First: ago(40 * day),
		Last: now, Faults: 3, Events: []exporter.PastEvent{
			{At: ago(40 * day), Address: "0000:20:00.0", Text: "seen for the first time"},
			{At: ago(40 * day), Address: "0000:20:00.0", Text: "proven with driver 2.1.0: 2 million numbers computed"},
			{
				At: ago(9 * day), Address: "0000:20:00.0", Bad: true, Times: 2, Until: ago(8 * day),
				Text: "unhealthy DeviceFault: fault 79: the device has fallen off the bus",
			},
			{At: ago(8 * day), Address: "0000:20:00.0", Text: "healthy again", Times: 2, Until: ago(8 * day)},
			{At: ago(7 * day), Address: "0000:40:00.0", Text: "moved from 0000:20:00.0"},
			{At: ago(6 * day), Address: "0000:40:00.0", Text: "cleaned for its next tenant", Times: 41, Until: ago(time.Hour)},
			{
				At: ago(4 * time.Minute), Address: "0000:40:00.0", Bad: true,
				Text: "unhealthy DeviceFault: fault 79: the device has fallen off the bus",
			},
		},
	}, {
		Kind: "example-npu", ID: "NPU24A04713", Model: "Example NPU 400", Address: "0000:41:00.0", First: ago(40 * day),
		Last: now, Events: []exporter.PastEvent{
			{At: ago(40 * day), Address: "0000:41:00.0", Text: "seen for the first time"},
		},
	}}
}

// lived is an agent whose host was and is as the sample.
func lived(e *exporter.Exporter, now time.Time) {
	well := sample(now.Add(-5 * time.Hour))
	for i := range well.Have["example-npu"].Accelerators {
		well.Have["example-npu"].Accelerators[i].Health = accel.Health{State: accel.Healthy}
	}
	e.See(well)
	worn := sample(now.Add(-3 * time.Hour))
	worn.Have["example-npu"].Accelerators[5].Health = accel.Health{State: accel.Healthy}
	e.See(worn)
	for i := range 100 {
		at := now.Add(time.Duration(i-100) * 30 * time.Second)
		busy := sample(at)
		for j, a := range busy.Have["example-npu"].Accelerators {
			a.Metrics["accelerator_utilization_ratio"] = 0.5 + 0.45*math.Sin(float64(i)/float64(4+3*j))
		}
		e.See(busy)
	}
}

// sampleOverview is a cluster of many nodes in every standing, with two policies.
func sampleOverview(now time.Time) policy.Overview {
	var o policy.Overview
	phases := func(phase accel.Phase) map[accel.Published]accel.Phase {
		return map[accel.Published]accel.Phase{
			accel.DriverContainer: phase, accel.RuntimeEnablement: accel.PhaseReady,
			accel.DevicePlugin: accel.PhaseReady, accel.DeviceMonitoring: accel.PhaseReady,
			accel.FeatureDiscovery: accel.PhaseReady,
		}
	}
	for i := range 24 {
		n := policy.NodeView{
			Name: fmt.Sprintf("gpu-%02d", i), Up: true, Ready: "True",
			Kinds: []policy.KindView{{
				Kind: "example-npu", Count: "8", Version: "535.261.03", Product: "Example_NPU_400", Memory: "81920",
				States: phases(accel.PhaseReady), Policy: "drivers",
			}},
		}
		switch i {
		case 3:
			n.Kinds[0].States, n.Ready, n.Reason, n.Message = phases(accel.PhaseFailed), "False", "HeadersMissing",
				`example-npu is driver-missing: the headers of kernel "6.1.0-47-amd64" are not installed`
		case 6, 7:
			n.Ready, n.Reason, n.Message = "False", "DeviceFault",
				"example-npu 0000:40:00.0 is unhealthy: fault 79: the device has fallen off the bus"
			n.Kinds[0].Sick = 1
			n.Kinds[0].RepairReport = accel.RepairReport{Phase: accel.RepairPhaseWaiting, Ill: 1, Devices: 8}
			if i == 7 {
				n.Kinds[0].RepairReport.Phase, n.Kinds[0].MayRepair = accel.RepairPhaseActing, true
			}
		case 8, 9:
			n.Kinds[0].UpgradeReport, n.Cordoned, n.CordonedBy = accel.UpgradeReport{
				Phase:   accel.ReportUpgrading,
				Version: "550.90.07",
			},
				true, "drivers"
		case 12:
			n.Up, n.Ready, n.Reason, n.Message = false, "False", "AgentGone",
				"the agent of this node has not been there for 10 minutes"
		case 15:
			n.Kinds[0].States, n.Ready, n.Reason, n.Message = phases(accel.PhasePending), "False", "InProgress",
				"example-npu is driver-missing"
		}
		o.Nodes = append(o.Nodes, n)
	}
	o.Policies = []policy.PolicyView{{
		Name: "drivers", Kinds: []string{"example-npu"},
		Status: policy.Status{
			Nodes: policy.Nodes{Matched: 24, Ready: 9, Upgrading: 2, Waiting: 12, Failed: 1},
			Slots: []policy.Slot{{
				Node: "gpu-08", Kind: "example-npu", Version: "550.90.07",
				Since: now.Add(-3 * time.Minute),
			}, {
				Node: "gpu-09", Kind: "example-npu", Version: "550.90.07",
				Since: now.Add(-time.Minute),
			}},
			Blocked: []policy.Blocked{
				{Reason: "WaitingForSlot", Count: 12, Example: "gpu-10: example-npu"},
				{Reason: "HeadersMissing", Count: 1, Example: "gpu-03: example-npu 550.90.07"},
			},
			Conditions: []policy.Condition{
				{Type: policy.ConditionAccepted, Status: "True", Reason: "Valid"},
				{
					Type: policy.ConditionReady, Status: "False", Reason: "Progressing",
					Message:            "9 of 24 nodes are as asked, 2 upgrading, 12 waiting, 1 failed",
					LastTransitionTime: now.Add(-2 * time.Hour),
				},
			},
		},
	}, {
		Name: "repairs", Kinds: []string{"example-npu"},
		Status: policy.Status{
			Nodes: policy.Nodes{Matched: 24, Ready: 24},
			Slots: []policy.Slot{{Node: "gpu-07", Kind: "example-npu", Repair: true, Since: now.Add(-40 * time.Second)}},
			Conditions: []policy.Condition{
				{Type: policy.ConditionAccepted, Status: "True", Reason: "Valid"},
				{
					Type: policy.ConditionReady, Status: "True", Reason: "Ready",
					Message: "24 of 24 nodes are as asked", LastTransitionTime: now.Add(-26 * time.Hour),
				},
				{
					Type: policy.ConditionRepair, Status: "True", Reason: "Repairing",
					Message:            "2 nodes have devices that need a reset; 1 may repair them, 1 wait (MaxParallel: 1)",
					LastTransitionTime: now.Add(-50 * time.Second),
				},
			},
		},
	}}
	return o
}

func sampleWaiting(now time.Time) []extender.Waiting {
	w := extender.Waiting{Asked: now.Add(-20 * time.Second)}
	w.Pod = "ml/train-llama-2"
	w.Containers = []extender.ContainerNeed{{Name: "main", Cards: 2, PerCard: map[string]int64{"memory": 60 << 30}}}
	w.Verdicts = map[string]int{fit.NoRoom.String(): 21, fit.TooMuch.String(): 3}
	w.Nodes = []fit.Report{{Node: "gpu-00", Verdict: fit.NoRoom.String(), Cards: []fit.CardReport{{
		Card: "card0", Verdict: "too little memory",
		Resources: []fit.ResourceReport{{
			Name: "memory", Capacity: 80 << 30, Used: 70 << 30, Free: 10 << 30,
			Need: 60 << 30,
		}},
		Pods: []fit.HolderReport{{Pod: "ml/train-llama-0"}},
	}}}}
	return []extender.Waiting{w}
}
