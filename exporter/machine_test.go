package exporter

import (
	"fmt"
	"time"

	"github.com/acceld/acceld/accel"
)

// noon is the clock of the tests.
func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

// exampleMachine has one ready kind with a healthy, an unhealthy and a vanished device, one that is blocked, and one
// that is not on the host.
func exampleMachine() accel.Machine {
	started := noon().Add(-26 * time.Hour)
	dev := func(n int, h accel.Health, metrics map[string]float64) accel.Accelerator {
		return accel.Accelerator{
			ID: fmt.Sprintf("0000:0%d:00.0", n), NUMANode: n % 2, Bound: "edu", Serial: fmt.Sprintf("E%04d", n),
			Nodes: []accel.DeviceNode{{Path: fmt.Sprintf("/dev/edu%d", n), Major: 240, Minor: uint32(n)}}, Health: h,
			Metrics: metrics,
		}
	}
	readings := map[string]float64{
		"accelerator_temperature_celsius": 41.5, "accelerator_operations_total": 362880,
		"accelerator_dma_bytes_total": 7516192768,
		"accelerator_errors_total":    0, "not_in_the_table": 1,
	}
	well := accel.Health{State: accel.Healthy, Since: started}
	return accel.Machine{
		Taken: noon().Add(-time.Second),
		Agent: accel.Agent{Version: "0.1.0", Started: started, Node: "node-a"},
		Facts: accel.Facts{
			Kernel: accel.Kernel{Release: "6.12.9-1-lts", Arch: "x86_64", Lockdown: "none", Taint: 4096},
			OS:     accel.OS{ID: "debian", Pretty: "Debian GNU/Linux 12 (bookworm)"},
			PCI: []accel.PCIDevice{
				{
					Address: "0000:01:00.0", Vendor: "1234", Device: "11e8", DeviceName: "EDU",
					Link: accel.Link{SpeedGTs: 8, MaxSpeedGTs: 16, Width: 8, MaxWidth: 16},
				},
				{Address: "0000:02:00.0", Vendor: "1234", Device: "11e8"},
			},
			Runtime:  accel.ContainerEngine{Name: "cri-o", Endpoint: "unix:///var/run/crio/crio.sock"},
			Kubelet:  accel.Kubelet{Present: true, Root: "/var/lib/kubelet"},
			Problems: []string{"cannot read \"/sys/kernel/notes\": permission denied"},
		},
		Want: accel.Want{Kubernetes: true, Labels: true, CDI: true, Kinds: map[string]*accel.Definition{
			"qemu-edu":     {Kind: "qemu-edu", Title: "QEMU educational device", Resource: "qemu.org/edu"},
			"example-npu":  {Kind: "example-npu", Title: "Example NPU", Resource: "example.com/npu"},
			"example-fpga": {Kind: "example-fpga", Title: "Example FPGA", Resource: "example.com/fpga"},
		}},
		Have: map[string]accel.Have{
			"qemu-edu": {
				Accelerators: []accel.Accelerator{
					used(withFaults(using(dev(1, well, readings)), accel.Fault{
						Code: "7", Title: "an operation failed", Count: 3,
						Last: noon().Add(-time.Hour),
					}), accel.UnrequestedHave{Count: 2, Users: []accel.UnrequestedUser{
						{
							Holder: accel.Holder{PID: 4242, Comm: "<b>", PodUID: "u", Namespace: "ml", Pod: "thief"},
							Given:  []string{"0000:02:00.0"}, Processes: 2, Since: noon().Add(-time.Minute),
						},
						{Holder: accel.Holder{PID: 17, Comm: "sh"}, Unit: "x.service", Processes: 1, Since: noon().Add(-time.Minute)},
					}}),
					waiting(dev(2, accel.Health{
						State: accel.Unhealthy, Reason: accel.DeviceUnhealthy,
						Action: accel.ActionResetDevice, Message: "the engine reports \"parity error\"",
						Since: noon().Add(-5 * time.Minute),
					},
						map[string]float64{"accelerator_temperature_celsius": 88})),
					dev(3, accel.Health{
						State: accel.Gone, Reason: accel.DeviceGone,
						Message: "0000:03:00.0 left the bus", Since: noon().Add(-2 * time.Hour),
					}, readings),
				},
				Driver: accel.DriverHave{
					Serves: true, Source: "store", Version: "1.2.0",
					Proven: started.Add(time.Second), Proof: "10! computed by the device",
					Next: map[string]accel.Readiness{"6.1.0-56-amd64": {Problem: accel.Problemf(accel.BuildFailed,
						"no")}}, Upgrade: &accel.Upgrade{
						To: accel.DriverRef{Version: "1.3.0"}, Phase: accel.UpgradeWaiting,
						Failure: &accel.Failure{Problem: accel.Problem{Reason: accel.InUse, Message: "in use"}},
					},
				},
				Runtime:    accel.RuntimeHave{Applied: true, Spec: "/etc/cdi/acceld-qemu-edu.json"},
				Plugin:     accel.PluginHave{Registered: true, Registrations: 2, Allocatable: accel.Known(1)},
				Monitoring: accel.Monitoring{Collected: noon().Add(-3 * time.Second), Labelled: true},
			},
			"example-npu": {
				Accelerators: []accel.Accelerator{used(accel.Accelerator{
					ID: "0000:81:00.0", NUMANode: -1, Health: well,
					Withheld: &accel.Withheld{
						By: accel.ByProof, Reason: accel.NotProven,
						Message: "it has not passed its self-test",
					},
					Switched: &accel.Switched{Use: accel.UseVFIO, Driver: "vfio-pci", Group: 9, Claim: "u", Name: "ml/vm"},
					Settings: []accel.SettingHave{
						{Name: "powerLimitWatts", Want: "250", Value: "250", State: accel.SettingApplied, Drifts: 2},
						{Name: "computeMode", Want: "exclusive", Value: "default", State: accel.SettingRefused, Message: "no"},
					},
					Handover: &accel.HandoverHave{
						State: accel.HandoverUsed, Tenants: []string{"pod 0b8"}, Cleaned: 3, Seconds: 1.5, Last: 0.5, Killed: 1,
					},
				}, accel.UnrequestedHave{Unknown: "the kubelet does not say"})},
			},
		},
		Status: map[string]accel.Status{
			"qemu-edu": {
				State: accel.Ready, Since: started.Add(4 * time.Second), Sentence: "1 of 3 devices can be scheduled.",
				Published: map[accel.Published]accel.Phase{
					accel.DriverContainer: accel.PhaseReady, accel.RuntimeEnablement: accel.PhaseReady,
					accel.DevicePlugin:     accel.PhaseReady,
					accel.DeviceMonitoring: accel.PhaseReady, accel.FeatureDiscovery: accel.PhaseReady,
				},
				Took: map[accel.State]time.Duration{
					accel.DriverMissing:  120 * time.Millisecond,
					accel.DriverUnproven: 8 * time.Millisecond,
				},
			},
			"example-npu": {
				State: accel.DriverMissing, Next: accel.StepDriver, Since: started,
				Sentence: "The driver is not loaded; a build failed.",
				Published: map[accel.Published]accel.Phase{
					accel.DriverContainer: accel.PhaseFailed, accel.RuntimeEnablement: accel.PhasePending,
					accel.DevicePlugin:     accel.PhasePending,
					accel.DeviceMonitoring: accel.PhasePending, accel.FeatureDiscovery: accel.PhasePending,
				},
				Blocked: &accel.Failure{
					Step: accel.StepDriver, Since: noon().Add(-40 * time.Minute), Attempts: 3,
					RetryAt: noon().Add(90 * time.Second),
					Problem: accel.Problem{
						Reason:  accel.HeadersMissing,
						Message: "cannot build \"npu\": the headers of 6.12.9-1-lts are not installed: package \"linux-headers-6.12.9-1-lts\"",
						Tried: []string{
							"store: no entry for 6.12.9-1-lts",
							"installed: no module \"npu\" in /lib/modules/6.12.9-1-lts",
						},
					},
				},
			},
			"example-fpga": {State: accel.Absent, Since: started},
		},
	}
}

