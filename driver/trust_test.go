package driver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/test/ko"
	"github.com/acceld/acceld/test/ko/signed"
)

// requiring are options with which a key of the host must have signed.
func requiring(keys ...string) Options {
	return Options{Artifact: quick(), Trust: accel.Trust{Keys: keys, Require: true}}
}

// signedBundle writes a bundle with a good driver that key signs.
func (m *testMachine) signedBundle(t *testing.T, file string, key *trust.Key) {
	t.Helper()
	other := newMachine(t)
	d := other.driver(Options{})
	e := other.enter(d, ko.Edu(), 1)
	if err := os.MkdirAll(filepath.Dir(other.Path(file)), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, problem := d.sources.Export(other.Facts(), []store.Entry{e}, file, key); problem != nil {
		t.Fatal(problem)
	}
	m.Write(file, other.Read(file))
}

// TestRequiredSignature: where the host requires a trusted signature, nothing is loaded without one, whatever the
// source and whatever the definition says. The next source is asked only where that can be no way around.
func TestRequiredSignature(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mok := ko.Certificate(t, private, ko.Name())
	const known = "11111111 I------     1 perm 1f030000     0     0 asymmetri test: signer: deadbeef: X509.id-ecPub deadbeef []\n"
	type shelf struct {
		s   *shop
		m   *testMachine
		d   *Driver
		def *accel.Definition
		// ours is the key that the host trusts, theirs one that only the definition names.
		ours, theirs *trust.Key
	}
	kernel := func(f shelf) { // it verifies, has the key, and its certificate is on the host
		f.m.Write("/sys/module/module/parameters/sig_enforce", "N\n")
		f.m.Write("/proc/keys", procKeys+known)
		f.m.Write("/var/lib/dkms/mok.pub", string(mok.Raw))
	}
	installed := func(f shelf, signature []byte) {
		x := ko.Edu()
		x.Signature = signature
		f.m.Install("updates/edu.ko", x)
	}
	mine := signed.By(t, private, "sha256")
	for name, c := range map[string]struct {
		prepare func(shelf)
		from    string // the source of the driver; empty if there is none
		says    string
	}{
		"artifact, unsigned": {func(f shelf) { f.s.stock(t, f.def, ko.Edu(), nil, nil) }, "", "is not signed"},
		"artifact, signed":   {func(f shelf) { f.s.stock(t, f.def, ko.Edu(), nil, f.ours) }, "oci", ""},
		"artifact, signed for the definition": {func(f shelf) {
			f.s.stock(t, f.def, ko.Edu(), nil, f.theirs)
			f.def.Driver.Sources[0].Keys = []string{"/etc/theirs.pub"}
		}, "", "trust.require"},
		"artifact, unsigned, with a source after it": {func(f shelf) {
			f.s.stock(t, f.def, ko.Edu(), nil, nil)
			f.m.signedBundle(t, "/media/b.tar", f.ours)
			f.def.Driver.Sources = append(f.def.Driver.Sources, accel.Source{Type: accel.SourceBundle, Path: "/media/b.tar"})
		}, "", "is not signed"},
		"bundle, unsigned": {func(f shelf) {
			f.m.signedBundle(t, "/media/b.tar", nil)
			f.def.Driver.Sources = []accel.Source{{Type: accel.SourceBundle, Path: "/media/b.tar"}}
		}, "", "is not signed"},
		"bundle, signed": {func(f shelf) {
			f.m.signedBundle(t, "/media/b.tar", f.ours)
			f.def.Driver.Sources = []accel.Source{{Type: accel.SourceBundle, Path: "/media/b.tar"}}
		}, "bundle", ""},
		"source tree, unsigned": {func(f shelf) {
			f.m.Write("/src/edu.c", "int x;\n")
			f.def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: "/src"}}
		}, "", `the source "/src" is not signed`},
		"store, from an earlier acceld": {func(f shelf) { f.m.enter(f.d, ko.Edu(), 1) }, "", "was not noted"},
		"store, with a signed artifact after it": {func(f shelf) {
			f.m.enter(f.d, ko.Edu(), 1)
			f.s.stock(t, f.def, ko.Edu(), nil, f.ours)
		}, "oci", ""},
		"installed, unsigned": {func(f shelf) { kernel(f); installed(f, nil) }, "", "is unsigned"},
		"installed, unsigned, with a signed artifact after it": {func(f shelf) {
			kernel(f)
			installed(f, nil)
			f.s.stock(t, f.def, ko.Edu(), nil, f.ours)
		}, "oci", ""},
		"installed, signed by a key of the kernel": {func(f shelf) { kernel(f); installed(f, mine) }, "installed", ""},
		"installed, signed by somebody": {func(f shelf) {
			kernel(f)
			f.m.Write("/proc/keys", procKeys)
			installed(f, mine)
		}, "", "its key is in none of"},
		"installed, signed, and the kernel verifies nothing": {func(f shelf) {
			kernel(f)
			if err := os.Remove(f.m.Path("/sys/module/module/parameters/sig_enforce")); err != nil {
				t.Fatal(err)
			}
			installed(f, mine)
		}, "", "which this kernel does not verify"},
		"installed, signed, and only the definition has the certificate": {func(f shelf) {
			kernel(f)
			if err := os.Remove(f.m.Path("/var/lib/dkms/mok.pub")); err != nil {
				t.Fatal(err)
			}
			f.m.Write("/etc/theirs.der", string(mok.Raw))
			f.def.Driver.Sign = &accel.Signer{Key: "/etc/theirs.key", Certificate: "/etc/theirs.der"}
			installed(f, mine)
		}, "", "a key of the same name"},
		"signed artifact that needs an unsigned module": {func(f shelf) {
			kernel(f)
			f.m.Install("extra/other.ko", ko.Module{Name: "other"})
			x := ko.Edu()
			x.Info = append(x.Info, "depends=other")
			f.s.stock(t, f.def, x, nil, f.ours)
		}, "", `other.ko" is unsigned`},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := newMachine(t), newShop(t)
			f := shelf{s, m, m.driver(requiring("/etc/ours.pub")), fromShop(s), newKey(t, m, "ours"), newKey(t, m, "theirs")}
			f.def.Driver.Version = "1.0.0"
			c.prepare(f)
			have, problem := f.d.Ensure(t.Context(), f.def, m.Facts(), m.accs())
			if c.from != "" {
				if problem != nil || have.Source != c.from {
					t.Fatalf("%+v %v", have, problem)
				}
				return
			}
			if problem == nil || problem.Reason != accel.SignatureInvalid ||
				!strings.Contains(problem.Message, c.says) || len(m.loads) > 0 {
				t.Errorf("got %v, want SignatureInvalid with %q; loaded %v", problem, c.says, m.loads)
			}
		})
	}
}

