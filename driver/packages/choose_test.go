package packages

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestOptionalPackages: an optional package comes along in the version of the others, and neither decides that version
// nor is missed. A wanted version needs neither the epoch nor the release that rpm has.
func TestOptionalPackages(t *testing.T) {
	have := map[string]string{
		"libs":   "3:570.86.15-1.el9 3:580.65.06-1.el9 3:580.82.07-1.el9",
		"cuda":   "3:570.86.15-1.el9 3:580.65.06-1.el9 3:580.82.07-1.el9",
		"fabric": "570.86.15-1 580.65.06-1 595.1-1",
		"devel":  "5.14.0-503.26.1.el9_5 5.14.0-503.26.10.el9_5",
	}
	var all []candidate
	for name, versions := range have {
		for v := range strings.FieldsSeq(versions) {
			all = append(all, candidate{name: name, version: v})
		}
	}
	for asked, want := range map[string]string{
		"libs=570.86.15 cuda=570.86.15 fabric=570.86.15?":   "libs 3:570.86.15-1.el9, cuda 3:570.86.15-1.el9, fabric 570.86.15-1",
		"libs=580.82.07 cuda=580.82.07 fabric=580.82.07?":   "libs 3:580.82.07-1.el9, cuda 3:580.82.07-1.el9",
		"libs=580 cuda=580 fabric=580?":                     "libs 3:580.82.07-1.el9, cuda 3:580.82.07-1.el9",
		"libs=570 none=570? fabric?":                        "libs 3:570.86.15-1.el9, fabric 595.1-1",
		"devel=5.14.0-503.26.1.el9_5":                       "devel 5.14.0-503.26.1.el9_5",
		"libs=3:570.86.15-1.el9 fabric=3:570.86.15-1.el9?":  "libs 3:570.86.15-1.el9",
		"libs=595 fabric=595?":                              "",
		"libs=570.86.15 none=570.86.15 fabric=570.86.15-1?": "",
	} {
		var wanted []Wanted
		for text := range strings.FieldsSeq(asked) {
			text, optional := strings.CutSuffix(text, "?")
			name, version, _ := strings.Cut(text, "=")
			wanted = append(wanted, Wanted{Name: name, Version: version, Optional: optional})
		}
		chosen, problem := choose(RPM, all, wanted)
		var got []string
		for _, c := range chosen {
			got = append(got, c.name+" "+c.version)
		}
		if strings.Join(got, ", ") != want || (problem == nil) != (want != "") {
			t.Errorf("%s: %q, %v", asked, got, problem)
		}
	}
	if got := inAll(RPM, all, []Wanted{{Name: "fabric", Optional: true}, {Name: "libs"}}); len(got) != 3 {
		t.Errorf("an optional package decides which versions there are: %q", got)
	}
	b := newBench(t)
	none := b.request("libx1")
	none.Packages[0].Optional = true
	b.refused("nothing but optional packages", none, accel.ConfigInvalid)
	of := Of(accel.PackageSet{Packages: []string{"a=1"}, OptionalPackages: []string{"b=1", "c"}}, "x86_64").Packages
	if len(of) != 3 || of[0].Optional || of[1] != (Wanted{"b", "1", true}) || !of[2].Optional {
		t.Errorf("%+v", of)
	}
}
