package driver

import (
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestUserSpaceTravels: a bundle takes both halves of a driver to a host that has none and can reach nothing, by import
// and as a source.
func TestUserSpaceTravels(t *testing.T) {
	from, d := withSpaces(t, "1.0.0")
	entries, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	from.Write("/media/.keep", "")
	if _, problem := d.sources.Export(from.Facts(), entries, "/media/edu.tar", nil); problem != nil {
		t.Fatal(problem)
	}
	unreachable := accel.Source{Type: accel.SourceRoot, Path: "/nowhere"}
	bundled := accel.Source{Type: accel.SourceBundle, Path: "/media/edu.tar"}
	for name, c := range map[string]struct {
		imported         bool
		modules, library []accel.Source
	}{
		"import":                       {true, nil, []accel.Source{unreachable}},
		"source of both":               {false, []accel.Source{bundled}, nil},
		"source, others for libraries": {false, []accel.Source{bundled}, []accel.Source{unreachable}},
		"source of each":               {true, nil, []accel.Source{bundled}},
	} {
		m := newMachine(t)
		m.bad = map[string]string{}
		m.Write("/media/edu.tar", from.Read("/media/edu.tar"))
		d := m.driver(Options{})
		def := spaced("1.0.0")
		def.Driver.Sources, def.Driver.UserSpace.Sources = c.modules, c.library
		if c.imported {
			defs := map[string]*accel.Definition{"qemu-edu": def}
			got, _, problem := d.sources.Import(t.Context(), defs, m.Facts(), "/media/edu.tar", nil)
			if problem != nil || len(got) == 0 {
				t.Errorf("%s: imported %v, %v", name, got, problem)
			}
		}
		have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
		if problem != nil || !have.Serves || m.served(d) != "1.0.0" {
			t.Errorf("%s: %+v %v, served %q", name, have, problem, m.served(d))
		}
	}
}
