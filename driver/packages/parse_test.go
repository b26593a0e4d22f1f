package packages

import (
	"bytes"
	"strings"
	"testing"

	"github.com/acceld/acceld/driver/unpack"
)

// TestCompare orders versions as dpkg --compare-versions and rpmdev-vercmp do.
func TestCompare(t *testing.T) {
	for _, row := range []struct {
		f        Format
		ascended string
	}{
		{Deb, "1.0~rc1-1 1.0-1~bpo1 1.0-1 1.0-1+b1 1.0-2 1.0a-1 1.0.1-1 1.9-1 1.10-1 2-1 1:0.1-1"},
		{Deb, "535.54.03-1 535.183.01-1~deb12u1 535.183.01-1 535.261.03-1 550.54-1"},
		{Deb, "0~~ 0~ 0 0a 0+ 0."},
		{RPM, "1.0~rc1-1 1.0-1 1.0^git1-1 1.0.a-1 1.0.1-1 1.9-1 1.10-1 2-1 1:0.1-1"},
		{RPM, "6.0-1 6.0.rc1-1"},
		{RPM, "535.54.03-1.el9 535.261.03-1.el8 535.261.03-1.el9 535.261.03-2.el9"},
	} {
		all := strings.Fields(row.ascended)
		for i, a := range all {
			for j, b := range all {
				got := row.f.compare(a, b)
				if got < 0 != (i < j) || got > 0 != (i > j) {
					t.Errorf("%s: %s and %s: %d", row.f, a, b, got)
				}
			}
		}
	}
	for _, same := range [][2]string{{"1.0-1", "1.00-01"}, {"0:1-1", "1-1"}} {
		if Deb.compare(same[0], same[1]) != 0 || RPM.compare(same[0], same[1]) != 0 {
			t.Errorf("%v differ", same)
		}
	}
	if RPM.compare("2.0.1", "2_0_1") != 0 || RPM.compare("1.0a", "1.0") <= 0 || RPM.compare("5.5p1", "5.5p10") >= 0 {
		t.Error("separators, letters or numbers of rpm")
	}
}

// FuzzCompare: the order of versions is one, whatever they are.
func FuzzCompare(f *testing.F) {
	f.Add("1:1.0~rc1-1", "1.0^git-2")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, format := range []Format{Deb, RPM} {
			x, y := format.compare(a, b), format.compare(b, a)
			if (x < 0) != (y > 0) || (x == 0) != (y == 0) || format.compare(a, a) != 0 {
				t.Errorf("%s: %q and %q: %d, %d", format, a, b, x, y)
			}
		}
		_ = matches(a, b)
	})
}

// FuzzStanzas: whatever an index contains, its candidates are in files below the repository.
func FuzzStanzas(f *testing.F) {
	f.Add([]byte("Package: x\nVersion: 1-1\nArchitecture: all\nFilename: pool/x.deb\nSize: 5\nSHA256: " +
		strings.Repeat("0", 64) + "\nDescription: x\n y\n\nPackage: y\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &fetch{Request: Request{
			Packages: []Wanted{{Name: "x"}}, Repository: Repository{Architecture: "amd64"},
		}}
		var out listing
		if r.readPackages(bytes.NewReader(text), &out) != nil {
			return
		}
		for _, c := range out.all {
			if !unpack.Local(c.file) || c.size <= 0 || !c.digest.Valid() {
				t.Errorf("%+v", c)
			}
		}
	})
}

// FuzzRelease: whatever a Release file contains, its digests have their form.
func FuzzRelease(f *testing.F) {
	f.Add([]byte("Suite: stable\nDate: Sat, 11 Oct 2025 09:34:11 UTC\nValid-Until: Sat, 18 Oct 2025 09:34:11 UTC\n" +
		"SHA256:\n " + strings.Repeat("0", 64) + " 12 main/binary-amd64/Packages.xz\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRelease(text)
		if err != nil {
			return
		}
		for name, i := range r.files {
			if !i.digest.Valid() || i.size < 0 {
				t.Errorf("%q: %+v", name, i)
			}
		}
	})
}

// FuzzRepomd: whatever a repomd.xml contains, the list of packages is below the repository.
func FuzzRepomd(f *testing.F) {
	f.Add([]byte(`<repomd><data type="primary"><checksum type="sha256">` + strings.Repeat("0", 64) +
		`</checksum><location href="repodata/p.xml.gz"/><timestamp>5</timestamp><size>5</size></data></repomd>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parseRepomd(text); err == nil && (!unpack.Local(p.file) || !p.digest.Valid() || p.size <= 0) {
			t.Errorf("%+v", p)
		}
	})
}

// FuzzPrimary is [FuzzStanzas] for rpm.
func FuzzPrimary(f *testing.F) {
	f.Add([]byte(`<metadata><package type="rpm"><name>x</name><arch>noarch</arch><version epoch="0" ver="1" rel="1"/>` +
		`<checksum type="sha256">` + strings.Repeat("0", 64) + `</checksum><size package="5"/>` +
		`<location href="x.rpm"/></package></metadata>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &fetch{Request: Request{
			Packages: []Wanted{{Name: "x"}}, Repository: Repository{Architecture: "x86_64"},
		}}
		var out listing
		if r.readPrimary(bytes.NewReader(text), &out) != nil {
			return
		}
		for _, c := range out.all {
			if !unpack.Local(c.file) || c.size <= 0 || !c.digest.Valid() {
				t.Errorf("%+v", c)
			}
		}
	})
}

// FuzzRPM: whatever an rpm contains, its header does not lead outside of it.
func FuzzRPM(f *testing.F) {
	h := header(value{tagName, "x"}, value{tagVersion, "1"}, value{tagRelease, "1"}, value{tagArch, "x86_64"},
		value{tagSource, "x"})
	lead := make([]byte, leadSize)
	copy(lead, "\xed\xab\xee\xdb")
	f.Add(bytes.Join([][]byte{lead, header(), h}, nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := readRPM(bytes.NewReader(text))
		if err == nil && (r.name == "" || r.version == "") {
			t.Errorf("%+v", r)
		}
	})
}

// FuzzKeys: whatever keys and signatures contain, nobody has signed a text who has not.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"), []byte("-----BEGIN PGP SIGNATURE-----\n\n"))
	f.Add([]byte("\x99\x01\x0d"), []byte("\x88\x75\x04"))
	f.Fuzz(func(t *testing.T, keys, signature []byte) {
		all, err := parseKeys(keys)
		if err != nil {
			all = nil
		}
		if key, err := (keyring{all}).check(strings.NewReader("a text"), signature); err == nil {
			t.Errorf("key %s has signed", key)
		}
	})
}
