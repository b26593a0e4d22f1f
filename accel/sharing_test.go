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
