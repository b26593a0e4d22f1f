package runtime

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestAppliedTo: a device that comes or goes, or that somebody edited, does not affect the others.
func TestAppliedTo(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	all := b.accs
	applied := func(what string, accs []accel.Accelerator, want ...string) {
		t.Helper()
		have, p := b.r.Check(b.def, accs, b.want)
		if p != nil || have.Applied || !slices.Equal(have.AppliedTo, want) {
			t.Errorf("%s: %+v %v, want %v", what, have, p, want)
		}
	}
	more := all[0]
	more.ID, more.Nodes = "0000:09:00.0", []accel.DeviceNode{{Path: "/dev/edu9", Major: 240, Minor: 9}}
	applied("one more", append(slices.Clone(all), more), all[0].ID, all[1].ID)
	applied("one less", all[1:], all[1].ID)
	text, err := os.ReadFile(b.path(specFile))
	if err != nil {
		t.Fatal(err)
	}
	b.write(specFile, strings.Replace(string(text), `"/dev/edu0"`, `"/dev/null"`, 1))
	applied("edited for one", all, all[1].ID)
	b.write(specFile, "{")
	applied("not to be read", all)
	if err := os.Remove(b.path(specFile)); err != nil {
		t.Fatal(err)
	}
	applied("deleted", all)
}
