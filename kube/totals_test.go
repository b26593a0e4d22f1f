package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/acceld/acceld/accel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// amounts are the extended resources of a node, "name=capacity/allocatable".
func (c *cluster) amounts() string {
	var all []string
	n := c.node()
	for name, q := range n.Status.Capacity {
		free := n.Status.Allocatable[name]
		all = append(all, fmt.Sprintf("%s=%s/%s", name, q.String(), free.String()))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// counts writes amounts into the status of the node, as somebody does.
func (c *cluster) counts(manager, name, amount string) {
	c.t.Helper()
	body := fmt.Sprintf(`{"status":{"capacity":{%q:%s},"allocatable":{%[1]q:%[2]s}}}`, name, amount)
	if _, err := c.api.CoreV1().Nodes().Patch(c.t.Context(), "node-a", types.MergePatchType, []byte(body),
		metav1.PatchOptions{FieldManager: manager}, "status"); err != nil {
		c.t.Fatal(err)
	}
	c.after(5 * time.Second)
}

// TestTotals: the node has what its usable cards have together, and nothing when there are none any more; what somebody
// else counts stays.
func TestTotals(t *testing.T) {
	sick := func(m *accel.Machine) { m.Have["qemu-edu"].Accelerators[0].Health.State = accel.Unhealthy }
	inCluster(t, freshNode(), func(c *cluster) {
		check := func(when, want string) {
			t.Helper()
			c.after(5 * time.Second)
			if d := cmp.Diff(want, c.amounts()); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
		}
		c.counts("kubelet", "qemu.org/edu", `"2"`)
		c.k.Publish(readyMachine(withCapacity))
		check("two cards", "qemu.org/edu=2/2 qemu.org/engines=6/6 qemu.org/memory=16Gi/16Gi")
		c.patches()
		c.k.Publish(readyMachine(withCapacity, temperature(7)))
		c.after(5 * time.Second)
		if p := c.patches(); p != nil {
			t.Errorf("writes for nothing: %v", p)
		}
		c.k.Publish(readyMachine(withCapacity, sick))
		check("one is sick", "qemu.org/edu=2/2 qemu.org/engines=4/4 qemu.org/memory=8Gi/8Gi")
		c.counts("kubelet", "qemu.org/memory", `"0"`)
		check("a kubelet that has forgotten its node", "qemu.org/edu=2/2 qemu.org/engines=4/4 qemu.org/memory=8Gi/8Gi")
		c.counts("nfd", "qemu.org/engines", `"9"`)
		check("somebody else counts", "qemu.org/edu=2/2 qemu.org/engines=9/9 qemu.org/memory=8Gi/8Gi")
		c.k.Publish(readyMachine())
		check("no cards", "qemu.org/edu=2/2 qemu.org/engines=9/9")
		c.edit(`{"metadata":{"annotations":{"acceld.dev/cards":"[]"}}}`)
		c.k.Publish(readyMachine(withCapacity))
		check("somebody else says which cards there are", "qemu.org/edu=2/2 qemu.org/engines=9/9")
	})
}

// TestTotalsAreNoCounts: how many devices there are is the kubelet's to say.
func TestTotalsAreNoCounts(t *testing.T) {
	var names []string
	for name := range totals(cardsOf(readyMachine(withCapacity))) {
		names = append(names, string(name))
	}
	slices.Sort(names)
	if d := cmp.Diff([]string{"qemu.org/engines", "qemu.org/memory"}, names); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestTotalsRefused: where an older policy of the cluster refuses totals, the rest is written, and they are not tried
// again and again.
func TestTotalsRefused(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		tried := 0
		c.refusing(func(a clienttesting.Action) error {
			p, ok := a.(clienttesting.PatchAction)
			if !ok || !strings.Contains(string(p.GetPatch()), "capacity") {
				return nil
			}
			tried++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-a", nil)
		})
		c.k.Publish(readyMachine(withCapacity))
		c.after(time.Hour)
		s := c.k.State()
		if c.condition().Status != corev1.ConditionTrue || s.Problem != nil || tried == 0 || tried > 20 {
			t.Errorf("condition %v, problem %v, %d tries", c.condition().Status, s.Problem, tried)
		}
	})
}

// TestLeftTotals: unreadable claims claim nothing.
func TestLeftTotals(t *testing.T) {
	n := freshNode()
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "a.b/c": resource.MustParse("1")}
	for text, want := range map[string]int{
		`{"f:status":{"f:capacity":{"f:a.b/c":{},"f:cpu":{},"f:gone/x":{}}}}`: 1,
		`{"f:status":{"f:capacity":[]}}`:                                      0, `{"f:status":7}`: 0, `{`: 0, ``: 0,
	} {
		f := &metav1.FieldsV1{}
		f.SetRawBytes([]byte(text))
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager, FieldsV1: f}, {Manager: FieldManager}}
		if got := LeftTotals(n); len(got) != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
