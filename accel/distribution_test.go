package accel_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// distributed is a definition that knows two distributions.
func distributed() *accel.Definition {
	return &accel.Definition{Kind: "example-card", Driver: accel.DriverDefinition{Distributions: []accel.Distribution{
		{
			OS:        []string{"debian12"},
			Sources:   []accel.Source{{Type: accel.SourceBuild, Path: "/usr/src/card"}},
			UserSpace: []accel.Source{{Type: accel.SourceRoot, Path: "/opt/card"}},
		},
		{OS: []string{"rhel9", "rocky9"}, Sources: []accel.Source{{Type: accel.SourceBuild, Path: "/usr/src/kernels"}}},
		{OS: []string{"sles15"}, UserSpace: []accel.Source{{Type: accel.SourceRoot, Path: "/opt/card"}}},
	}}}
}

func TestDistributionTakesThePlaceOfItsSource(t *testing.T) {
	def := distributed()
	def.Driver.Version = "1.0"
	def.Driver.Sources = []accel.Source{
		{Type: accel.SourceOCI, Image: "registry.example/card"}, {Type: accel.SourceDistribution},
	}
	def.Driver.UserSpace = &accel.UserSpace{}
	before := *def

	here := def.On("debian12")
	if got := here.Driver.Sources; len(got) != 2 || got[0].Image == "" || got[1].Path != "/usr/src/card" {
		t.Errorf("sources: %+v", got)
	}
	if got := here.UserSpaceSources(); len(got) != 2 || got[0].Image == "" || got[1].Path != "/opt/card" {
		t.Errorf("user space: %+v", got)
	}
	if !reflect.DeepEqual(before, *def) {
		t.Errorf("the definition was changed: %+v", def)
	}
	// Its own list of sources says exactly what is asked.
	def.Driver.UserSpace = &accel.UserSpace{Sources: []accel.Source{{Type: accel.SourceDistribution}}}
	if got := def.On("debian12").UserSpaceSources(); len(got) != 1 || got[0].Path != "/opt/card" {
		t.Errorf("user space: %+v", got)
	}
	if got := def.On("rocky9").Driver.Sources[1].Path; got != "/usr/src/kernels" {
		t.Errorf("rocky9: %q", got)
	}
	// Where the modules are a package that somebody has to install, only the user space is replaced.
	half := def.On("sles15")
	if got := half.Driver.Sources; len(got) != 2 || got[1].Type != accel.SourceDistribution {
		t.Errorf("sles15: %+v", got)
	}
	if got := half.UserSpaceSources(); len(got) != 1 || got[0].Path != "/opt/card" {
		t.Errorf("user space of sles15: %+v", got)
	}
	if text := half.NoDistribution("sles15"); !strings.Contains(text, "only the user space of sles15") {
		t.Error(text)
	}
	// Of another system the source stays, to say so.
	away := def.On("alpine3")
	if got := away.Driver.Sources; len(got) != 2 || got[1].Type != accel.SourceDistribution {
		t.Errorf("alpine3: %+v", got)
	}
	text := away.NoDistribution("alpine3")
	if !strings.Contains(text, "alpine3") || !strings.HasSuffix(text, "it knows debian12, rhel9, rocky9") {
		t.Error(text)
	}
}

func TestDistributionMisfits(t *testing.T) {
	asked := accel.KindConfig{}
	asked.Driver.Sources = []accel.Source{{Type: accel.SourceDistribution}}
	if texts := asked.Problems(); len(texts) > 0 {
		t.Fatal(texts)
	}
	_, misfit := asked.Apply(distributed())
	if !strings.HasPrefix(misfit, "driver.version: ") {
		t.Errorf("without a version: %q", misfit)
	}
	asked.Driver.Version = "1.0"
	if _, misfit = asked.Apply(distributed()); misfit != "" {
		t.Errorf("with a version: %q", misfit)
	}
	if _, misfit = asked.Apply(&accel.Definition{}); !strings.HasPrefix(misfit, "driver.sources: ") {
		t.Errorf("without distributions: %q", misfit)
	}
}

