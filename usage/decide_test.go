package usage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const (
	device0 = "0000:01:00.0"
	device1 = "0000:02:00.0"
	podA    = "11111111-2222-3333-4444-555555555555"
	podB    = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
)

// node is the node of the device with a number; letters after it are of partitions.
func node(name string, minor uint32) accel.DeviceNode {
	return accel.DeviceNode{Path: "/dev/npu" + name, Major: 240, Minor: minor}
}

// two are two devices of a kind, the second of which is divided: its first part comes with the node of the device.
func two() []accel.Accelerator {
	whole, part := node("1", 1), func(n string, minor uint32, more ...accel.DeviceNode) accel.Accelerator {
		return accel.Accelerator{
			ID: device1 + "-half-" + n, Parent: device1, Profile: "half", UUID: "PART-" + n,
			Nodes: append([]accel.DeviceNode{node("1"+n, minor)}, more...),
		}
	}
	return []accel.Accelerator{
		{ID: device0, UUID: "NPU-0", Nodes: []accel.DeviceNode{node("0", 0)}},
		{ID: device1, Nodes: []accel.DeviceNode{whole}, Partitions: []accel.Accelerator{part("a", 11, whole), part("b", 12)}},
	}
}

func machineOf(kinds map[string][]accel.Accelerator) accel.Machine {
	m := accel.Machine{Have: map[string]accel.Have{}}
	for kind, all := range kinds {
		m.Have[kind] = accel.Have{Accelerators: all}
	}
	return m
}

func inPod(uid string, nodes ...string) host.Opener {
	return host.Opener{PID: 7, Comm: "train", Pod: uid, Container: strings.Repeat("c", 64), Nodes: nodes}
}

// names are those of podA alone.
func names(uid string) (namespace, pod string) {
	if uid == podA {
		return "team", "a"
	}
	return "", ""
}