// boot restarts the machine: nothing is loaded.
func (m *testMachine) boot(id string) {
	m.reboot(id)
	for _, id := range m.Devices {
		_ = os.Remove(m.Path("/sys/bus/pci/devices/" + id + "/driver"))
	}
}

// TestSignerLosesTrust: who signed a driver is noted with it in the store and judged at each load. One whose key is no
// longer trusted is unusable and says so, until there is one by a key that is.
func TestSignerLosesTrust(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := fromShop(s)
	old, other := newKey(t, m, "old"), newKey(t, m, "new")
	s.stock(t, def, ko.Edu(), nil, old)
	if have, problem := m.driver(requiring("/etc/old.pub")).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(have, problem)
	}
	m.boot("boot-2")
	d, offline := m.driver(requiring("/etc/new.pub")), source.Options{NoBuild: true}
	m.loads = nil
	_, problem := d.EnsureWith(t.Context(), def, m.Facts(), m.accs(), offline)
	if problem == nil || problem.Reason != accel.SignatureInvalid ||
		!strings.Contains(problem.Message, "this host does not trust key sha256:") || len(m.loads) > 0 {
		t.Errorf("got %v, loaded %v", problem, m.loads)
	}
	if v := d.sources.Verify(def, m.Facts()); v.Problem == nil || v.Problem.Reason != accel.SignatureInvalid {
		t.Errorf("verified: %v", v.Problem)
	}
	before, err := d.List()
	if err != nil || len(before) != 1 || !strings.Contains(before[0].Problem, "does not trust") {
		t.Errorf("%+v %v", before, err)
	}
	// The same key serves again as soon as it is trusted.
	if r := m.driver(requiring("/etc/new.pub", "/etc/old.pub")).sources.Verify(def, m.Facts()); r.Problem != nil {
		t.Errorf("with both keys: %v", r.Problem)
	}
	// The artifact is signed again, and takes the place of the entry.
	s.stock(t, def, ko.Edu(), nil, other)
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || have.Source != "oci" {
		t.Fatalf("%+v %v", have, problem)
	}
	after, err := d.List()
	if err != nil || len(after) != 1 || after[0].Problem != "" || after[0].Key != before[0].Key ||
		slices.Equal(after[0].SignedBy, before[0].SignedBy) || after[0].Source != accel.SourceOCI ||
		!strings.HasPrefix(after[0].Origin, s.host()) {
		t.Errorf("%+v %v", after, err)
	}
}

