package loop

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestSkippedCheck: a device whose check cannot take place is offered, and the kind is not called proven.
func TestSkippedCheck(t *testing.T) {
	const first, second = "0000:01:00.0", "0000:02:00.0"
	w := &world{
		pci: []accel.PCIDevice{device(first), device(second)}, kubelet: true, labelled: true,
		skips: map[string]string{second: "it is in use"},
	}
	run(t, w, func(l *Loop) {
		time.Sleep(time.Minute)
		synctest.Wait()
		have := l.Machine().Have["k-x"].Driver
		if got := state(l); got != accel.Ready || w.offers() != 2 {
			t.Fatalf("state %q, %d are offered", got, w.offers())
		}
		if !have.Proven.IsZero() || have.Proof != "" || have.ProofSkipped != second+": it is in use" || !have.PastCheck() {
			t.Errorf("%+v", have)
		}
		if len(w.proofs) != 2 {
			t.Errorf("a device that was not checked is asked again and again: %v", w.proofs)
		}
		w.set(func() { w.skips, w.pci = nil, w.pci[:1] }) // it is unplugged
		l.Wake(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.set(func() { w.pci = append(w.pci, device(second)) })
		l.Wake(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		have = l.Machine().Have["k-x"].Driver
		if have.Proven.IsZero() || have.Proof != "computed (2 devices)" || have.ProofSkipped != "" ||
			len(w.proofs) != 3 {
			t.Errorf("%+v, proofs %v", have, w.proofs)
		}
	})
}
