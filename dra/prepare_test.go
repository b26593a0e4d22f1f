package dra

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/acceld/acceld/accel"
)

func (b *bed) file(name string) string {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, name))
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

func (b *bed) there(name string) bool {
	_, err := os.Stat(filepath.Join(b.root, name))
	return err == nil
}

const (
	specOf   = "/var/run/cdi/acceld-claim-qemu-edu.acceld.dev-%s.json"
	recordIn = "/var/lib/acceld/dra/qemu-edu/%s.json"
)

func TestPrepare(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.server.allocate("c", "u-1", "gpus=0000-01-00-0", "gpus=0000-02-00-0", "other=0000-02-00-0!")
	b.server.configure("c", []string{"gpus"},
		`{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","env":{"MODE":"fast"}}`)
	ids, fault := prepare(t, p, "c", "u-1")
	want := []string{
		"qemu-edu.acceld.dev/claim=u-1-0000-01-00-0", "qemu-edu.acceld.dev/claim=u-1-0000-02-00-0",
		"qemu-edu.acceld.dev/claim=u-1-0000-02-00-0-admin",
	}
	if diff := cmp.Diff(want, ids); diff != "" || fault != "" {
		t.Fatalf("%s: %s", fault, diff)
	}
	spec, err := cdi.ParseSpec([]byte(b.file(fmt.Sprintf(specOf, "u-1"))))
	if err != nil {
		t.Fatal(err)
	}
	if len(spec.Devices) != 3 || spec.Devices[0].ContainerEdits.DeviceNodes[0].Path != "/dev/edu1" ||
		spec.ContainerEdits.Env[0] != "EDU=1" {
		t.Errorf("the spec is %+v", spec)
	}
	if diff := cmp.Diff([]string{"MODE=fast"}, spec.Devices[0].ContainerEdits.Env); diff != "" ||
		spec.Devices[2].ContainerEdits.Env != nil {
		t.Errorf("environment: %s, %v", diff, spec.Devices[2].ContainerEdits.Env)
	}
	// Prepare again, and again after a reboot with an agent that knows only what is on disk.
	before := b.file(fmt.Sprintf(recordIn, "u-1"))
	again, _ := prepare(t, p, "c", "u-1")
	os.RemoveAll(filepath.Join(b.root, "/var/run/cdi"))
	p = b.plugin(edus(2)...)
	if problem := p.book.open(); problem != nil {
		t.Fatal(problem)
	}
	rebooted, fault := prepare(t, p, "c", "u-1")
	if !cmp.Equal(ids, again) || !cmp.Equal(ids, rebooted) || fault != "" || !b.there(fmt.Sprintf(specOf, "u-1")) ||
		b.file(fmt.Sprintf(recordIn, "u-1")) != before {
		t.Errorf("prepared again: %v, after the reboot: %v %s", again, rebooted, fault)
	}
	if fault := unprepare(t, p, "u-1") + unprepare(t, p, "u-1"); fault != "" || b.there(fmt.Sprintf(specOf, "u-1")) ||
		b.there(fmt.Sprintf(recordIn, "u-1")) {
		t.Errorf("taken back: %s", fault)
	}
}

// TestAlternatives: the kubelet gets the request that a container names; a configuration may name the alternative.
func TestAlternatives(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.server.allocate("c", "u-1", "gpu/big=0000-01-00-0", "gpu2/small=0000-02-00-0")
	b.server.configure("c", []string{"gpu"},
		`{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","env":{"A":"1"}}`)
	b.server.configure("c", []string{"gpu2/small"},
		`{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","env":{"B":"2"}}`)
	b.server.configure("c", []string{"gpu2/other"},
		`{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","env":{"C":"3"}}`)
	resp, err := claims{Plugin: p}.NodePrepareResources(t.Context(),
		&drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{ref("c", "u-1")}})
	if err != nil {
		t.Fatal(err)
	}
	var requests []string
	for _, d := range resp.GetClaims()["u-1"].GetDevices() {
		requests = append(requests, d.GetRequestNames()...)
	}
	r, _ := p.book.get("u-1")
	if diff := cmp.Diff([]string{"gpu", "gpu2"}, requests); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]string{{"A=1"}, {"B=2"}}, [][]string{r.Devices[0].Env, r.Devices[1].Env}); diff != "" {
		t.Error(diff)
	}
}

func TestPrepareRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(*bed, *Plugin)
		words []string
	}{
		{"no claim", func(b *bed, _ *Plugin) { b.server.release("c") }, []string{"team/c", "there is none"}},
		{"another claim of the name", func(b *bed, _ *Plugin) {
			b.server.allocate("c", "u-2", "r=0000-01-00-0")
		}, []string{"team/c", "u-1", "u-2"}},
		{"not allocated", func(b *bed, _ *Plugin) {
			x := b.server.claims["c"]
			x.Status.Allocation = nil
			b.server.claims["c"] = x
		}, []string{"team/c", "not allocated"}},
		{"another node's pool", func(b *bed, _ *Plugin) {
			b.server.claims["c"].Status.Allocation.Devices.Results[0].Pool = "node-b"
		}, []string{"results[0]", `"node-b"`}},
		{"no such device", func(b *bed, _ *Plugin) {
			b.server.allocate("c", "u-1", "r=0000-09-00-0")
		}, []string{"0000-09-00-0", "DeviceGone"}},
		{"sick", func(_ *bed, p *Plugin) {
			p.Update([]accel.Accelerator{sick(edu(1))})
		}, []string{"ecc error", "DeviceUnhealthy"}},
		{"no node", func(_ *bed, p *Plugin) {
			a := edu(1)
			a.Nodes = nil
			p.Update([]accel.Accelerator{a})
		}, []string{"NodeMissing"}},
		{"a misspelt parameter", func(b *bed, _ *Plugin) {
			b.server.configure("c", nil, `{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","environ":{}}`)
		}, []string{"team/c", "config[0].opaque.parameters", `"environ"`}},
		{"a parameter that the kind sets", func(b *bed, _ *Plugin) {
			b.server.configure("c", nil,
				`{"apiVersion":"acceld.dev/v1alpha1","kind":"DeviceParameters","env":{"EDU":"2"}}`)
		}, []string{"config[0].opaque.parameters.env", `"EDU"`}},
		{"somebody else's parameters", func(b *bed, _ *Plugin) {
			b.server.configure("c", nil, `{"apiVersion":"gpu.example/v1","kind":"GpuConfig"}`)
		}, []string{"config[0]", "GpuConfig", "DeviceParameters"}},
		{"no rights", func(b *bed, _ *Plugin) {
			b.server.refusing(func(string, string) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "resourceclaims"}, "c", errors.New("no"))
			})
		}, []string{"APIForbidden"}},
		{"retired", func(_ *bed, p *Plugin) { p.Retire() }, []string{"not given out by claims"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			p := b.plugin(edu(1))
			b.server.allocate("c", "u-1", "r=0000-01-00-0")
			c.do(b, p)
			ids, fault := prepare(t, p, "c", "u-1")
			for _, w := range c.words {
				if !strings.Contains(fault, w) {
					t.Errorf("%q does not say %q", fault, w)
				}
			}
			if len(ids) > 0 || b.there(fmt.Sprintf(specOf, "u-1")) {
				t.Errorf("given all the same: %v", ids)
			}
			if fault := unprepare(t, p, "u-1"); fault != "" {
				t.Errorf("cannot be taken back: %s", fault)
			}
		})
	}
}

// TestOneClaimPerDevice is the last line of defence: a device is given to one claim only, unless it is shared, the
// access is administrative, or the API server says that the other claim is over.
func TestOneClaimPerDevice(t *testing.T) {
	for _, c := range []struct {
		name, first, second string
		over, refused       bool
	}{
		{"exclusive", "r=0000-01-00-0", "r=0000-01-00-0", false, true},
		{"another device", "r=0000-01-00-0", "r=0000-02-00-0", false, false},
		{"admin beside it", "r=0000-01-00-0", "r=0000-01-00-0!", false, false},
		{"shares", "r=0000-01-00-0/s-1", "r=0000-01-00-0/s-2", false, false},
		{"a share of what is given whole", "r=0000-01-00-0", "r=0000-01-00-0/s-2", false, true},
		{"the other is over", "r=0000-01-00-0", "r=0000-01-00-0", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			p := b.plugin(edus(2)...)
			b.server.allocate("a", "u-a", c.first)
			b.server.allocate("b", "u-b", c.second)
			if _, fault := prepare(t, p, "a", "u-a"); fault != "" {
				t.Fatal(fault)
			}
			if c.over {
				b.server.release("a")
			}
			_, fault := prepare(t, p, "b", "u-b")
			if (fault != "") != c.refused || c.refused && !strings.Contains(fault, "claim team/a (u-a)") {
				t.Errorf("refused %v, want %v: %s", fault != "", c.refused, fault)
			}
			if b.there(fmt.Sprintf(specOf, "u-a")) == c.over {
				t.Errorf("the first claim's spec is there: %v", !c.over)
			}
		})
	}
}

