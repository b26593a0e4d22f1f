package accel

import (
	"slices"
	"testing"
)

func TestOffered(t *testing.T) {
	for _, c := range []struct {
		name       string
		sharing    *Sharing
		allocation Allocation
		replicas   int
		offered    string
		former     []string
	}{
		{"alone", nil, "", 1, "a/b", []string{"a/b.shared"}},
		{"shared", &Sharing{Replicas: 4}, "", 4, "a/b", []string{"a/b.shared"}},
		{"renamed", &Sharing{Replicas: 4, Rename: true}, "", 4, "a/b.shared", []string{"a/b"}},
		{"switched off by the configuration", &Sharing{Replicas: 1, Rename: true}, "", 1, "a/b", []string{"a/b.shared"}},
		{"claims", &Sharing{Replicas: 4, Rename: true}, AllocateByDRA, 1, "a/b", []string{"a/b.shared"}},
	} {
		def := &Definition{Resource: "a/b", Sharing: c.sharing, Allocation: c.allocation}
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
