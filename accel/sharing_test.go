package accel

import (
	"slices"
	"strings"
	"testing"
)

func TestOffered(t *testing.T) {
	for _, c := range []struct {
		name       string
		rename     string
		sharing    *Sharing
		allocation Allocation
		replicas   int
		offered    string
		former     []string
	}{
		{"alone", "", nil, "", 1, "a/b", []string{"a/b.shared"}},
		{"shared", "", &Sharing{Replicas: 4}, "", 4, "a/b", []string{"a/b.shared"}},
		{"shared by another name", "", &Sharing{Replicas: 4, Rename: true}, "", 4, "a/b.shared", []string{"a/b"}},
		{
			"switched off by the configuration", "", &Sharing{Replicas: 1, Rename: true}, "", 1, "a/b",
			[]string{"a/b.shared"},
		},
		{"claims", "", &Sharing{Replicas: 4, Rename: true}, AllocateByDRA, 1, "a/b", []string{"a/b.shared"}},
		{"renamed", "c/d", nil, "", 1, "c/d", []string{"a/b", "a/b.shared", "c/d.shared"}},
		{
			"renamed and shared by another name", "c/d", &Sharing{Replicas: 2, Rename: true}, "", 2, "c/d.shared",
			[]string{"a/b", "a/b.shared", "c/d"},
		},
	} {
		def := &Definition{Resource: "a/b", Rename: c.rename, Sharing: c.sharing, Allocation: c.allocation}
		if n, name := def.Replicas(), def.Offered(); n != c.replicas || name != c.offered {
			t.Errorf("%s: %d times as %q, want %d as %q", c.name, n, name, c.replicas, c.offered)
		}
		if former := def.FormerlyOffered(); !slices.Equal(former, c.former) {
			t.Errorf("%s: formerly %q, want %q", c.name, former, c.former)
		}
	}
	for n, good := range map[int]bool{-1: false, 0: false, 1: true, 256: true, 257: false} {
		if p := (Sharing{Replicas: n}).Problems(); (len(p) == 0) != good {
			t.Errorf("%d: %q", n, p)
		}
	}
}

func TestResourceProblem(t *testing.T) {
	for name, good := range map[string]bool{
		"example.com/npu": true, "gpu.example.com/Half_npu.shared": true,
		"npu": false, "/npu": false, "example.com/": false, "example.com/-npu": false, "Example.com/npu": false,
		"a/b/c": false, "a/b c": false,
		"kubernetes.io/npu": false, "x.kubernetes.io/npu": false, "notkubernetes.io/npu": true,
		"a/" + strings.Repeat("n", 63): true, "a/" + strings.Repeat("n", 64): false,
	} {
		if text := ResourceProblem(name); (text == "") != good {
			t.Errorf("%q: %q", name, text)
		}
	}
}

func TestShareOf(t *testing.T) {
	def := &Definition{Sharing: &Sharing{Replicas: 2, Devices: []ShareOf{
		{Addresses: []string{"a", "b"}, Replicas: 1},
		{Models: []string{"M"}, Serials: []string{"1", "2"}, Replicas: 8},
		{Models: []string{"M"}, Replicas: 3},
		{MinMemoryMiB: 40 << 10, Replicas: 7},
		{Addresses: []string{"d"}, MinMemoryMiB: 20 << 10, Replicas: 5},
	}}}
	memory := func(bytes int64) map[string]int64 { return map[string]int64{"memory": bytes} }
	for want, a := range map[int]Accelerator{
		1: {ID: "b", Model: "M", Serial: "1"}, 8: {ID: "c", Model: "M", Serial: "2"}, 3: {ID: "c", Model: "M", Serial: "3"},
		2: {ID: "c", Model: "N", Serial: "1"}, 7: {ID: "d", Capacity: memory(40 << 30)},
		5: {ID: "d", Capacity: memory(40<<30 - 1)},
	} {
		if got := def.ReplicasOf(a); got != want {
			t.Errorf("%+v: %d, want %d", a, got, want)
		}
	}
	for _, a := range []Accelerator{{ID: "d"}, {ID: "d", Capacity: memory(20<<30 - 1)}, {ID: "c", Capacity: memory(30 << 30)}} {
		if got := def.ReplicasOf(a); got != 2 {
			t.Errorf("%+v: %d", a, got)
		}
	}
	if got := def.ReplicasOf(Accelerator{ID: "a-part", Parent: "a"}); got != 1 {
		t.Errorf("a partition: %d", got)
	}
	claims := *def
	claims.Allocation = AllocateByDRA
	if got := claims.ReplicasOf(Accelerator{ID: "c", Model: "M"}) + (&Definition{}).ReplicasOf(Accelerator{}); got != 2 {
		t.Errorf("by claims, and without sharing: %d", got)
	}
	for want, s := range map[string]Sharing{
		"":  {Replicas: 1, Devices: []ShareOf{{Models: []string{"M"}, Replicas: 4}}},
		" ": {Replicas: 4, Rename: true, Devices: []ShareOf{{Models: []string{"M"}, Replicas: 2}}},

		"devices[0].replicas: 0 is not":      {Replicas: 1, Devices: []ShareOf{{Models: []string{"M"}}}},
		"devices[0]: it selects no devices":  {Replicas: 1, Devices: []ShareOf{{Replicas: 2}}},
		"devices[0].minMemoryMiB: -1 is":     {Replicas: 1, Devices: []ShareOf{{MinMemoryMiB: -1, Replicas: 2}}},
		"devices[0]: a list has an empty":    {Replicas: 1, Devices: []ShareOf{{Serials: []string{""}, Replicas: 2}}},
		"devices[0].replicas: with rename":   {Replicas: 4, Rename: true, Devices: []ShareOf{{Models: []string{"M"}, Replicas: 1}}},
		"devices[0].replicas: with rename, ": {Replicas: 1, Rename: true, Devices: []ShareOf{{Models: []string{"M"}, Replicas: 4}}},
		"devices: 65 entries, at most 64":    {Replicas: 1, Devices: slices.Repeat([]ShareOf{{Models: []string{"M"}, Replicas: 4}}, 65)},
	} {
		got := strings.Join(s.Problems(), "; ")
		want = strings.TrimSpace(want)
		if (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
