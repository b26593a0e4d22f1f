package loop

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestRedefined: a change of the configuration keeps the plugin, and no device is withheld meanwhile, unless the
// resource gets another name.
func TestRedefined(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*accel.Definition)
		another bool
	}{
		"sharing":             {change: func(d *accel.Definition) { d.Sharing = &accel.Sharing{Replicas: 4} }},
		"what containers get": {change: func(d *accel.Definition) { d.Container.Env = []string{"A=b"} }},
		"the title":           {change: func(d *accel.Definition) { d.Title = "another" }},
		"partitions":          {change: func(d *accel.Definition) { d.Partitions = &accel.Partitions{Find: "virtfn*"} }},
		"the name": {
			change:  func(d *accel.Definition) { d.Sharing = &accel.Sharing{Replicas: 4, Rename: true} },
			another: true,
		},
		"the names of partitions": {
			change:  func(d *accel.Definition) { d.Partitions = &accel.Partitions{Rename: "example.com/{{.Profile}}"} },
			another: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := served(accel.UpgradePolicy{})
			run(t, w, func(l *Loop) {
				started, plugin := 0, l.o.Effects.Plugin
				l.o.Effects.Plugin = func(ctx context.Context, def *accel.Definition) Plugin {
					started++
					return plugin(ctx, def)
				}
				want := l.Machine().Want
				changed := *want.Kinds["k-x"]
				tc.change(&changed)
				want.Kinds = map[string]*accel.Definition{"k-x": &changed}
				all := w.offers()
				w.set(func() { w.fewest = all })
				l.Configure(want)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if tc.another != (started == 1) || tc.another == (w.redefined == &changed) {
					t.Errorf("%d plugins started, redefined: %v", started, w.redefined)
				}
				if w.fewest != all {
					t.Errorf("%d of %d devices were offered", w.fewest, all)
				}
			})
		})
	}
}

// TestContestedDevice: a device that two kinds recognise is listed once, by the kind with the more exact row, and both
// say so. When the other kind goes, nothing is said any more.
func TestContestedDevice(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		want := l.Machine().Want
		own := want.Kinds["k-x"]
		rough := &accel.Definition{Kind: "a-x", Match: []accel.Match{{Vendor: "f00d"}}}
		want.Kinds = map[string]*accel.Definition{"k-x": own, "a-x": rough}
		l.Configure(want)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		m := l.Machine()
		if len(m.Have["a-x"].Accelerators) > 0 || accel.CountPresent(m.Have["k-x"].Accelerators) != 1 {
			t.Errorf("a-x has %+v, k-x has %+v", m.Have["a-x"].Accelerators, m.Have["k-x"].Accelerators)
		}
		for kind, s := range m.Status {
			if p := m.Have[kind].Contested; p == nil || p.Reason != accel.DeviceContested ||
				!strings.Contains(s.Sentence, `recognised by kind "k-x", which has it, and by "a-x"`) {
				t.Errorf("%s: %v, %q", kind, p, s.Sentence)
			}
		}
		want.Kinds = map[string]*accel.Definition{"a-x": rough}
		l.Configure(want)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if h := l.Machine().Have["a-x"]; h.Contested != nil || accel.CountPresent(h.Accelerators) != 1 {
			t.Errorf("%+v", h)
		}
	})
}

// TestSharedGroup: of two devices in one IOMMU group one is offered, and the same one after another was plugged in. Two
// devices with one node are told.
func TestSharedGroup(t *testing.T) {
	first, second := device("0000:02:00.0"), device("0000:03:00.0")
	first.IOMMUGroup, second.IOMMUGroup = 4, 4
	w := &world{pci: []accel.PCIDevice{first, second}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		want := l.Machine().Want
		def := *want.Kinds["k-x"]
		def.Nodes = []accel.NodeSource{{Glob: "/sys/class/vfio/{{.IOMMUGroup}}"}}
		want.Kinds = map[string]*accel.Definition{"k-x": &def}
		l.Configure(want)
		offered := func() (ids []string) {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			for _, a := range l.Machine().Have["k-x"].Accelerators {
				if a.Withheld == nil {
					ids = append(ids, a.ID)
				} else if a.Withheld.Reason != accel.GroupShared {
					t.Errorf("%s: %+v", a.ID, a.Withheld)
				}
			}
			return ids
		}
		if got := offered(); len(got) != 1 || got[0] != first.Address {
			t.Errorf("offered are %q", got)
		}
		third := device("0000:01:00.0")
		third.IOMMUGroup = 4
		w.set(func() { w.pci = []accel.PCIDevice{third, first, second} })
		l.Wake(false)
		if got := offered(); len(got) != 1 || got[0] != first.Address {
			t.Errorf("after a third was plugged in, offered are %q", got)
		}
	})
}
