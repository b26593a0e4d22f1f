package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/acceld/acceld/accel"
)

const askingForVFIO = `{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","use":"vfio"}`

// giver gives devices to VFIO as the agent does, and notes for whom.
type giver struct {
	problem *accel.Problem
	gave    []string
}

func (g *giver) of(p *Plugin) *giver {
	def := *p.cfg.Definition
	def.VFIO = &accel.VFIO{Ask: accel.AskByClaim}
	p.Redefine(&def)
	p.cfg.Give = func(_ context.Context, _ *accel.Definition, a accel.Accelerator, claim, name string) (
		accel.Accelerator, *accel.Problem,
	) {
		g.gave = append(g.gave, a.ID+" "+claim+" "+name)
		if g.problem != nil {
			return a, g.problem
		}
		return vfio(a, claim), nil
	}
	return g
}

// vfio is a device that a claim has with VFIO.
func vfio(a accel.Accelerator, claim string) accel.Accelerator {
	a.Switched = &accel.Switched{Use: accel.UseVFIO, Driver: "vfio-pci", From: "edu", Claim: claim, Name: "team/c"}
	a.Bound, a.Nodes = "vfio-pci", []accel.DeviceNode{{Path: "/dev/vfio/7"}}
	a.WithholdSwitched()
	return a
}

// TestUse follows a claim that asks for VFIO.
func TestUse(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	g := (&giver{problem: accel.Problemf(accel.GroupShared, "IOMMU group 7 also has function x")}).of(p)
	b.server.allocate("c", "u-1", "gpus=0000-01-00-0", "more=0000-01-00-0")
	b.server.configure("c", nil, askingForVFIO)
	if ids, fault := prepare(t, p, "c", "u-1"); len(ids) > 0 || !strings.Contains(fault, "GroupShared") ||
		!strings.Contains(fault, "claim team/c") || b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Errorf("%v %q", ids, fault)
	}
	if !b.there(fmt.Sprintf(recordIn, "u-1")) || !Prepared(b.host, "/var/lib/acceld", "qemu-edu", "u-1") {
		t.Error("the record has to come first: without it, the device is given back")
	}
	g.problem = nil
	ids, fault := prepare(t, p, "c", "u-1")
	if fault != "" || len(ids) != 2 {
		t.Fatal(ids, fault)
	}
	if diff := cmp.Diff([]string{"0000:01:00.0 u-1 team/c", "0000:01:00.0 u-1 team/c"}, g.gave); diff != "" {
		t.Error(diff)
	}
	spec, err := cdi.ParseSpec([]byte(b.file(fmt.Sprintf(specOf, "u-1"))))
	if err != nil {
		t.Fatal(err)
	}
	e := spec.Devices[0].ContainerEdits
	if len(spec.Devices) != 1 || len(e.DeviceNodes) != 1 || e.DeviceNodes[0].Path != "/dev/vfio/7" || len(e.Mounts) != 2 ||
		len(spec.ContainerEdits.Env) > 0 {
		t.Errorf("the spec is %+v", spec)
	}
	// The agent now reports the device as it is: it stays this claim's, and no other claim gets it.
	p.Update([]accel.Accelerator{vfio(edu(1), "u-1"), edu(2)})
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Error(fault)
	}
	b.server.allocate("other", "u-2", "r=0000-01-00-0")
	if _, fault := prepare(t, p, "other", "u-2"); !strings.Contains(fault, "OtherUse") {
		t.Error(fault)
	}
	b.host.RemoveAll("/var/run/cdi")
	b.mkdir("/var/run/cdi")
	p.Update([]accel.Accelerator{edu(1), edu(2)}) // on the way: its spec would have the wrong nodes
	p.renew("u-1")
	if b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Error("a spec for a device that has its kind's driver")
	}
	p.Update([]accel.Accelerator{vfio(edu(1), "u-1"), edu(2)})
	p.renew("u-1")
	if !b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Error("no spec")
	}
	if fault := unprepare(t, p, "u-1"); fault != "" || Prepared(b.host, "/var/lib/acceld", "qemu-edu", "u-1") ||
		b.there("/run/acceld/metadata/qemu-edu.acceld.dev/u-1") {
		t.Error("something is left:", fault)
	}
}

