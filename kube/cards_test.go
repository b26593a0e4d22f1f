package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// withCapacity gives the machine's kind amounts, and a kubelet that gives it out.
func withCapacity(m *accel.Machine) {
	m.Want.Kubernetes = true
	m.Want.Kinds = map[string]*accel.Definition{"qemu-edu": {
		Kind: "qemu-edu", Resource: "qemu.org/edu", Capacity: []accel.Capacity{
			{Name: "memory", Value: "8Gi"},
			{Name: "engines", File: "engines"},
		},
	}}
	have := m.Have["qemu-edu"]
	have.Accelerators = []accel.Accelerator{
		{
			ID: "0000:01:00.0", NUMANode: 0, Capacity: map[string]int64{"engines": 2},
			Health: accel.Health{State: accel.Healthy},
		},
		{
			ID: "0000:02:00.0", NUMANode: -1, Capacity: map[string]int64{"engines": 4},
			Health: accel.Health{State: accel.Healthy},
		},
	}
	m.Have["qemu-edu"] = have
}

const twoCards = `[{"name":"0000-01-00.0","has":{"qemu.org/edu":"1","qemu.org/engines":"2","qemu.org/memory":"8Gi"},"numa":0},` +
	`{"name":"0000-02-00.0","has":{"qemu.org/edu":"1","qemu.org/engines":"4","qemu.org/memory":"8Gi"}}]`

func TestCards(t *testing.T) {
	edu := func(change func(*accel.Definition, []accel.Accelerator)) func(*accel.Machine) {
		return func(m *accel.Machine) {
			withCapacity(m)
			change(m.Want.Kinds["qemu-edu"], m.Have["qemu-edu"].Accelerators)
		}
	}
	const second = `,{"name":"0000-02-00.0","has":{"qemu.org/edu":"1","qemu.org/engines":"4","qemu.org/memory":"8Gi"}}]`
	for _, c := range []struct {
		name   string
		change func(*accel.Machine)
		want   string
	}{
		{"two", withCapacity, twoCards},
		{"no amounts", edu(func(d *accel.Definition, _ []accel.Accelerator) { d.Capacity = nil }), ""},
		{"by claims", edu(func(d *accel.Definition, _ []accel.Accelerator) { d.Allocation = accel.AllocateByDRA }), ""},
		{"no kubelet", func(m *accel.Machine) { withCapacity(m); m.Want.Kubernetes = false }, ""},
		{
			"one is ill", edu(func(_ *accel.Definition, a []accel.Accelerator) { a[0].Health.State = accel.Unhealthy }),
			`[{"name":"0000-01-00.0","has":{"qemu.org/edu":"1","qemu.org/engines":"2","qemu.org/memory":"8Gi"},"numa":0,"off":true}` + second,
		},
		{
			"one is worn", edu(func(_ *accel.Definition, a []accel.Accelerator) { a[0].Health.State = accel.Degraded }),
			twoCards,
		},
		{
			"one is gone", edu(func(_ *accel.Definition, a []accel.Accelerator) { a[0].Health.State = accel.Gone }),
			"[" + second[1:],
		},
		{
			"one cannot be read", edu(func(_ *accel.Definition, a []accel.Accelerator) { a[0].Capacity = nil }),
			`[{"name":"0000-01-00.0","has":{"qemu.org/edu":"1","qemu.org/memory":"8Gi"},"numa":0}` + second,
		},
		{"shared and renamed", edu(func(d *accel.Definition, a []accel.Accelerator) {
			d.Rename, d.Sharing, d.Capacity = "example.com/e", &accel.Sharing{Replicas: 10}, d.Capacity[:1]
			a[1].Health.State = accel.Gone
		}), `[{"name":"0000-01-00.0","has":{"example.com/e":"10","example.com/memory":"8Gi"},"numa":0}]`},
		{"one is divided", edu(func(d *accel.Definition, a []accel.Accelerator) {
			d.Partitions = &accel.Partitions{Profiles: []accel.Profile{{
				Name:     "half",
				Capacity: []accel.Capacity{{Name: "memory", Value: "4Gi"}},
			}}}
			part := a[0]
			part.ID, part.Parent, part.Profile = accel.PartitionID(a[0].ID, "half", "p0"), a[0].ID, "half"
			a[0].Partitions = []accel.Accelerator{part}
		}), `[{"name":"0000-01-00.0-half-p0","has":{"qemu.org/edu-half":"1","qemu.org/memory":"4Gi"},"numa":0}` +
			second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Cards(readyMachine(c.change))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestCardsAreWritten: the node's annotation follows the machine, costs no write while it stays the same, and is left
// alone if somebody else has written it.
func TestCardsAreWritten(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		cards := func() string { return c.node().Annotations[accel.CardsAnnotation] }
		c.k.Publish(readyMachine(withCapacity))
		c.after(5 * time.Second)
		if cards() != twoCards {
			t.Errorf("cards %s", cards())
		}
		c.patches()
		c.k.Publish(readyMachine(withCapacity, temperature(7)))
		c.after(5 * time.Second)
		if p := c.patches(); p != nil {
			t.Errorf("writes for nothing: %v", p)
		}
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		if cards() != "" {
			t.Errorf("the previous cards are left: %s", cards())
		}
		c.edit(`{"metadata":{"annotations":{"acceld.dev/cards":"[]"}}}`)
		c.k.Publish(readyMachine(withCapacity))
		c.after(5 * time.Second)
		if cards() != "[]" {
			t.Errorf("what somebody else said is overwritten: %s", cards())
		}
	})
}