func TestDecide(t *testing.T) {
	const n0, n1, n1a, n1b = "/dev/npu0", "/dev/npu1", "/dev/npu1a", "/dev/npu1b"
	to := func(unit, uid string) Grant { return Grant{Unit: unit, PodUID: uid} }
	other, partA, partB := device1+" "+device0, device1+"-half-a", device1+"-half-b"
	alone := func(nodes ...string) host.Opener { return host.Opener{Container: "c", Nodes: nodes} }
	named := func(unit, namespace, pod string) Grant { return Grant{Unit: unit, Namespace: namespace, Pod: pod} }
	for name, c := range map[string]struct {
		opener host.Opener
		grants []Grant
		report accel.UnrequestedReport
		want   string // each suspect as device, what was given
	}{
		"a privileged pod":                    {opener: inPod(podA, n0), want: device0},
		"another has it":                      {opener: inPod(podA, n0), grants: []Grant{to(device0, podB)}, want: device0},
		"its own":                             {opener: inPod(podA, n0), grants: []Grant{to(device0, podA)}},
		"its own by name":                     {opener: inPod(podA, n0), grants: []Grant{named(device0, "team", "a")}},
		"of a namesake":                       {opener: inPod(podA, n0), grants: []Grant{named(device0, "other", "a")}, want: device0},
		"of another in the namespace":         {opener: inPod(podA, n0), grants: []Grant{named(device0, "team", "b")}, want: device0},
		"of a claim of whose pods none knows": {opener: inPod(podA, n0), grants: []Grant{named(device0, "team", "")}},
		"of such a claim of others":           {opener: inPod(podA, n0), grants: []Grant{named(device0, "x", "")}, want: device0},
		"no name, and only names have it":     {opener: inPod(podB, n0), grants: []Grant{named(device0, "team", "a")}},
		"no name, and who has it is known":    {opener: inPod(podB, n0), grants: []Grant{named(device0, "team", "a"), to(device0, podA)}, want: device0},
		"no name, and names have others":      {opener: inPod(podB, n0), grants: []Grant{named(device1, "team", "a")}, want: device0 + " " + device1},
		"another device than its own":         {opener: inPod(podA, n1), grants: []Grant{to(device0, podA)}, want: other},
		"its own and another":                 {opener: inPod(podA, n0, n1), grants: []Grant{to(device0, podA)}, want: other},
		"both without":                        {opener: inPod(podA, n0, n1), want: device0 + ", " + device1},
		"shared by two":                       {opener: inPod(podA, n0), grants: []Grant{to(device0, podB), to(device0, podA)}},
		"by the vendor's own plugin":          {opener: inPod(podA, n0), grants: []Grant{to("NPU-0", podA)}},
		"a device with its parts":             {opener: inPod(podA, n1, n1a, n1b), grants: []Grant{to(device1, podA)}},
		"a part that comes with the device":   {opener: inPod(podA, n1, n1a), grants: []Grant{to(partA, podA)}},
		"the same by its UUID":                {opener: inPod(podA, n1, n1a), grants: []Grant{to("PART-a", podA)}},
		"a part alone":                        {opener: inPod(podA, n1b), grants: []Grant{to(partB, podA)}},
		"the whole of a part":                 {opener: inPod(podA, n1), grants: []Grant{to(partB, podA)}, want: device1 + " " + partB},
		"another part":                        {opener: inPod(podA, n1b), grants: []Grant{to(partA, podA)}, want: device1 + " " + partA},
		"a part that is no more":              {opener: inPod(podA, n1), grants: []Grant{to(device1+"-quarter-a", podA)}},
		"a node of no single device":          {opener: inPod(podA, "/dev/npuctl")},
		"a container of no pod":               {opener: alone(n0), grants: []Grant{to(device0, podA)}, want: device0},
		"a container of no pod, where it is":  {opener: alone(n0), report: accel.ReportContainers, want: device0},
		"a process of the host":               {opener: host.Opener{Nodes: []string{n0}}, grants: []Grant{to(device0, podA)}, want: device0},
		"of the host, where none is reported": {opener: host.Opener{Nodes: []string{n0}}, report: accel.ReportContainers},
		"of the host, with a grant of nobody": {opener: host.Opener{Nodes: []string{n0}}, grants: []Grant{to(device0, "")}, want: device0},
		"a daemon of the driver":              {opener: host.Opener{Unit: "daemon.service", Nodes: []string{n0, n1}}},
		"a pod that may use every device":     {opener: host.Opener{Pod: podA, Unit: "daemon.service", Nodes: []string{n0}}},
		"two containers, one of which asks":   {opener: inPod(podA, n0), grants: []Grant{to(device0, podA), to(device1, podB)}},
		"two nodes of one device, once":       {opener: inPod(podA, n1, n1b), want: device1},
		"its part, and the other one":         {opener: inPod(podA, n1a, n1b), grants: []Grant{to("PART-a", podA)}, want: device1 + " " + partA},
	} {
		t.Run(name, func(t *testing.T) {
			devices := two()
			_, own := Own(machineOf(map[string][]accel.Accelerator{"npu": devices}), []accel.DeviceNode{{Path: "/dev/npuctl"}})
			var got []string
			for _, s := range Decide(Case{
				Def:     &accel.Definition{Unrequested: &accel.Unrequested{Report: c.report}},
				Devices: devices, Own: own, Openers: []host.Opener{c.opener}, Grants: c.grants, Name: names,
				Expected: func(o host.Opener) bool { return o.Unit == "daemon.service" },
			}) {
				got = append(got, strings.TrimSpace(s.Device+" "+strings.Join(s.Given, "+")))
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("%q, want %q", text, c.want)
			}
		})
	}
}

// TestOwn: a node that belongs to several devices, of one kind or of two, or is known as one that they share, says
// nothing about one of them. Numbers decide as well as paths.
func TestOwn(t *testing.T) {
	a := accel.Accelerator{ID: device0, Nodes: []accel.DeviceNode{node("0", 0), node("ctl", 255), node("link0", 9)}}
	b := accel.Accelerator{ID: device1, Nodes: []accel.DeviceNode{node("1", 1), node("ctl", 255)}}
	b.Partitions = []accel.Accelerator{{ID: device1 + "-half-a", Parent: device1, Nodes: []accel.DeviceNode{node("1", 1)}}}
	other := accel.Accelerator{ID: "0000:03:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/link", Major: 240, Minor: 9}}}
	disk := accel.Accelerator{ID: "0000:04:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/x"}, {Path: "/dev/all"}}}
	m := machineOf(map[string][]accel.Accelerator{"npu": {a, b}, "link": {other}, "disk": {disk}})
	nodes, of := Own(m, []accel.DeviceNode{{Path: "/dev/all"}})
	want := map[string]string{"/dev/npu0": device0, "/dev/npu1": device1, "/dev/x": "0000:04:00.0"}
	if diff := cmp.Diff(want, of); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := fmt.Sprint(nodes); text != "[{/dev/npu0 240 0} {/dev/npu1 240 1} {/dev/x 0 0}]" {
		t.Error(text)
	}
}
