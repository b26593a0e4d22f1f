package accel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUsageProblems(t *testing.T) {
	for _, u := range []Usage{{}, {Prefix: "drm-"}, {Prefix: "edu-", Memory: []string{"vram", "vram0", "stolen-system"}}} {
		if got := u.Problems(); len(got) > 0 {
			t.Errorf("%+v: %q", u, got)
		}
	}
	for field, u := range map[string]Usage{
		"prefix: \"drm\" is not": {Prefix: "drm"},
		"prefix: \"-\" is not":   {Prefix: "-"},
		"memory[0]: \"V RAM\"":   {Memory: []string{"V RAM"}},
		"memory: there are 17":   {Memory: strings.Split(strings.Repeat("x", 17), "")},
		"memory[0]: \"\" is not": {Memory: []string{""}},
	} {
		if got := strings.Join(u.Problems(), "\n"); !strings.Contains(got, field) {
			t.Errorf("%+v: %q", u, got)
		}
	}
}

// TestUsagePrefix: nodes of DRM and of the accel subsystem are read without a word, others are not.
func TestUsagePrefix(t *testing.T) {
	for _, tc := range []struct {
		usage      *Usage
		node, want string
	}{
		{nil, "/dev/dri/renderD128", "drm-"},
		{nil, "/dev/accel/accel0", "drm-"},
		{nil, "/dev/nvidia0", ""},
		{&Usage{}, "/dev/npu0", "drm-"},
		{&Usage{Prefix: "edu-"}, "/dev/edu0", "edu-"},
	} {
		if got := (&Definition{Usage: tc.usage}).UsagePrefix(tc.node); got != tc.want {
			t.Errorf("%+v %s: %q", tc.usage, tc.node, got)
		}
	}
}

func TestUserTexts(t *testing.T) {
	for want, u := range map[string]User{
		"ml/train (main)|1.5 GiB|compute 2h3m4s, copy 1.25s|62 %": {
			PodUID: "u", Namespace: "ml", Pod: "train", Container: "main", MemoryBytes: Known[int64](3 << 29),
			EngineSeconds: map[string]float64{"copy": 1.2512, "compute": 7384.2}, Busy: Known(0.62),
		},
		"u|0 B||":                        {PodUID: "u", MemoryBytes: Known[int64](0)},
		"container 0f1e2d3c4b5a|2 KiB||": {Container: "0f1e2d3c4b5a", MemoryBytes: Known[int64](2048)},
		"x.service|||0 %":                {Unit: "x.service", Busy: Known(0.0)},
		"a process of the host|20 TiB||": {MemoryBytes: Known[int64](20 << 40)},
	} {
		if got := strings.Join([]string{u.Who(), u.MemoryText(), u.EngineText(), u.BusyText()}, "|"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (UseHave{LeftOut: 2, Unread: 3}).Rest(); got != "and 2 more; 3 open files whose use cannot be read" {
		t.Error(got)
	}
}

// TestPublicUse: over TCP nobody sees services of the host and ids of containers.
func TestPublicUse(t *testing.T) {
	h := &UseHave{Users: []User{
		{PodUID: "u", Container: "main", NamedContainer: true},
		{PodUID: "v", Container: "0f1e2d3c4b5a"},
		{Container: "0f1e2d3c4b5a"},
		{Unit: "secret.service"},
	}}
	want := &UseHave{Users: []User{
		{PodUID: "u", Container: "main", NamedContainer: true}, {PodUID: "v"}, {Container: "unnamed"}, {},
	}}
	before := *h
	if diff := cmp.Diff(want, h.Public()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if h.Users[3].Unit == "" || before.Users[2].Container == "unnamed" {
		t.Error("the original was changed")
	}
	if (*UseHave)(nil).Public() != nil {
		t.Error("of nothing")
	}
	m := Machine{Have: map[string]Have{"k": {Accelerators: []Accelerator{{ID: "a", Use: h}}}}}.Public()
	if diff := cmp.Diff(want, m.Have["k"].Accelerators[0].Use); diff != "" {
		t.Errorf("of a machine (-want +got):\n%s", diff)
	}
}