func TestDistributionProblems(t *testing.T) {
	def := distributed()
	if texts := accel.DistributionProblems(def.Driver.Distributions); len(texts) > 0 {
		t.Fatal(texts)
	}
	got := accel.DistributionProblems([]accel.Distribution{
		{OS: []string{"debian12"}, Sources: []accel.Source{{Type: accel.SourceDistribution}}},
		{OS: []string{"debian12"}, Sources: []accel.Source{{Type: accel.SourceBuild, Path: "src"}}},
		{UserSpace: []accel.Source{{Type: accel.SourceBuild}}},
		{OS: []string{"alpine3"}},
	})
	for _, want := range []string{
		"[0].sources[0].type: ", `[1].os: "debian12" is there twice`, "[1].sources[0].path: ", "[2].os: ", "[3].sources: ",
		"[2].userSpace[0].type: ",
	} {
		if !slices.ContainsFunc(got, func(text string) bool { return strings.HasPrefix(text, want) }) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

func TestMirrors(t *testing.T) {
	m := accel.Mirrors{
		"registry.example": {"mirror.example/registry"}, "http://deb.example/debian": {"http://mirror.example/debian"},
	}
	if texts := m.Problems(); len(texts) > 0 {
		t.Fatal(texts)
	}
	bad := accel.Mirrors{
		"a.example": {"http://b.example"}, "http://a.example": {"b.example"}, "b.example": nil, "c.example": {""},
	}
	if texts := bad.Problems(); len(texts) != 4 {
		t.Errorf("%d problems: %q", len(texts), texts)
	}
	def := &accel.Definition{Driver: accel.DriverDefinition{
		Sources: []accel.Source{{
			Type: accel.SourceBuild, Image: "registry.example/builder", Mirrors: []string{"own.example"},
			Needs: []accel.PackageSet{{URL: "http://deb.example/debian"}, {
				URL: "http://other.example", Also: []accel.Pocket{{URL: "http://deb.example/debian"}},
			}},
		}, {Type: accel.SourceBundle, Path: "/media"}},
		UserSpace: &accel.UserSpace{Sources: []accel.Source{{
			Type: accel.SourcePackages, URL: "http://deb.example/debian",
		}}},
	}}
	out := m.Of(def).Driver
	if got := out.Sources[0].Mirrors; !slices.Equal(got, []string{"own.example", "mirror.example/registry"}) {
		t.Errorf("of an image: %q", got)
	}
	needs := out.Sources[0].Needs
	if needs[0].URL != "http://mirror.example/debian" || needs[1].URL != "http://other.example" ||
		len(needs[0].Mirrors)+len(needs[1].Mirrors) > 0 || needs[1].Also[0].URL != "http://mirror.example/debian" {
		t.Errorf("of needs: %+v", needs)
	}
	if got := out.UserSpace.Sources[0]; got.URL != "http://mirror.example/debian" || len(got.Mirrors) > 0 {
		t.Errorf("of packages: %+v", got)
	}
	several := accel.Mirrors{"http://deb.example/debian": {"http://a.example", "http://b.example"}}
	if got := several.Of(def).Driver.Sources[0].Needs[0]; got.URL != "http://b.example" ||
		!slices.Equal(got.Mirrors, []string{"http://a.example"}) {
		t.Errorf("two mirrors: %+v", got)
	}
	if len(out.Sources[1].Mirrors) > 0 || len(def.Driver.Sources[0].Mirrors) != 1 ||
		len(def.Driver.Sources[0].Needs[0].Mirrors) > 0 ||
		def.Driver.Sources[0].Needs[0].URL != "http://deb.example/debian" {
		t.Errorf("too much was changed: %+v", def)
	}
}

func TestSetsOfFurtherRepositories(t *testing.T) {
	s := accel.PackageSet{
		Format: "deb", URL: "http://deb.example/debian", Suite: "stable", Components: []string{"main"}, Packages: []string{"a"},
		Keys: []string{"/k"}, Also: []accel.Pocket{{URL: "http://deb.example/security", Suite: "stable-security"}},
	}
	each := s.Each()
	if len(each) != 2 || each[0].URL != s.URL || each[0].Also != nil || each[1].Also != nil ||
		each[1].Repository() != "http://deb.example/security stable-security" ||
		!slices.Equal(each[1].Packages, s.Packages) || !slices.Equal(each[1].Keys, s.Keys) {
		t.Errorf("%+v", each)
	}
	source := accel.Source{
		Type: accel.SourcePackages, Format: "deb", URL: s.URL, Suite: s.Suite, Packages: s.Packages, Keys: s.Keys,
		Also: []accel.Pocket{{URL: "deb.example"}},
	}
	if texts := source.UserSpaceProblems(); len(texts) != 2 || !strings.HasPrefix(texts[0], "also[0].url: ") ||
		!strings.HasPrefix(texts[1], "also[0].suite: ") {
		t.Errorf("%q", texts)
	}
}

func TestSourceForSomeDevices(t *testing.T) {
	def := &accel.Definition{Match: []accel.Match{{Vendor: "10de", Class: "0302"}}}
	facts := accel.Facts{PCI: []accel.PCIDevice{
		{Address: "0000:01:00.0", Vendor: "10de", Device: "1eb8", Class: "030200"},
		{Address: "0000:02:00.0", Vendor: "1234", Device: "0001", Class: "030200"},
	}}
	s := accel.Source{Type: accel.SourceBuild, Path: "/usr/src/a", Devices: "1e00-ffff"}
	if text := s.Lacks(def, facts); text != "" || len(s.Problems()) > 0 {
		t.Errorf("%q, %q", text, s.Problems())
	}
	facts.PCI = append(facts.PCI, accel.PCIDevice{Address: "0000:03:00.0", Vendor: "10de", Device: "1db6", Class: "030200"})
	if text := s.Lacks(def, facts); !strings.Contains(text, "0000:03:00.0") || !strings.Contains(text, "1db6") {
		t.Errorf("%q", text)
	}
	for _, bad := range []string{"1e00", "1E00-ffff", "ffff-1e00", "-", "1e00-fffff"} {
		s.Devices = bad
		if texts := s.Problems(); len(texts) != 1 || !strings.HasPrefix(texts[0], "devices: ") {
			t.Errorf("%q: %q", bad, texts)
		}
	}
}
