package loop

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestUnchecked: a kind without a check is ready and offered like one that has passed its check. It is never called
// proven, and no self-test runs. A kind that is yet to pass its check is neither.
func TestUnchecked(t *testing.T) {
	const id = "0000:01:00.0"
	type facts struct {
		State             accel.State
		Proven, Unchecked bool
		Proof             string
		Driver            accel.Phase
		Offered, Tests    int
	}
	for name, c := range map[string]struct {
		world *world
		want  facts
	}{
		"passed": {&world{}, facts{
			State: accel.Ready, Proven: true, Proof: "computed (1 device)", Driver: accel.PhaseReady,
			Offered: 1, Tests: 1,
		}},
		"not passed": {&world{faulty: id}, facts{State: accel.DriverUnproven, Driver: accel.PhaseFailed}},
		"without a check": {&world{unchecked: true}, facts{
			State: accel.Ready, Unchecked: true, Driver: accel.PhaseUnchecked, Offered: 1,
		}},
		"without a check, unloaded": {
			&world{unchecked: true, refuse: accel.Problemf(accel.NoDriverSource, "no")},
			facts{State: accel.DriverMissing, Driver: accel.PhaseFailed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.world
			w.pci, w.kubelet, w.labelled = []accel.PCIDevice{device(id)}, true, true
			run(t, w, func(l *Loop) {
				m := l.Machine()
				d, st := m.Have["k-x"].Driver, m.Status["k-x"]
				got := facts{
					st.State, !d.Proven.IsZero(), d.Unchecked, d.Proof, st.Published[accel.DriverContainer], w.offers(),
					len(w.proofs),
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

// TestNothingToTest: a kind of which no device could be tested since the agent started is not proven. It is when the
// first device has passed, and stays so while none can be tested again: that was seen.
func TestNothingToTest(t *testing.T) {
	const id = "0000:01:00.0"
	w := &world{pci: []accel.PCIDevice{device(id)}, kubelet: true, labelled: true, sick: map[string]string{id: "hot"}}
	run(t, w, func(l *Loop) {
		have := func() accel.DriverHave {
			l.Wake(false)
			time.Sleep(time.Second)
			synctest.Wait()
			return l.Machine().Have["k-x"].Driver
		}
		d := have()
		if !d.Proven.IsZero() || !d.Unchecked || d.WhyUnchecked() != "unchecked: no device can be tested now" ||
			len(w.proofs) != 0 || w.offers() != 0 ||
			l.Machine().Status["k-x"].Published[accel.DriverContainer] != accel.PhaseUnchecked {
			t.Errorf("with a sick device: %+v", d)
		}
		w.set(func() { delete(w.sick, id) })
		if d := have(); d.Proven.IsZero() || d.Unchecked || d.ProofSkipped != "" || w.offers() != 1 {
			t.Errorf("when it is well: %+v", d)
		}
		w.set(func() { w.sick[id] = "hot" })
		if d := have(); d.Proven.IsZero() || d.Unchecked || w.offers() != 0 {
			t.Errorf("when it is sick again: %+v", d)
		}
	})
}

// TestAwaitsReport: while it is not known how a device is divided, its kind is neither proven nor unchecked, nothing is
// written for containers, and no self-test runs. Once it is known, the device computes.
func TestAwaitsReport(t *testing.T) {
	w := &world{
		pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true, awaited: true,
	}
	run(t, w, func(l *Loop) {
		m := l.Machine()
		if d, st := m.Have["k-x"].Driver, m.Status["k-x"]; !d.Proven.IsZero() || d.Unchecked || st.Blocked != nil ||
			st.State != accel.DriverUnproven || st.Published[accel.DriverContainer] != accel.PhasePending {
			t.Errorf("before: %+v, %+v", d, st)
		}
		if len(w.proofs) != 0 || m.Have["k-x"].Runtime.Applied {
			t.Errorf("before: tests %v, containers %+v", w.proofs, m.Have["k-x"].Runtime)
		}
		w.set(func() { w.awaited = false })
		l.Wake(false)
		time.Sleep(time.Second)
		synctest.Wait()
		m = l.Machine()
		if d, st := m.Have["k-x"].Driver, m.Status["k-x"]; d.Proven.IsZero() || st.State != accel.Ready || w.offers() != 1 {
			t.Errorf("after: %+v, %+v", d, st)
		}
	})
}
