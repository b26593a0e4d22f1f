package driver

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/test/deb"
	"github.com/acceld/acceld/test/ko"
)

// edu is a module in a version.
func edu(version string) ko.Module {
	x := ko.Edu()
	x.Version, x.BuildID = version, strings.Repeat("0", 40-len(version))+strings.ReplaceAll(version, ".", "a")
	return x
}

// branched is the shop's definition with a branch.
func branched(s *shop, branch string) *accel.Definition {
	def := fromShop(s)
	def.Driver.Version, def.Driver.Branch = "", branch
	def.Check = wants("").Check
	return def
}

// TestBranch: the newest version of a branch is taken once, and stays until somebody asks again.
func TestBranch(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := branched(s, "1")
	stock := func(versions ...string) {
		t.Helper()
		for _, v := range versions {
			own := fromShop(s)
			own.Driver.Version = v
			s.stock(t, own, edu(v), nil, nil)
		}
	}
	stock("1.2.0", "1.10.0", "10.0.0", "2.1.0", "1.9.9")
	d := m.driver(Options{Artifact: quick()})
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || have.Version != "1.10.0" {
		t.Fatalf("%+v %v", have, problem)
	}
	got, problem := store.Branched(m.Host, d.o.StateDir, def)
	if problem != nil || got.Driver.Version != "1.10.0" || def.Driver.Version != "" {
		t.Fatalf("%+v %v", got.Driver, problem)
	}

	stock("1.11.0")
	if got, problem := d.sources.Resolve(t.Context(), def, m.Facts()); problem != nil || got.Driver.Version != "1.10.0" {
		t.Errorf("nobody asked, and it is %q, %v", got.Driver.Version, problem)
	}
	b, problem := d.sources.Newest(t.Context(), def, m.Facts())
	if problem != nil || b.Version != "1.11.0" || b.Branch != "1" || !strings.Contains(b.From, s.host()) {
		t.Fatalf("%+v %v", b, problem)
	}
	if problem := b.Choose(m.Host, d.o.StateDir, def.Kind); problem != nil {
		t.Fatal(problem)
	}
	if got, _ := store.Branched(m.Host, d.o.StateDir, def); got.Driver.Version != "1.11.0" {
		t.Errorf("chosen, and it is %q", got.Driver.Version)
	}
	// Another branch is not what the record is about; a version is not to be replaced.
	if got, _ := store.Branched(m.Host, d.o.StateDir, branched(s, "2")); got.Driver.Version != "" {
		t.Errorf("branch 2 is %q", got.Driver.Version)
	}
	pinned := branched(s, "1")
	pinned.Driver.Version = "1.2.0"
	if got, _ := store.Branched(m.Host, d.o.StateDir, pinned); got.Driver.Version != "1.2.0" {
		t.Errorf("pinned, and it is %q", got.Driver.Version)
	}

	// A version of another branch is loaded.
	have, problem := d.Probe(branched(s, "2"), m.Facts(), m.accs())
	if problem != nil || have.Upgrade == nil || !strings.Contains(have.Upgrade.Why, "branch") {
		t.Errorf("%+v %v", have, problem)
	}
	if have, problem := d.Upgrade(t.Context(), branched(s, "2"), m.Facts(), m.accs()); problem != nil ||
		have.Version != "2.1.0" {
		t.Errorf("%+v %v", have, problem)
	}

	m.Write(RequestDir(d.o.StateDir)+"/"+def.Kind+".branch.json", "{")
	got, problem = store.Branched(m.Host, d.o.StateDir, def)
	if problem == nil || problem.Reason != accel.ConfigInvalid ||
		got != def {
		t.Errorf("%v %v", got, problem)
	}
	m.Write(RequestDir(d.o.StateDir)+"/"+def.Kind+".branch.json", `{"branch": "1", "version": "2.0.0"}`)
	if got, problem := store.Branched(m.Host, d.o.StateDir, def); problem != nil || got.Driver.Version != "" {
		t.Errorf("a version of another branch: %+v %v", got.Driver, problem)
	}
}