// TestUseSurvives: an agent that starts again knows the use from the record; one that knows no uses does not read it.
func TestUseSurvives(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(1)...)
	(&giver{}).of(p)
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	b.server.configure("c", nil, askingForVFIO)
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Fatal(fault)
	}
	var r record
	if err := json.Unmarshal([]byte(b.file(fmt.Sprintf(recordIn, "u-1"))), &r); err != nil || r.Version != 2 ||
		r.Devices[0].Use != accel.UseVFIO {
		t.Errorf("%+v %v", r, err)
	}
	b.server.allocate("plain", "u-2", "r=0000-02-00-0")
	p.Update(edus(2))
	if _, fault := prepare(t, p, "plain", "u-2"); fault != "" || !strings.Contains(b.file(fmt.Sprintf(recordIn, "u-2")), `"version":1`) {
		t.Error("an older agent could not read the record of a claim without a use:", fault)
	}
}

// TestUseRefused has a row for each request that is refused before anything is changed.
func TestUseRefused(t *testing.T) {
	for name, c := range map[string]struct {
		devices, parameters string
		change              func(*accel.Definition)
		says                string
	}{
		"unknown":      {"r=0000-01-00-0", strings.Replace(askingForVFIO, "vfio", "uio", 1), nil, `"uio" is not "vfio"`},
		"not allowed":  {"r=0000-01-00-0", askingForVFIO, func(d *accel.Definition) { d.VFIO = nil }, "does not give devices out"},
		"by the class": {"r=0000-01-00-0", askingForVFIO, func(d *accel.Definition) { d.VFIO.Ask = "" }, "only a device class"},
		"a share":      {"r=0000-01-00-0/s", askingForVFIO, nil, "others use at the same time"},
		"admin access": {"r=0000-01-00-0!", askingForVFIO, nil, "others use at the same time"},
	} {
		b := newBed(t)
		p := b.plugin(edus(1)...)
		g := (&giver{}).of(p)
		if c.change != nil {
			def := *p.list.load().def
			v := *def.VFIO
			def.VFIO = &v
			c.change(&def)
			p.Redefine(&def)
		}
		b.server.allocate("c", "u-1", c.devices)
		b.server.configure("c", nil, c.parameters)
		if ids, fault := prepare(t, p, "c", "u-1"); len(ids) > 0 || !strings.Contains(fault, c.says) || len(g.gave) > 0 {
			t.Errorf("%s: %v %q %v", name, ids, fault, g.gave)
		}
	}
	// The class may ask where claims may not.
	def := &accel.Definition{Kind: "a-b", VFIO: &accel.VFIO{}}
	set, err := configured([]configuration{{
		Source: "FromClass", Opaque: &opaque{Driver: "d", Parameters: json.RawMessage(askingForVFIO)},
	}}, "d", "r", def)
	if err != nil || set.use != accel.UseVFIO || !set.metadata {
		t.Error(set, err)
	}
}

// TestUseOfAPart: only whole devices are given out otherwise.
func TestUseOfAPart(t *testing.T) {
	b := newBed(t)
	part := edu(1)
	part.ID, part.Parent, part.Profile = "0000:01:00.0-half-p0", "0000:01:00.0", "half"
	p := b.plugin(part)
	g := (&giver{}).of(p)
	b.server.allocate("c", "u-1", "r=0000-01-00-0-half-p0")
	b.server.configure("c", nil, askingForVFIO)
	if _, fault := prepare(t, p, "c", "u-1"); !strings.Contains(fault, "SwitchRefused") || len(g.gave) > 0 {
		t.Error(fault, g.gave)
	}
}

