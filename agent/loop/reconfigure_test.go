package loop

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestOffersOtherwise: the plugin is replaced when the devices are shared differently, and only then.
func TestOffersOtherwise(t *testing.T) {
	shared := func(replicas int) *accel.Definition {
		return &accel.Definition{Kind: "a-b", Resource: "a/b", Sharing: &accel.Sharing{
			Replicas: replicas,
			Rename:   true,
		}}
	}
	if !offersOtherwise(shared(4), shared(8)) {
		t.Error("the plugin stays where the devices are shared otherwise")
	}
	if offersOtherwise(shared(4), shared(4)) {
		t.Error("the plugin goes where nothing has changed")
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
