package dra

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestClassesFollow: the class of a kind is created, follows its definition, and is left alone if somebody else has
// written it.
func TestClassesFollow(t *testing.T) {
	const name = "qemu-edu.acceld.dev"
	for _, c := range []struct {
		name   string
		there  string // the extended resource of the existing class; no class if empty
		owner  string
		unread bool
		want   string
		wrote  []string
	}{
		{"none", "", manager, false, "qemu.org/edu", []string{"POST deviceclasses"}},
		{"none, and it may only be made", "", manager, true, "qemu.org/edu", []string{"POST deviceclasses"}},
		{"as it should be", "qemu.org/edu", manager, false, "qemu.org/edu", nil},
		{
			"of another definition", "qemu.org/old", manager, false, "qemu.org/edu",
			[]string{"PATCH deviceclasses/" + name},
		},
		{
			"of another definition, and it may only be made", "qemu.org/old", manager, true, "qemu.org/old",
			[]string{"POST deviceclasses"},
		},
		{"somebody else's", "qemu.org/theirs", "kubectl", false, "qemu.org/theirs", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			bed := newBed(t)
			s := bed.server
			s.owner, s.unread = c.owner, c.unread
			b := &publisher{Plugin: bed.plugin(), classed: map[string]classSpec{}}
			if c.there != "" {
				x := classesFor(b.cfg.Definition, nil)[0]
				x.Spec.ExtendedResourceName, x.Metadata.ResourceVersion = c.there, "7"
				s.classes[name] = x
			}
			for range 2 { // written once while the definition stays the same
				b.keepClasses(t.Context())
			}
			if got := s.classes[name].Spec.ExtendedResourceName; got != c.want {
				t.Errorf("the class is for %q, want %q", got, c.want)
			}
			var wrote []string
			for _, r := range s.requests {
				if !strings.HasPrefix(r, "GET ") {
					wrote = append(wrote, strings.Replace(r, apiRoot, "", 1))
				}
			}
			if diff := cmp.Diff(c.wrote, wrote); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOwners: a class is somebody else's only if they own a field that matters.
func TestOwners(t *testing.T) {
	for fields, want := range map[string]bool{
		`{"f:spec":{"f:selectors":{}}}`: true, `{"f:spec":{"f:config":{}}}`: false,
		`{"f:metadata":{"f:labels":{}}}`: false, `7`: true, ``: false,
	} {
		var x existing
		x.Metadata.ManagedFields = []managed{
			{Manager: manager, Fields: []byte(`{"f:spec":{"f:selectors":{}}}`)},
			{Manager: "kubectl", Fields: []byte(fields)},
		}
		if x.foreign() != want {
			t.Errorf("%s: want %v", fields, want)
		}
	}
}
