package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
)

// TestDevicesReport: what devices have been through is reported if a policy asks for it, and what was said stays while
// it is not known.
func TestDevicesReport(t *testing.T) {
	const key = accel.HistoryAnnotation + "qemu-edu"
	serials := map[string]string{"0000:01:00.0": "A", "0000:02:00.0": "B"}
	past := func(kind string, a accel.Accelerator) (accel.Past, bool) {
		serial, known := serials[a.ID]
		return accel.Past{Serial: serial, Since: time.Unix(1e9, 0), Faults: 2}, known && kind == "qemu-edu"
	}
	const one = `{"serial":"A","since":"2001-09-09T01:46:40Z","faults":2,"address":"0000:01:00.0"}`
	const both = "[" + one + `,{"serial":"B","since":"2001-09-09T01:46:40Z","faults":2,"address":"0000:02:00.0"}]`
	kept := func(m *accel.Machine) { m.Want.InCluster = []string{"qemu-edu"} }
	unloaded := func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Driver.Serves = false
		m.Have["qemu-edu"] = have
	}
	for _, tt := range []struct {
		name    string
		b       string // the serial number of the second device; "-" if nothing is on record
		changes []change
		want    string
		known   bool
	}{
		{"no policy", "B", nil, "", true},
		{"two", "B", []change{kept}, both, true},
		{"policies are not known", "B", []change{kept, func(m *accel.Machine) { m.Want.PoliciesUnknown = true }}, "", false},
		{"one without a serial number", "", []change{kept}, "[" + one + "]", true},
		{"it may have one", "", []change{kept, unloaded}, "", false},
		{"both have said theirs", "B", []change{kept, unloaded}, both, true},
		{"records are not read", "-", []change{kept}, "", false},
	} {
		serials["0000:02:00.0"] = tt.b
		if tt.b == "-" {
			delete(serials, "0000:02:00.0")
		}
		m := readyMachine(tt.changes...)
		r := render(m)
		r.devices(m, past)
		if got, known := r.annotations[key]; got != tt.want || known != tt.known {
			t.Errorf("%s: %t %s", tt.name, known, got)
		}
	}
}

// TestDevicesReportEnds: the annotation goes with the policy and with the kind, and none is made for no devices.
func TestDevicesReportEnds(t *testing.T) {
	const key = accel.HistoryAnnotation + "k-x"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "[{}]"}}}
	for _, tt := range []struct {
		name string
		r    rendered
		want any
		has  bool
	}{
		{"no policy", rendered{annotations: map[string]string{key: ""}, kinds: map[string]bool{"k-x": true}}, nil, true},
		{"no kind", rendered{}, nil, true},
		{"not known", rendered{kinds: map[string]bool{"k-x": true}}, nil, false},
	} {
		changes := annotationChanges(node, &tt.r)
		if got, has := changes[key]; got != tt.want || has != tt.has {
			t.Errorf("%s: %v", tt.name, changes)
		}
	}
	r := &rendered{annotations: map[string]string{key: accel.NoDevices}, kinds: map[string]bool{"k-x": true}}
	if changes := annotationChanges(node, r); changes[key] != accel.NoDevices {
		t.Errorf("%v", changes)
	}
	if changes := annotationChanges(&corev1.Node{}, r); len(changes) > 0 {
		t.Errorf("%v", changes)
	}
}