// TestBranchWithoutNetwork: what is loaded, or in the store, needs no source.
func TestBranchWithoutNetwork(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := branched(s, "1")
	s.Close()
	d := m.driver(Options{Artifact: quick()})
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem == nil ||
		problem.Reason != accel.RegistryUnreachable {
		t.Fatal(problem)
	}
	m.enter(d, edu("1.2.0"), 1)
	m.enter(d, edu("1.10.0"), 2)
	m.enter(d, edu("2.0.0"), 3)
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || have.Version != "1.10.0" {
		t.Fatalf("%+v %v", have, problem)
	}
	if err := os.Remove(m.Path(RequestDir(d.o.StateDir) + "/" + def.Kind + ".branch.json")); err != nil {
		t.Fatal(err)
	}
	m.enter(d, edu("1.20.0"), 4)
	if got, problem := d.sources.Resolve(t.Context(), def, m.Facts()); problem != nil || got.Driver.Version != "1.10.0" {
		t.Errorf("1.10.0 is loaded, and it is %q, %v", got.Driver.Version, problem)
	}
}

// TestBranchOfPackages: a version counts that all packages of the build have, and the user space.
func TestBranchOfPackages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can own the files that the host trusts")
	}
	m := newMachine(t)
	r, err := deb.NewRepository()
	if err != nil {
		t.Fatal(err)
	}
	for name, versions := range map[string][]string{
		"card-source":      {"535.1.01-1", "535.2.01-1", "535.3.01-1", "550.9-1"},
		"card-firmware":    {"535.1.01-1", "535.2.01-2", "535.3.01-1", "550.9-1"},
		"libcard-535":      {"535.1.01-1", "535.2.01-1ubuntu1"},
		"card-firmware-no": {"535.9-1"},
	} {
		for _, v := range versions {
			r.Add(name, v, "amd64", deb.Package(name, v, "amd64", nil))
		}
	}
	key, err := r.Key()
	if err == nil {
		err = r.Publish()
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Write("/keys.gpg", string(key))
	server := httptest.NewServer(r)
	defer server.Close()
	set := accel.PackageSet{
		Format: "deb", URL: server.URL + "/debian", Suite: "stable", Components: []string{"main"},
		Keys: []string{"/keys.gpg"},
	}
	sources, space, headers := set, set, set
	sources.Packages = []string{
		"card-source={{.DriverVersion}}", "card-firmware={{.DriverVersion}}", "card-firmware-{{.DriverVersion}}",
	}
	headers.Packages = []string{"linux-headers-{{.KernelVersion}}"}
	space.Packages = []string{"libcard-{{.DriverBranch}}={{.DriverVersion}}"}
	def := ko.Definition()
	def.Driver.Version, def.Driver.Branch = "", "535"
	def.Driver.Sources = []accel.Source{{
		Type: accel.SourceBuild, Path: "/usr/src/card-{{.DriverVersion}}",
		Needs: []accel.PackageSet{headers, sources},
	}}
	d := m.driver(Options{Artifact: quick()})
	newest := func(want string) {
		t.Helper()
		if b, problem := d.sources.Newest(t.Context(), def, m.Facts()); problem != nil || b.Version != want {
			t.Errorf("%+v %v, want %s", b, problem, want)
		}
	}
	newest("535.3.01")
	def.Driver.UserSpace = &accel.UserSpace{Sources: []accel.Source{{
		Type: accel.SourcePackages, Format: space.Format, URL: space.URL, Suite: space.Suite,
		Components: space.Components, Keys: space.Keys, Packages: space.Packages,
	}}}
	newest("535.2.01")
	// What is on the host comes before what a repository has.
	m.Write("/usr/src/card-535.1.01/Makefile", "all:\n")
	m.Write("/usr/src/card-550.9/Makefile", "all:\n")
	newest("535.1.01")
	m.Write("/usr/src/card-535.9.01/Makefile", "all:\n") // for which there is no user space
	newest("535.1.01")

	def.Driver.Branch = "550"
	if _, problem := d.sources.Newest(t.Context(), def, m.Facts()); problem == nil ||
		problem.Reason != accel.ArtifactNotFound || !strings.Contains(problem.Message, "550") {
		t.Errorf("no user space of the branch: %v", problem)
	}
	def.Driver.Branch = "999"
	if _, problem := d.sources.Newest(t.Context(), def, m.Facts()); problem == nil ||
		problem.Reason != accel.ArtifactNotFound || len(problem.Tried) != 1 {
		t.Errorf("no such branch: %v", problem)
	}
	def.Driver.Sources[0].Path, def.Driver.Sources[0].Needs = "/src", nil
	if _, problem := d.sources.Newest(t.Context(), def, m.Facts()); problem == nil ||
		problem.Reason != accel.NoDriverSource {
		t.Errorf("a source that does not say: %v", problem)
	}
}