func TestShareIsTold(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	b.server.allocate("c", "u-1", "r=0000-01-00-0/s-1")
	ids, fault := prepare(t, p, "c", "u-1")
	if fault != "" || len(ids) != 1 || ids[0] != "qemu-edu.acceld.dev/claim=u-1-0000-01-00-0-s-1" {
		t.Fatalf("%v %s", ids, fault)
	}
	if spec := b.file(fmt.Sprintf(specOf, "u-1")); !strings.Contains(spec, "ACCELD_MEMORY_0000_01_00_0=5368709120") {
		t.Errorf("the container is not told its part: %s", spec)
	}
}

// TestAdminSeesSick: a claim with admin access gets an unhealthy device.
func TestAdminSeesSick(t *testing.T) {
	b := newBed(t)
	p := b.plugin(sick(edu(1)))
	b.server.allocate("c", "u-1", "r=0000-01-00-0!")
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Error(fault)
	}
}

// TestAPIServerAway: without the API server, pods that have their devices continue, and others wait.
func TestAPIServerAway(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.server.allocate("a", "u-a", "r=0000-01-00-0")
	b.server.allocate("b", "u-b", "r=0000-02-00-0")
	ids, _ := prepare(t, p, "a", "u-a")
	b.server.refusing(func(string, string) error { return errors.New("connection refused") })
	again, fault := prepare(t, p, "a", "u-a")
	if fault != "" || !cmp.Equal(ids, again) {
		t.Errorf("a prepared claim: %v %s", again, fault)
	}
	if _, fault := prepare(t, p, "b", "u-b"); !strings.Contains(fault, "APIUnreachable") {
		t.Errorf("a new claim: %q", fault)
	}
	if fault := unprepare(t, p, "u-a"); fault != "" {
		t.Error(fault)
	}
}

// TestHolders: whom a claim is reserved for, the API server alone knows; a claim that it does not have is for nobody
// else.
func TestHolders(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(2)...)
	b.server.allocate("a", "u-a", "r=0000-01-00-0")
	prepare(t, p, "a", "u-a")
	if got, known := p.Holders(t.Context()); len(got) != 1 || got[0].Device != "0000:01:00.0" || !known {
		t.Errorf("%v, known %t", got, known)
	}
	b.server.mu.Lock()
	delete(b.server.claims, "a")
	b.server.mu.Unlock()
	if got, known := p.Holders(t.Context()); len(got) != 1 || !known {
		t.Errorf("a claim that was deleted: %v, known %t", got, known)
	}
	b.server.refusing(func(string, string) error { return errors.New("connection refused") })
	if got, known := p.Holders(t.Context()); len(got) != 1 || known {
		t.Errorf("the API server is away: %v, known %t", got, known)
	}
}