// TestKeysBind: the keys of a definition's sources count for what was fetched with them, too. An entry is judged by
// today's keys, not by those of the day on which it came.
func TestKeysBind(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := fromShop(s)
	s.stock(t, def, ko.Edu(), nil, newKey(t, m, "a"))
	newKey(t, m, "b")
	def.Driver.Sources[0].Keys = []string{"/etc/a.pub"}
	d := m.driver(Options{Artifact: quick()})
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(have, problem)
	}
	signed := def.Driver.Sources[0]
	anybody := signed
	signed.Keys, anybody.Keys = []string{"/etc/b.pub"}, nil
	both := signed
	both.Keys = []string{"/etc/b.pub", "/etc/a.pub"}
	lost := signed
	lost.Keys = []string{"/etc/lost.pub"}
	build := accel.Source{Type: accel.SourceBuild, Path: "/src"}
	for name, c := range map[string]struct {
		sources []accel.Source
		trust   accel.Trust
		want    accel.Reason
	}{
		"another key":                         {[]accel.Source{signed}, accel.Trust{}, accel.SignatureInvalid},
		"another key, and a source with none": {[]accel.Source{signed, anybody}, accel.Trust{}, accel.SignatureInvalid},
		"one more key":                        {[]accel.Source{both}, accel.Trust{}, ""},
		"no key":                              {[]accel.Source{anybody}, accel.Trust{}, ""},
		"no prebuilt driver":                  {[]accel.Source{build}, accel.Trust{}, ""},
		"another key, the host trusts it":     {[]accel.Source{signed}, accel.Trust{Keys: []string{"/etc/a.pub"}}, ""},
		"a key that cannot be read":           {[]accel.Source{lost}, accel.Trust{}, accel.ConfigInvalid},
	} {
		def.Driver.Sources = c.sources
		v := m.driver(Options{Trust: c.trust}).sources.Verify(def, m.Facts())
		if c.want == "" && v.Problem != nil || c.want != "" && (v.Problem == nil || v.Problem.Reason != c.want) {
			t.Errorf("%s: %v, want %q", name, v.Problem, c.want)
		}
	}
}