// used is a device with those who use it without a request.
func used(a accel.Accelerator, by accel.UnrequestedHave) accel.Accelerator {
	a.Unrequested = &by
	return a
}

// using is a device with what is used of it.
func using(a accel.Accelerator) accel.Accelerator {
	a.Use = &accel.UseHave{
		Users: []accel.User{
			{
				PodUID: "7e8c1f5a-0000-4000-8000-000000000001", Namespace: "ml", Pod: "train-0", Container: "main",
				NamedContainer: true, Processes: 2, MemoryBytes: accel.Known[int64](3 << 30),
				EngineSeconds: map[string]float64{"compute": 3725.25, "copy": 0.5}, Busy: accel.Known(0.25),
			},
			{
				PodUID: "7e8c1f5a-0000-4000-8000-000000000002", Container: "0f1e2d3c4b5a", Processes: 1,
				EngineSeconds: map[string]float64{"compute": 1},
			},
			{Unit: "x.service", Processes: 1, MemoryBytes: accel.Known[int64](1 << 20), EngineSeconds: map[string]float64{"compute": 2}},
			{Container: "0f1e2d3c4b5b", Processes: 1, MemoryBytes: accel.Known[int64](2 << 20)},
		},
		LeftOut: 3, Outside: map[string]float64{"compute": 7},
	}
	return a
}

// waiting is a device that is reset when nobody has it.
func waiting(a accel.Accelerator) accel.Accelerator {
	a.Repair = &accel.RepairHave{
		State: accel.RepairWaits, Message: "until nobody has it: pod default/train", Attempts: 1,
	}
	return a
}

func withFaults(a accel.Accelerator, faults ...accel.Fault) accel.Accelerator {
	a.Faults = faults
	return a
}

func exampleHolders() Holdings {
	return Holdings{Told: noon().Add(-7 * time.Second), By: map[string][]Holder{"0000:01:00.0": {
		{
			Namespace: "ml", Pod: "train-0", UID: "7e8c1f5a-0000-4000-8000-000000000001", Container: "main",
			Resource: "qemu.org/edu",
		},
	}}}
}

// example is an exporter of [exampleMachine] that has seen something happen.
func example(change ...func(*Options)) *Exporter {
	o := Options{Machine: exampleMachine, Holders: exampleHolders, Now: noon}
	for _, f := range change {
		f(&o)
	}
	e := New(o)
	e.Observe("qemu-edu", accel.DriverMissing, accel.DriverUnproven, 120*time.Millisecond)
	e.Observe("qemu-edu", accel.DriverUnproven, accel.RuntimeMissing, 8*time.Millisecond)
	e.ObserveFailure("example-npu", accel.StepDriver, accel.HeadersMissing)
	e.ObserveFailure("example-npu", accel.StepDriver, accel.HeadersMissing)
	return e
}