// TestDamagedRecord: a record that cannot be read affects no other claim, and its own claim can be prepared and
// unprepared.
func TestDamagedRecord(t *testing.T) {
	for name, text := range map[string]string{
		"cut off": `{"version":1,"names`, "empty": "",
		"of another claim": `{"version":1,"namespace":"x","name":"y","uid":"z"}`,
		"of tomorrow":      `{"version":2,"uid":"u-a"}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			p := b.plugin(edus(2)...)
			b.server.allocate("a", "u-a", "r=0000-01-00-0")
			b.server.allocate("b", "u-b", "r=0000-02-00-0")
			prepare(t, p, "a", "u-a")
			prepare(t, p, "b", "u-b")
			if err := os.WriteFile(filepath.Join(b.root, fmt.Sprintf(recordIn, "u-a")), []byte(text),
				0o600); err != nil {
				t.Fatal(err)
			}
			p = b.plugin(edus(2)...)
			if problem := p.book.open(); problem != nil {
				t.Fatal(problem)
			}
			if _, known := p.book.get("u-b"); !known {
				t.Error("the other record is lost")
			}
			if held, known := p.Held(); known || len(held) != 1 {
				t.Errorf("held: %v %v, though nobody knows what the claim holds", held, known)
			}
			if _, fault := prepare(t, p, "a", "u-a"); fault != "" {
				t.Error(fault)
			}
			if r, known := p.book.get("u-a"); !known || len(r.Devices) != 1 {
				t.Errorf("the record is not made again: %+v", r)
			}
			if held, known := p.Held(); !known || len(held) != 2 {
				t.Errorf("held: %v %v", held, known)
			}
			if fault := unprepare(t, p, "u-a"); fault != "" || b.there(fmt.Sprintf(recordIn, "u-a")) {
				t.Error(fault)
			}
		})
	}
}

// TestNewerRecord: an agent unprepares what a newer one prepared.
func TestNewerRecord(t *testing.T) {
	r,
		err := readRecord("u-1",
		[]byte(
			`{"version":1,"namespace":"team","name":"c","uid":"u-1","mood":"good","devices":[{"device":"d","colour":"red"}]}`))
	if err != nil || r.Devices[0].Device != "d" {
		t.Errorf("%+v %v", r, err)
	}
}

// TestNotKnownYet: an agent that has just started does not report the devices as gone.
func TestNotKnownYet(t *testing.T) {
	b := newBed(t)
	p := b.plugin()
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	if _, fault := prepare(t, p, "c", "u-1"); !strings.Contains(fault, string(accel.ProbeUnanswered)) {
		t.Errorf("%q", fault)
	}
}

// TestFullDisk: a claim is not prepared while its record cannot be written, and is prepared once there is space
// again.
func TestFullDisk(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	if err := os.MkdirAll(filepath.Join(b.root, "/var/lib/acceld"), 0o755); err != nil {
		t.Fatal(err)
	}
	// a file in the way fails for root, too
	if err := os.WriteFile(filepath.Join(b.root, "/var/lib/acceld/dra"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, fault := prepare(t, p, "c", "u-1"); !strings.Contains(fault, "cannot keep the record of claim team/c") ||
		b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Errorf("%q", fault)
	}
	if err := os.Remove(filepath.Join(b.root, "/var/lib/acceld/dra")); err != nil {
		t.Fatal(err)
	}
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" || !b.there(fmt.Sprintf(recordIn, "u-1")) ||
		!b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Errorf("with room: %q", fault)
	}
}

// TestUnprepareAlwaysWorks: neither the ledger nor the disk keeps a pod from ending.
func TestUnprepareAlwaysWorks(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edu(1))
	b.server.allocate("c", "u-1", "r=0000-01-00-0")
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Fatal(fault)
	}
	for _, book := range []string{"/run/acceld/ledger/journal", "/var/lib/acceld/ledger/journal"} {
		name := filepath.Join(b.root, book)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("no journal\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(b.root, fmt.Sprintf(recordIn, "u-1"))
	os.Remove(file)
	if err := os.MkdirAll(filepath.Join(file, "in the way"), 0o755); err != nil { // fails for root, too
		t.Fatal(err)
	}
	if fault := unprepare(t, b.plugin(edu(1)), "u-1") + unprepare(t, p, "u-1"); fault != "" || !p.book.empty() ||
		b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Errorf("%q, spec there: %v", fault, b.there(fmt.Sprintf(specOf, "u-1")))
	}
}

// TestMany: many claims at once are independent; a bad one fails alone.
func TestMany(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(64)...)
	req := &drapb.NodePrepareResourcesRequest{}
	for i := range 50 {
		name, uid := fmt.Sprintf("c%d", i), fmt.Sprintf("u-%d", i)
		b.server.allocate(name, uid, "r="+DeviceName(edu(i+1).ID))
		req.Claims = append(req.Claims, ref(name, uid))
	}
	b.server.release("c7")
	var wg sync.WaitGroup
	for range 4 { // the kubelet asks once, but nothing depends on that
		wg.Go(func() {
			resp, err := claims{Plugin: p}.NodePrepareResources(t.Context(), req)
			if err != nil {
				t.Error(err)
			}
			for uid, c := range resp.GetClaims() {
				if (c.GetError() != "") != (uid == "u-7") {
					t.Errorf("%s: %q", uid, c.GetError())
				}
			}
		})
	}
	wg.Wait()
	if n := len(p.book.all()); n != 49 {
		t.Errorf("%d claims are prepared", n)
	}
}

// TestPrepareBare: a container gets no name of a device that no spec can have, and still gets the device.
func TestPrepareBare(t *testing.T) {
	b := newBed(t)
	all := edus(2)
	all[0].Nodes, all[0].Bare = nil, true
	p := b.plugin(all...)
	p.cfg.Definition.Nodes = nil
	b.server.allocate("c", "u-1", "gpus=0000-01-00-0")
	b.server.allocate("d", "u-2", "gpus=0000-02-00-0")
	ids, fault := prepare(t, p, "c", "u-1")
	if len(ids) > 0 || fault != "" || b.there(fmt.Sprintf(specOf, "u-1")) || !b.there(fmt.Sprintf(recordIn, "u-1")) {
		t.Errorf("%v %s", ids, fault)
	}
	if ids, fault := prepare(t, p, "d", "u-2"); len(ids) != 1 || fault != "" {
		t.Errorf("the other: %v %s", ids, fault)
	}
	if fault := unprepare(t, p, "u-1"); fault != "" {
		t.Error(fault)
	}
}
