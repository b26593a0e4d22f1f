package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestDevices: what devices have been through is in the cluster where a policy asks for it: one object for each device,
// with its faults and the slot that it is in, and none is written while nothing happens. The records stay when the
// policy ends. The agent, the controller, the admission policies and the definition are real.
func TestDevices(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	stage.Check(t, s.Deploy(t.Context(), n))
	stage.StartController(t, n, s, "")
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	if all := deviceRecords(t, n); len(all) > 0 {
		t.Errorf("without a policy: %+v", all)
	}
	apply(t, n, []byte(`apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: edu}
spec:
  kinds: {qemu-edu: {}}
  history: {}
`))
	await := func(what string, ok func(all map[string]devices.Device) bool) (all map[string]devices.Device) {
		t.Helper()
		for end := time.Now().Add(2 * soon); ; time.Sleep(time.Second) {
			if all = deviceRecords(t, n); ok(all) {
				return all
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, all)
			}
		}
	}
	m, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, "both devices", func(m accel.Machine) bool {
		return accel.CountUsable(m.Have[stage.Kind].Accelerators) == 2
	})
	stage.Check(t, err)
	all := await("a record of each device", func(all map[string]devices.Device) bool { return len(all) == 2 })
	for _, a := range m.Have[stage.Kind].Accelerators {
		r := all[a.Serial].Record
		if r.Kind != stage.Kind || r.Node == "" || r.Address != a.ID || r.Total.Faults != 0 || len(r.Hosts) != 1 {
			t.Errorf("%s: %+v", a.ID, r)
		}
	}
	time.Sleep(time.Minute)
	for serial, x := range deviceRecords(t, n) {
		if x.ResourceVersion != all[serial].ResourceVersion {
			t.Errorf("%s was written, and nothing had happened", serial)
		}
	}
	sick := m.Have[stage.Kind].Accelerators[0]
	sh(t, n.Guest, stage.Sicken, sick.ID)
	await("the fault", func(all map[string]devices.Device) bool {
		r := all[sick.Serial].Record
		return r.Total.Faults == 1 && r.LastFault != nil && r.LastFault.Node == r.Node
	})
	text, err := n.Kubectl(stage.Within(t, soon), nil, "get", "acceleratordevices", "-o", "wide")
	stage.Check(t, err)
	t.Logf("\n%s", text)
	for _, want := range []string{sick.Serial, sick.ID, "LAST FAULT", "CLAIMED BY"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the table", want)
		}
	}
	_, err = n.Kubectl(stage.Within(t, soon), nil, "delete", "acceleratorpolicy/edu")
	stage.Check(t, err)
	stage.Check(t, n.WaitNode(stage.Within(t, 2*soon), "the report to go", func(node *corev1.Node) bool {
		return node.Annotations[accel.HistoryAnnotation+stage.Kind] == ""
	}))
	time.Sleep(15 * time.Second) // longer than between two looks of the controller
	if all := deviceRecords(t, n); len(all) != 2 || all[sick.Serial].Record.Node == "" {
		t.Errorf("after the policy: %+v", all)
	}
}

// deviceRecords are the records of a cluster, by serial number.
func deviceRecords(t *testing.T, n *bed.Node) map[string]devices.Device {
	t.Helper()
	text, err := n.Kubectl(stage.Within(t, soon), nil, "get", "acceleratordevices", "-o", "json")
	stage.Check(t, err)
	var list struct {
		Items []devices.Device `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(fmt.Errorf("cannot read the records: %w\n%s", err, text))
	}
	all := map[string]devices.Device{}
	for _, x := range list.Items {
		all[x.Record.Serial] = x
	}
	return all
}