// TestMetadata: the files have the content and the places that readers of KEP-5304 look for.
func TestMetadata(t *testing.T) {
	b := newBed(t)
	b.pci = []accel.PCIDevice{{Address: "0000:01:00.0", Vendor: "1234", Device: "11e8"}}
	p := b.plugin(edus(2)...)
	b.server.allocate("c", "u-1", "gpus/big=0000-01-00-0", "gpus/big=0000-02-00-0", "plain=0000-02-00-0!")
	b.server.configure("c", []string{"gpus"}, `{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","metadata":true}`)
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Fatal(fault)
	}
	text := b.file("/run/acceld/metadata/qemu-edu.acceld.dev/u-1/gpus.json")
	decode := json.NewDecoder(strings.NewReader(text))
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		var m struct {
			Kind, APIVersion string
			Metadata         struct{ Name, Namespace, UID string }
			Requests         []struct {
				Name    string
				Devices []struct {
					Driver, Pool, Name string
					Attributes         map[string]struct{ String string }
				}
			}
		}
		if err := decode.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Kind != "DeviceMetadata" || m.APIVersion != "metadata.resource.k8s.io/"+version || m.Metadata.UID != "u-1" ||
			len(m.Requests) != 1 || m.Requests[0].Name != "gpus/big" || len(m.Requests[0].Devices) != 2 {
			t.Fatalf("%+v", m)
		}
		if d := m.Requests[0].Devices[0]; d.Driver != "qemu-edu.acceld.dev" || d.Pool != node || d.Name != "0000-01-00-0" ||
			d.Attributes[pciBusID].String != "0000:01:00.0" || d.Attributes["vendorID"].String != "1234" {
			t.Errorf("%+v", d)
		}
	}
	if b.there("/run/acceld/metadata/qemu-edu.acceld.dev/u-1/plain.json") {
		t.Error("a request that did not ask for it has a file")
	}
	mounts := (metadata{p}).mounts(p.book.records["u-1"], p.book.records["u-1"].Devices[0])
	if len(mounts) != 1 || mounts[0].ContainerPath !=
		"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/gpus/qemu-edu.acceld.dev-metadata.json" {
		t.Errorf("%+v", mounts)
	}
	if more := (metadata{p}).mounts(p.book.records["u-1"], p.book.records["u-1"].Devices[1]); len(more) > 0 {
		t.Error("mounted twice in a container")
	}
	if fault := unprepare(t, p, "u-1"); fault != "" || b.there("/run/acceld/metadata/qemu-edu.acceld.dev/u-1") {
		t.Error(fault)
	}
}

// TestMetadataOfATemplate: containers look for the name that the claim has in its pod.
func TestMetadataOfATemplate(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(1)...)
	r := record{Name: "pod-x-7", PodClaim: "card", UID: "u", Devices: []given{{Request: "r", Device: "d", Metadata: true}}}
	if m := (metadata{p}).mounts(r, r.Devices[0]); len(m) != 1 || !strings.Contains(m[0].ContainerPath, "/resourceclaimtemplates/card/r/") {
		t.Errorf("%+v", m)
	}
}

// FuzzMetadataPath: no name of a claim leads out of the directory for metadata, in the container or on the host.
func FuzzMetadataPath(f *testing.F) {
	for _, seed := range [][3]string{{"c", "r", ""}, {"..", "r", "x"}, {"c", "../../etc", "p"}, {"c", "r/alt", "../p"}, {"a.b", "r", "p"}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	b := newBed(f)
	p := b.plugin(edus(1)...)
	f.Fuzz(func(t *testing.T, claim, request, pod string) {
		r := record{Name: claim, UID: "u", PodClaim: pod, Devices: []given{{Request: request, Device: "d", Metadata: true}}}
		if r.misnamed() != "" {
			return
		}
		for _, m := range (metadata{p}).mounts(r, r.Devices[0]) {
			if m.ContainerPath != path.Clean(m.ContainerPath) || strings.Count(m.ContainerPath, "/") != 8 ||
				!strings.HasPrefix(m.ContainerPath, containerDir+"/") ||
				!strings.HasPrefix(m.HostPath, metadataDir+"/"+p.driver+"/u/") ||
				strings.Count(m.HostPath, "/") != 6 {
				t.Fatalf("%+v", m)
			}
		}
	})
}