// TestImportIsHeldToTheKeys: what is brought by hand is held to the keys of the kind's sources and of the host.
func TestImportIsHeldToTheKeys(t *testing.T) {
	m := newMachine(t)
	ours := newKey(t, m, "ours")
	newKey(t, m, "theirs")
	m.signedBundle(t, "/media/signed.tar", ours)
	m.signedBundle(t, "/media/unsigned.tar", nil)
	named := ko.Definition()
	named.Driver.Sources = []accel.Source{{Type: accel.SourceBundle, Path: "/x", Keys: []string{"/etc/ours.pub"}}}
	for name, c := range map[string]struct {
		file string
		def  *accel.Definition
		o    Options
		keys []string
		good bool
	}{
		"unsigned, nobody asks":          {"unsigned", ko.Definition(), Options{}, nil, true},
		"unsigned, the sources ask":      {"unsigned", named, Options{}, nil, false},
		"unsigned, the host asks":        {"unsigned", ko.Definition(), requiring("/etc/ours.pub"), nil, false},
		"signed, the sources ask":        {"signed", named, Options{}, nil, true},
		"signed, the host asks":          {"signed", ko.Definition(), requiring("/etc/ours.pub"), nil, true},
		"signed, the host asks others":   {"signed", ko.Definition(), requiring("/etc/theirs.pub"), nil, false},
		"signed, a key by hand":          {"signed", ko.Definition(), Options{}, []string{"/etc/ours.pub"}, true},
		"signed, a key by hand, another": {"signed", ko.Definition(), Options{}, []string{"/etc/theirs.pub"}, false},
	} {
		d := m.driver(c.o)
		entries, _, problem := d.sources.Import(t.Context(), map[string]*accel.Definition{"qemu-edu": c.def}, m.Facts(),
			"/media/"+c.file+".tar", c.keys)
		if (problem == nil) != c.good || problem != nil && problem.Reason != accel.SignatureInvalid {
			t.Errorf("%s: %v", name, problem)
		}
		if problem != nil && strings.Count(problem.Message, "sha256:") != 1 {
			t.Errorf("%s: the artifact is not named once: %s", name, problem.Message)
		}
		if there, _ := d.store.List(); len(there) != len(entries) || len(there) > 0 != c.good {
			t.Errorf("%s: the store has %d", name, len(there))
		}
		if err := m.Host.RemoveAll("/var/lib/acceld"); err != nil {
			t.Fatal(err)
		}
	}
}

