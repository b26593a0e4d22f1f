package kube

import (
	"maps"
	"slices"

	"github.com/acceld/acceld/accel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// rendered is what the node should show for a machine. Two machines that render equal cause no write.
type rendered struct {
	labels map[string]string
	// annotations are those for the controller and the scheduler's extender. A kind that is not in it keeps its
	// annotation.
	annotations map[string]string
	kinds       map[string]bool // all kinds of the machine
	totals      map[corev1.ResourceName]resource.Quantity
	// origin is the value of [OriginAnnotation]; empty for none.
	origin    string
	condition corev1.NodeCondition
	// own is what acceld does to the node.
	own accel.Answer[accel.OwnMaintenance]
	// ready is true if every kind is ready or absent: the startup taint is removed.
	ready bool
	// settled is true if no kind is in transition: no better state is expected shortly.
	settled bool
}

func render(m accel.Machine) *rendered {
	r := &rendered{
		labels: Labels(m), annotations: map[string]string{}, kinds: map[string]bool{}, condition: Condition(m),
		ready: true, settled: true, own: m.OwnMaintenance(),
	}
	cards, counted := cardsOf(m)
	r.annotations[accel.CardsAnnotation], r.totals = cardsText(cards), totals(cards, counted)
	for kind, have := range m.Have {
		r.kinds[kind] = true
		if have.UpgradeReport.Known {
			r.annotations[accel.ReportAnnotation+kind] = have.UpgradeReport.Value.String()
		}
		if have.RepairReport.Known {
			r.annotations[accel.RepairAnnotation+kind] = have.RepairReport.Value.String()
		}
		if have.ServedDigest.Known {
			r.annotations[accel.ServedAnnotation+kind] = have.ServedDigest.Value
		}
	}
	for kind, st := range m.Status {
		still := complete(m, kind) || st.State == accel.Absent
		r.ready = r.ready && still && st.Blocked == nil
		r.settled = r.settled && (still || st.Blocked != nil)
	}
	return r
}

// devices adds what the devices of each kind have been through, as far as that is known.
func (r *rendered) devices(m accel.Machine, past func(kind string, a accel.Accelerator) (accel.Past, bool)) {
	for kind := range m.Have {
		of := func(a accel.Accelerator) (accel.Past, bool) { return past(kind, a) }
		if text, known := devicesReport(m, kind, of); known {
			r.annotations[accel.HistoryAnnotation+kind] = text
		}
	}
}

// devicesReport returns the value of [accel.HistoryAnnotation]; empty if the cluster does not keep the history. Known
// is false, and what the node has stays, until the policies are known and the records are read, and while a device may
// not have said its serial number, because its driver does not serve.
func devicesReport(m accel.Machine, kind string, past func(accel.Accelerator) (accel.Past, bool),
) (text string, known bool) {
	have := m.Have[kind]
	switch {
	case m.Want.PoliciesUnknown:
		return "", false
	case !slices.Contains(m.Want.InCluster, kind):
		return "", true
	}
	unknown := slices.ContainsFunc(have.Accelerators, func(a accel.Accelerator) bool {
		p, recorded := past(a)
		return a.Present() && (!recorded || p.Serial == "" && !have.Driver.Serves)
	})
	return accel.ReportDevices(have.Accelerators, past), !unknown
}

func (r *rendered) equal(o *rendered) bool {
	return o != nil && r.condition == o.condition && r.ready == o.ready && r.settled == o.settled &&
		r.own == o.own &&
		maps.Equal(r.labels, o.labels) && maps.Equal(r.annotations, o.annotations) && maps.Equal(r.kinds, o.kinds)
}

// observed reports whether m contains a reading of the host. Before the first reading, all kinds look absent; to
// believe that would remove labels and taint at each start of the agent.
func observed(m accel.Machine) bool { return m.Facts.Kernel.Release != "" }
