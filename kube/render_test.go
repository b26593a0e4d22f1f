package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestSystemLabels(t *testing.T) {
	for _, tt := range []struct{ release, id, version, want string }{
		{"6.1.0-53-amd64", "debian", "12", "kernel-version.full=6.1.0-53-amd64 kernel-version.major=6 " +
			"kernel-version.minor=1 kernel-version.revision=0 system-os_release.ID=debian system-os_release.VERSION_ID.major=12 " +
			"system-os_release.VERSION_ID=12"},
		{"6.12-rc1", "ubuntu", "24.04.1", "kernel-version.full=6.12-rc1 kernel-version.major=6 kernel-version.minor=12 " +
			"system-os_release.ID=ubuntu system-os_release.VERSION_ID.major=24 system-os_release.VERSION_ID.minor=04 " +
			"system-os_release.VERSION_ID=24.04.1"},
		{"", "arch", "rolling", "system-os_release.ID=arch system-os_release.VERSION_ID=rolling"},
	} {
		var m accel.Machine
		m.Facts.Kernel.Release, m.Facts.OS = tt.release, accel.OS{ID: tt.id, VersionID: tt.version}
		m.Status = map[string]accel.Status{"qemu-edu": {Published: phases(0)}}
		var got []string
		for key, value := range Labels(m) {
			if name, ok := strings.CutPrefix(key, featurePrefix); ok {
				got = append(got, name+"="+value)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s, %s %s:\n%s\nwant\n%s", tt.release, tt.id, tt.version, text, tt.want)
		}
	}
}

func TestLabels(t *testing.T) {
	ready := map[string]string{
		"acceld.dev/driver-container-qemu-edu":               "ready",
		"acceld.dev/runtime-enablement-qemu-edu":             "ready",
		"acceld.dev/device-plugin-qemu-edu":                  "ready",
		"acceld.dev/device-monitoring-qemu-edu":              "ready",
		"acceld.dev/device-feature-discovery-qemu-edu":       "ready",
		"acceld.dev/qemu-edu.count":                          "2",
		"acceld.dev/qemu-edu.driver-version":                 "1.2.0",
		"acceld.dev/qemu-edu.product":                        "EDU-_rev-1",
		"feature.node.kubernetes.io/pci-1234.present":        "true",
		"feature.node.kubernetes.io/kernel-version.full":     "6.12.9-1-lts",
		"feature.node.kubernetes.io/kernel-version.major":    "6",
		"feature.node.kubernetes.io/kernel-version.minor":    "12",
		"feature.node.kubernetes.io/kernel-version.revision": "9",
	}
	with := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for k, v := range ready {
			m[k] = v
		}
		for i := 0; i < len(pairs); i += 2 {
			if m[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
				delete(m, pairs[i])
			}
		}
		return m
	}
	for _, tt := range []struct {
		name string
		m    accel.Machine
		want map[string]string
	}{
		{"ready", readyMachine(), ready},
		{"the write that makes itself true", readyMachine(at(accel.Unwatched, 3)), ready},
		{"not collected yet", readyMachine(at(accel.Unwatched, 3), func(m *accel.Machine) {
			have := m.Have["qemu-edu"]
			have.Monitoring = accel.Monitoring{}
			m.Have["qemu-edu"] = have
		}), with("acceld.dev/device-monitoring-qemu-edu", "pending", "acceld.dev/device-feature-discovery-qemu-edu",
			"pending")},
		{"blocked", readyMachine(at(accel.DriverMissing, 0), blockedBy(accel.HeadersMissing, "no headers")), with(
			"acceld.dev/driver-container-qemu-edu", "failed", "acceld.dev/runtime-enablement-qemu-edu", "pending",
			"acceld.dev/device-plugin-qemu-edu", "pending",
			"acceld.dev/device-monitoring-qemu-edu", "pending", "acceld.dev/device-feature-discovery-qemu-edu",
			"pending")},
		{
			"unhealthy counts", readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "x")),
			with("acceld.dev/qemu-edu.sick", "1"),
		},
		{
			"gone does not", readyMachine(health(accel.Gone, accel.DeviceGone, "x")),
			with("acceld.dev/qemu-edu.count", "1"),
		},
		{"memory", readyMachine(func(m *accel.Machine) {
			m.Have["qemu-edu"].Accelerators[1].Metrics = map[string]float64{"accelerator_memory_total_bytes": 80 << 30}
		}), with("acceld.dev/qemu-edu.memory", "81920")},
		{"a device that names its model", readyMachine(func(m *accel.Machine) {
			m.Have["qemu-edu"].Accelerators[0].Model = "EDU 9000"
		}), with("acceld.dev/qemu-edu.product", "EDU-9000")},
		{"the host", readyMachine(func(m *accel.Machine) {
			m.Facts.Inventory.Product.Vendor = "Super Micro, Inc."
			m.Facts.Inventory.Nodes = make([]accel.NUMANode, 2)
		}), with("acceld.dev/host.vendor", "Super-Micro_-Inc", "acceld.dev/host.numa-nodes", "2")},
		{
			"one fabric", readyMachine(fabric("fec0:0000:0000:0001", "fec0:0000:0000:0001")),
			with("acceld.dev/host.fabric", "fec0-0000-0000-0001"),
		},
		{"rails", readyMachine(fabric("fec0:0000:0000:0001", "fec0:0000:0000:0002")), with("acceld.dev/host.rails", "2")},
		{"a subnet that is not known", readyMachine(fabric("fec0:0000:0000:0001", "")), with()},
		{"nothing known", readyMachine(func(m *accel.Machine) {
			have := m.Have["qemu-edu"]
			have.Driver.Version = ""
			m.Have["qemu-edu"] = have
			m.Facts.PCI = nil
		}), with("acceld.dev/qemu-edu.driver-version", "", "acceld.dev/qemu-edu.product", "",
			"feature.node.kubernetes.io/pci-1234.present", "")},
		{"no accelerator", readyMachine(none), map[string]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Labels(tt.m)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// fabric puts a root port above each of the two devices, and a network function in a subnet beside it.
func fabric(subnets ...string) func(*accel.Machine) {
	return func(m *accel.Machine) {
		m.Facts.Network = nil
		for i, a := range m.Have["qemu-edu"].Accelerators {
			root, nic := fmt.Sprintf("0000:00:1%d.0", i), fmt.Sprintf("0000:2%d:00.0", i)
			for n := range m.Facts.PCI {
				if m.Facts.PCI[n].Address == a.ID {
					m.Facts.PCI[n].ParentPort = root
				}
			}
			m.Facts.PCI = append(m.Facts.PCI, accel.PCIDevice{Address: root})
			m.Facts.PCI = append(m.Facts.PCI, accel.PCIDevice{Address: nic, ParentPort: root})
			m.Facts.Network = append(m.Facts.Network, accel.NetworkFunction{
				Address: nic, Ports: []string{root}, RDMA: []accel.RDMADevice{{
					Ports: []accel.RDMAPort{{Number: 1, State: "active", Subnet: subnets[i]}},
				}},
			})
		}
	}
}

// One label that the API server would refuse must not cost all the others.
func TestLabelsAreAcceptable(t *testing.T) {
	m := readyMachine(func(m *accel.Machine) {
		m.Facts.Kernel.Release = "6.1.0+" + strings.Repeat("very-long-", 20) + "µ"
		have := m.Have["qemu-edu"]
		have.Driver.Version = "///"
		long := kindOf(60)
		m.Have["qemu-edu"], m.Have[long] = have, have
		m.Status[long] = m.Status["qemu-edu"]
	})
	labels := Labels(m)
	if len(labels) == 0 {
		t.Fatal("no labels")
	}
	for k, v := range labels {
		if e := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(e) > 0 {
			t.Errorf("%s=%s: %v", k, v, e)
		}
	}
}

func TestLabelValue(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"6.12.9-1-lts", "6.12.9-1-lts"},
		{"6.1.0+deb", "6.1.0_deb"},
		{"  A100 SXM4 80GB ", "A100-SXM4-80GB"},
		{"", ""},
		{"_.-", ""},
		{"é", ""},
		{"x" + strings.Repeat("-", 70), "x"},
		{"[a]", "a"},
	} {
		if got := LabelValue(tt.in); got != tt.want {
			t.Errorf("LabelValue(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestShapes(t *testing.T) {
	for key, want := range map[string]bool{
		"acceld.dev/driver-container-old-kind": true, "acceld.dev/old-kind.count": true,
		"acceld.dev/old-kind.driver-version": true,
		"acceld.dev/host.numa-nodes":         true, "acceld.dev/host.vendor": true, "acceld.dev/host.name": false,
		"acceld.dev/state-fabric-old-kind": true, "acceld.dev/statement": false,
		"acceld.dev/host.fabric": true, "acceld.dev/host.rails": true,
		"acceld.dev/team": false, "acceld.dev/upgrade-window": false, "acceld.dev/not-ready": false,
		"other.dev/x.count": false,
	} {
		if ours(key) != want {
			t.Errorf("ours(%q) is %v", key, !want)
		}
	}
}

// upgrade adds a driver upgrade that waits for reason.
func upgrade(to string, reason accel.Reason) func(*accel.Machine) {
	return func(m *accel.Machine) {
		h := m.Have["qemu-edu"]
		h.Driver.Upgrade = &accel.Upgrade{
			From: accel.DriverRef{Version: "1"}, To: accel.DriverRef{Version: to},
			Why: "because", Wish: to, Phase: accel.UpgradeWaiting,
		}
		if reason != "" {
			h.Driver.Upgrade.Failure = &accel.Failure{Step: accel.StepUpgrade, Problem: accel.Problem{
				Reason:  reason,
				Message: "why",
			}}
		}
		m.Have["qemu-edu"] = h
	}
}

func driverOf(v string) func(*accel.Machine) {
	return func(m *accel.Machine) {
		h := m.Have["qemu-edu"]
		h.Driver.Serves, h.Driver.Version = true, v
		m.Have["qemu-edu"] = h
	}
}

// pulling is a machine that fetches a driver, of which no byte comes any more.
func pulling(m *accel.Machine) {
	m.Taken = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	have := m.Have["qemu-edu"]
	have.Work = []accel.Progress{{
		Kind: "qemu-edu", Stage: accel.StagePull, What: "registry.example/edu:2", Done: 45, Total: 100,
		Since: m.Taken.Add(-time.Minute), Moved: m.Taken.Add(-12 * time.Second),
	}}
	m.Have["qemu-edu"] = have
}

func TestCondition(t *testing.T) {
	for _, tt := range []struct {
		name    string
		m       accel.Machine
		status  corev1.ConditionStatus
		reason  string
		message string
	}{
		{"ready", readyMachine(), "True", "Ready", "qemu-edu: 2 usable"},
		{
			"upgrade", readyMachine(upgrade("2", "")), "True", "Ready",
			"qemu-edu: 2 usable; qemu-edu: upgrade from version 1 to version 2 is waiting",
		},
		{
			"upgrade in use", readyMachine(upgrade("2", accel.InUse)), "True", "Ready",
			"qemu-edu: 2 usable; qemu-edu: upgrade from version 1 to version 2 is waiting, InUse: why",
		},
		{
			"an upgrade is fetched", readyMachine(pulling), "True", "Ready",
			"qemu-edu: pulling registry.example/edu:2, 40 % since 11:59:00 UTC, no byte comes; qemu-edu: 2 usable",
		},
		{
			"a driver is fetched", readyMachine(pulling, at(accel.DriverMissing, 0)), "False", "InProgress",
			"qemu-edu is driver-missing; qemu-edu: pulling registry.example/edu:2, 40 % since 11:59:00 UTC, no byte comes",
		},
		{
			"a library is missing", readyMachine(func(m *accel.Machine) {
				have := m.Have["qemu-edu"]
				have.Runtime.LibraryMissing = accel.Problemf(accel.LibraryMissing, "no libedu.so.1")
				m.Have["qemu-edu"] = have
			}), "False", "LibraryMissing", "no libedu.so.1; qemu-edu: 2 usable",
		},
		{"idle", readyMachine(none), "True", "Idle", "no accelerator on this host"},
		{"moving", readyMachine(at(accel.DriverUnproven, 0)), "False", "InProgress", "qemu-edu is driver-unproven"},
		{
			"blocked", readyMachine(at(accel.DriverMissing, 0),
				blockedBy(accel.HeadersMissing, "no headers\nfor 6.12")),
			"False", "HeadersMissing", "qemu-edu is driver-missing: no headers for 6.12",
		},
		{
			"unhealthy", readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity error")), "False",
			"DeviceUnhealthy", "qemu-edu 0000:02:00.0 is unhealthy: parity error; qemu-edu: 2 usable",
		},
		{
			"gone", readyMachine(health(accel.Gone, accel.DeviceGone, "left the bus")), "False", "DeviceGone",
			"qemu-edu 0000:02:00.0 is gone: left the bus; qemu-edu: 1 usable",
		},
		{
			"sick partition", readyMachine(part(accel.Unhealthy, accel.DeviceFault, "ECC")), "False", "DeviceFault",
			"qemu-edu 0000:02:00.0-half-p0 is unhealthy: ECC; qemu-edu: 2 usable",
		},
		{
			"sick as its device", readyMachine(part(accel.Unhealthy, accel.DeviceFault, "ECC"),
				health(accel.Unhealthy, accel.DeviceFault, "ECC")), "False", "DeviceFault",
			"qemu-edu 0000:02:00.0 is unhealthy: ECC; qemu-edu: 1 usable",
		},
		{
			"divided otherwise", readyMachine(part(accel.Gone, accel.DeviceGone, "gone")), "True", "Ready",
			"qemu-edu: 2 usable",
		},
		{"one of two", readyMachine(func(m *accel.Machine) {
			m.Status["example-npu"] = accel.Status{State: accel.PluginMissing}
		}), "False", "InProgress", "example-npu is plugin-missing; qemu-edu: 2 usable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := corev1.NodeCondition{
				Type: "AcceleratorsReady", Status: tt.status, Reason: tt.reason,
				Message: tt.message,
			}
			want.Message = strings.Replace(want.Message, "parity error; qemu-edu: 2 usable",
				"parity error; qemu-edu: 1 usable", 1)
			if d := cmp.Diff(want, Condition(tt.m)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
	long := Condition(readyMachine(at(accel.DriverMissing, 0),
		blockedBy(accel.BuildFailed, strings.Repeat("ü", 5000)+"\xff")))
	if n := len(long.Message); n > maxMessage || n < maxMessage-4 {
		t.Errorf("a long message has %d bytes", n)
	}
}

// set puts a setting of the last device into a state.
func set(state accel.SettingState) func(*accel.Machine) {
	return func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Accelerators = slices.Clone(have.Accelerators)
		have.Accelerators[len(have.Accelerators)-1].Settings = []accel.SettingHave{
			{Name: "limit", Want: "7", Value: "5", State: state, Message: "why"},
		}
		m.Have["qemu-edu"] = have
	}
}

func TestTransitions(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to accel.Machine
		want     []news
	}{
		{"first machine, well", accel.Machine{}, readyMachine(), nil},
		{"first machine, blocked", accel.Machine{}, readyMachine(at(accel.DriverMissing, 0),
			blockedBy(accel.HeadersMissing, "no headers")), []news{
			{true, "HeadersMissing", "qemu-edu: driver-missing: no headers. Install the named package."},
		}},
		{"nothing", readyMachine(), readyMachine(temperature(50)), nil},
		{"on the way", readyMachine(at(accel.DriverMissing, 0)), readyMachine(at(accel.DriverUnproven, 0)), []news{
			{false, "DriverUnproven", "qemu-edu: driver-unproven, was driver-missing"},
		}},
		{"regression", readyMachine(), readyMachine(at(accel.PluginMissing, 2)), []news{
			{true, "PluginMissing", "qemu-edu: plugin-missing, was ready"},
		}},
		{
			"another reason", readyMachine(at(accel.DriverMissing, 0), blockedBy(accel.HeadersMissing, "a")),
			readyMachine(at(accel.DriverMissing, 0), blockedBy(accel.NoSpace, "b")),
			[]news{
				{true, "NoSpace", "qemu-edu: driver-missing: b. " + accel.NoSpace.Doc().Remedy},
			},
		},
		{
			"the same again", readyMachine(at(accel.DriverMissing, 0), blockedBy(accel.NoSpace, "a")),
			readyMachine(at(accel.DriverMissing, 0), blockedBy(accel.NoSpace, "b")), nil,
		},
		{
			"use without a request", readyMachine(), readyMachine(usedBy("sh")),
			[]news{{true, "UnrequestedUse", "qemu-edu: 0000:01:00.0 is in use without a request: " +
				"process 7 sh (of the host, in x.service). " + accel.UnrequestedUse.Doc().Remedy}},
		},
		{
			"reset", readyMachine(), readyMachine(repairOf(accel.RepairHave{State: accel.RepairRuns, Attempts: 1})),
			[]news{{false, "DeviceReset", "qemu-edu: 0000:01:00.0: it is being reset; reset once before"}},
		},
		{
			"no longer repaired", readyMachine(),
			readyMachine(repairOf(accel.RepairHave{State: accel.RepairGivenUp, Message: "it was reset 3 times"})),
			[]news{{true, "RepairGivenUp", "qemu-edu: 0000:01:00.0: given up: it was reset 3 times"}},
		},
		{
			"dry run", readyMachine(),
			readyMachine(repairOf(accel.RepairHave{State: accel.RepairWaits, Would: true, Message: "for a person"})),
			[]news{{false, "DeviceResetDryRun", "qemu-edu: 0000:01:00.0: waits for a person"}},
		},
		{"use that goes on", readyMachine(usedBy("sh")), readyMachine(usedBy("sh")), nil},
		{
			"upgrade wanted", readyMachine(), readyMachine(upgrade("2", "")),
			[]news{{false, "DriverUpgradePending", "qemu-edu: upgrade from version 1 to version 2: because"}},
		},
		{
			"upgrade waits", readyMachine(upgrade("2", "")), readyMachine(upgrade("2", accel.InUse)),
			[]news{{true, "InUse", "qemu-edu: upgrade to version 2: why. " + accel.InUse.Doc().Remedy}},
		},
		{"upgrade waits on", readyMachine(upgrade("2", accel.InUse)), readyMachine(upgrade("2", accel.InUse)), nil},
		{
			"upgraded", readyMachine(upgrade("2", "")), readyMachine(driverOf("2")),
			[]news{{false, "DriverUpgraded", "qemu-edu: the driver is version 2, was version 1"}},
		},
		{"upgrade called off", readyMachine(driverOf("1"), upgrade("2", "")), readyMachine(driverOf("1")), nil},
		{"fault", readyMachine(), readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity")), []news{
			{true, "DeviceUnhealthy", "qemu-edu: 0000:02:00.0 is unhealthy: parity"},
		}},
		{"recovery", readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity")), readyMachine(), []news{
			{false, "DeviceHealthy", "qemu-edu: 0000:02:00.0 is healthy, was unhealthy"},
		}},
		{
			"another fault", readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity")),
			readyMachine(health(accel.Unhealthy, accel.DeviceFault, "fire")),
			[]news{
				{true, "DeviceFault", "qemu-edu: 0000:02:00.0 is unhealthy: fire"},
			},
		},
		{"new device", readyMachine(func(m *accel.Machine) {
			m.Have["qemu-edu"] = accel.Have{Driver: m.Have["qemu-edu"].Driver}
		}), readyMachine(), nil},
		{
			"sick partition", readyMachine(part(accel.Healthy, "", "")),
			readyMachine(part(accel.Unhealthy, accel.DeviceFault, "ECC")),
			[]news{
				{true, "DeviceFault", "qemu-edu: 0000:02:00.0-half-p0 is unhealthy: ECC"},
			},
		},
		{
			"partition well again", readyMachine(part(accel.Unhealthy, accel.DeviceFault, "ECC")),
			readyMachine(part(accel.Healthy, "", "")),
			[]news{
				{false, "DeviceHealthy", "qemu-edu: 0000:02:00.0-half-p0 is healthy, was unhealthy"},
			},
		},
		{"device with a partition", readyMachine(part(accel.Healthy, "", "")), readyMachine(part(accel.Healthy, "", ""),
			health(accel.Unhealthy, accel.DeviceFault, "ECC")), []news{
			{true, "DeviceFault", "qemu-edu: 0000:02:00.0 is unhealthy: ECC"},
		}},
		{
			"a setting", readyMachine(), readyMachine(set(accel.SettingRefused)),
			[]news{
				{true, "SettingFailed", "qemu-edu: 0000:02:00.0: setting limit is 5, configured is 7: failed: why. " +
					accel.SettingFailed.Doc().Remedy},
			},
		},
		{"the same setting", readyMachine(set(accel.SettingRefused)), readyMachine(set(accel.SettingRefused)), nil},
		{
			"divided otherwise", readyMachine(part(accel.Healthy, "", "")),
			readyMachine(part(accel.Gone, accel.DeviceGone, "gone")), nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, transitions(tt.from, tt.to), cmp.AllowUnexported(news{})); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestMetadataPatch(t *testing.T) {
	want := &rendered{ready: true, labels: map[string]string{"acceld.dev/qemu-edu.count": "2", kernelLabel: "6.12"}}
	owned := func(manager string, keys ...string) metav1.ManagedFieldsEntry {
		raw := `{"f:metadata":{"f:labels":{`
		for i, k := range keys {
			raw += strings.Repeat(",", min(i, 1)) + `"f:` + k + `":{}`
		}
		f := &metav1.FieldsV1{}
		f.SetRawBytes([]byte(raw + `}}}`))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: f}
	}
	node := func(labels map[string]string, fields ...metav1.ManagedFieldsEntry) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "node-a", ResourceVersion: "7", Labels: labels,
			ManagedFields: fields,
		}}
	}
	both := map[string]string{"acceld.dev/qemu-edu.count": "2", kernelLabel: "6.12"}
	taint := corev1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "example.com/x", Effect: corev1.TaintEffectNoExecute}
	tainted := func(taints ...corev1.Taint) *corev1.Node {
		n := node(both)
		n.Spec.Taints = taints
		return n
	}
	for _, tt := range []struct {
		name    string
		node    *corev1.Node
		r       *rendered
		x       extent
		retaint bool
		want    string
	}{
		{"nothing to do", node(both), want, everything, false, ""},
		{"new", node(nil), want, everything, false, `{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"2","` +
			kernelLabel + `":"6.12"}}}`},
		{
			"no vendor's labels", node(map[string]string{"example.com/old": "x"}, owned("acceld", "example.com/old")),
			&rendered{labels: map[string]string{kernelLabel: "6.12", "example.com/gpu.family": "a"}}, withoutVendors, false,
			`{"metadata":{"labels":{"` + kernelLabel + `":"6.12"}}}`,
		},
		{
			"own labels only", node(nil), want, ownLabels, false,
			`{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"2"}}}`,
		},
		{
			"drift", node(map[string]string{"acceld.dev/qemu-edu.count": "9", kernelLabel: "6.12"}), want, everything,
			false, `{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"2"}}}`,
		},
		{
			"drift by a manager", node(map[string]string{"acceld.dev/qemu-edu.count": "9", kernelLabel: "6.12"},
				owned("kubectl-label", "acceld.dev/qemu-edu.count")), want, everything, false,
			`{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"2"}}}`,
		},
		{
			"left over and foreign", node(map[string]string{
				"acceld.dev/qemu-edu.count": "2", kernelLabel: "6.12",
				"acceld.dev/old-kind.count": "1", "acceld.dev/device-plugin-old-kind": "ready", "acceld.dev/team": "a",
				"x": "y",
			}), want, everything, false,
			`{"metadata":{"labels":{"acceld.dev/device-plugin-old-kind":null,"acceld.dev/old-kind.count":null}}}`,
		},
		{"another component's", node(map[string]string{"acceld.dev/qemu-edu.count": "2", kernelLabel: "6.1"},
			owned("nfd-master", kernelLabel)), want, everything, false, ""},
		{
			"nobody's", node(map[string]string{"acceld.dev/qemu-edu.count": "2", kernelLabel: "6.1"}), want, everything,
			false, "",
		},
		{"shared with another", node(map[string]string{"acceld.dev/qemu-edu.count": "2", kernelLabel: "6.1"},
			owned("acceld", kernelLabel), owned("nfd-master", kernelLabel)), want, everything, false, ""},
		{"own shared label", node(map[string]string{"acceld.dev/qemu-edu.count": "2", kernelLabel: "6.1"},
			owned("acceld", kernelLabel)), want, everything, false, `{"metadata":{"labels":{"` + kernelLabel +
			`":"6.12"}}}`},
		{
			"own shared label left over", node(map[string]string{kernelLabel: "6.1", pciLabel("1234"): "true"},
				owned("acceld", kernelLabel), owned("nfd", pciLabel("1234"))), &rendered{}, everything, false,
			`{"metadata":{"labels":{"` + kernelLabel + `":null}}}`,
		},
		{"unreadable claims", node(both, metav1.ManagedFieldsEntry{Manager: "x"}), want, everything, false, ""},
		{
			"taint goes", tainted(taint, other), want, everything, false,
			`{"metadata":{"resourceVersion":"7"},"spec":{"taints":[{"key":"example.com/x","effect":"NoExecute"}]}}`,
		},
		{
			"last taint goes", tainted(taint), want, everything, false,
			`{"metadata":{"resourceVersion":"7"},"spec":{"taints":[]}}`,
		},
		{"taint stays", tainted(taint, other), &rendered{labels: both}, everything, false, ""},
		{"taint is not put back", tainted(other), &rendered{labels: both}, everything, false, ""},
		{
			"taint is put back", tainted(other), &rendered{labels: both}, everything, true,
			`{"metadata":{"resourceVersion":"7"},"spec":{"taints":[{"key":"example.com/x","effect":"NoExecute"},{"key":"acceld.dev/not-ready","effect":"NoSchedule"}]}}`,
		},
		{
			"another effect is another's", tainted(corev1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoExecute}),
			want,
			everything, false, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, string(metadataPatch(tt.node, tt.r, tt.x, tt.retaint))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