// key writes a new key next to the source of a workshop, and returns it with the file of its public half.
func (w *workshop) key() (*trust.Key, string) {
	w.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	w.write(dir, "pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	return trust.NewKey(private), filepath.Join(dir, "pub")
}

// TestSignedSource: where the host requires a trusted signature, a driver is built only from a tree that a trusted key
// signed, as it is, with these arguments. Nothing of any other tree runs. What was built may be loaded as long as the
// signer of its source is trusted.
func TestSignedSource(t *testing.T) {
	w := newWorkshop(t, goodMake)
	ours, file := w.key()
	theirs, _ := w.key()
	def, o := w.definition(), requiring(file)
	def.Driver.Sources[0].Make = []string{"HEADERS={{.KernelHeaders}}"}
	o.StateDir = w.state
	d := New(w.h, o)
	refused := func(what, says string) {
		t.Helper()
		_, problem := d.sources.Build(t.Context(), def, w.facts())
		if problem == nil || problem.Reason != accel.SignatureInvalid || !strings.Contains(problem.Message, says) ||
			w.runs() > 0 {
			t.Errorf("%s: %v, want %q; make ran %d times", what, problem, says, w.runs())
		}
	}
	sign := func(key *trust.Key) {
		t.Helper()
		files, problem := d.sources.Sign(t.Context(), def, w.facts(), key)
		if problem != nil || !slices.Equal(files, []string{w.source + ".sig"}) {
			t.Fatal(files, problem)
		}
	}
	refused("unsigned", "is not signed")
	w.write(filepath.Dir(w.source), filepath.Base(w.source)+".sig", strings.Repeat("AAAA\n", 100))
	refused("a long file of signatures", "64 lines")
	if err := os.Remove(w.source + ".sig"); err != nil {
		t.Fatal(err)
	}
	sign(theirs)
	refused("signed by somebody", "by another key")
	sign(ours)
	w.write(w.source, "edu.c", "int y;\n")
	refused("another tree", "of another tree")
	w.write(w.source, "edu.c", "int x;\n")
	def.Driver.Sources[0].Make = append(def.Driver.Sources[0].Make, "CC=/tmp/cc")
	refused("another compiler", "other arguments for make")
	def.Driver.Sources[0].Make = []string{"CC=/tmp/cc"}
	refused("another compiler in place of the argument", "other arguments for make")
	def.Driver.Sources[0].Make = []string{`HEADERS={{if eq .KernelHeaders "/headers"}}/headers{{else}}/tmp{{end}}`}
	refused("arguments that change after they were judged", "other arguments than were signed")
	def.Driver.Sources[0].Make = []string{"HEADERS={{.KernelHeaders}}"}
	e, problem := d.sources.Build(t.Context(), def, w.facts())
	if problem != nil || w.runs() != 1 || e.Source != accel.SourceBuild || e.Origin != w.source ||
		len(e.SignedBy) != 1 {
		t.Fatalf("%+v %v, make ran %d times", e, problem, w.runs())
	}
	if problem := d.store.Trusted(def, e.Manifest); problem != nil {
		t.Error(problem)
	}
	_, other := w.key()
	o.Trust.Keys = []string{other}
	if problem := New(w.h, o).store.Trusted(def, e.Manifest); problem == nil ||
		problem.Reason != accel.SignatureInvalid {
		t.Errorf("with another key: %v", problem)
	}
}

// TestRestoresOnlyTrusted: what was live is not loaded again after a failed change if nobody whom the host trusts
// signed it, in the store or on the host.
func TestRestoresOnlyTrusted(t *testing.T) {
	for name, where := range map[string]func(*testMachine, *Driver){
		"in the store": func(m *testMachine, d *Driver) { m.enter(d, ko.Edu(), 1) },
		"installed":    func(m *testMachine, _ *Driver) { m.Install("updates/edu.ko", ko.Edu()) },
	} {
		for _, o := range []Options{{}, requiring("/etc/ours.pub")} {
			m := newMachine(t)
			newKey(t, m, "ours")
			d := m.driver(o)
			where(m, d)
			m.Live(ko.Edu())
			live := d.look(ko.Definition(), m.accs()).modules
			p := d.loader.restorable(ko.Definition(), m.Facts(), live)
			p.Close()
			if restored := len(p.Modules) > 0; restored == o.Trust.Require || len(live) != 1 {
				t.Errorf("%s, signatures required: %t, restored: %t", name, o.Trust.Require, restored)
			}
		}
	}
}

// TestNothingPublishedUnsigned: where signatures are required, a driver that is built here goes to no registry.
func TestNothingPublishedUnsigned(t *testing.T) {
	w, s := newWorkshop(t, goodMake), newShop(t)
	ours, file := w.key()
	o := requiring(file)
	o.StateDir = w.state
	def := w.definition()
	def.Driver.Sources = append([]accel.Source{{Type: accel.SourceOCI, Image: s.host() + "/edu", Push: true}},
		def.Driver.Sources...)
	d := New(w.h, o)
	if _, problem := d.sources.Sign(t.Context(), def, w.facts(), ours); problem != nil {
		t.Fatal(problem)
	}
	a := ask(t, d, def, w.facts(), accel.SourceBuild)
	d.sources.Wait()
	if a.Verdict != source.Satisfied || s.asked() > 0 {
		t.Errorf("%s %v, the registry was asked %d times", a.Verdict, a.Problem, s.asked())
	}
	if a.Plan != nil {
		a.Plan.Close()
	}
}
