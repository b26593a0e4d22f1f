package packages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/deb"
)

// value is a value of a header: text, bytes or a number.
type value struct {
	tag int32
	is  any
}

// header makes a header of an rpm.
func header(all ...value) []byte {
	var index, store bytes.Buffer
	put := func(n ...int32) {
		if err := binary.Write(&index, binary.BigEndian, n); err != nil {
			panic(err)
		}
	}
	slices.SortFunc(all, func(a, b value) int { return int(a.tag - b.tag) })
	for _, v := range all {
		switch is := v.is.(type) {
		case string:
			put(v.tag, typeString, int32(store.Len()), 1)
			store.WriteString(is + "\x00")
		case []byte:
			put(v.tag, typeBytes, int32(store.Len()), int32(len(is)))
			store.Write(is)
		case uint32:
			store.Write(make([]byte, (4-store.Len()%4)%4))
			put(v.tag, typeInt32, int32(store.Len()), 1)
			store.Write(binary.BigEndian.AppendUint32(nil, is))
		}
	}
	out := []byte("\x8e\xad\xe8\x01\x00\x00\x00\x00")
	out = binary.BigEndian.AppendUint32(out, uint32(len(all)))
	out = binary.BigEndian.AppendUint32(out, uint32(store.Len()))
	return slices.Concat(out, index.Bytes(), store.Bytes())
}

// cpio makes the payload of an rpm, with one file.
func cpio(name, text string) []byte {
	var out bytes.Buffer
	for _, e := range [][2]string{{name, text}, {"TRAILER!!!", ""}} {
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", 1, 0o100644, 0, 0, 1, 0,
			len(e[1]), 0, 0, 0, 0, len(e[0])+1, 0)
		out.WriteString(e[0] + "\x00")
		out.Write(make([]byte, (4-out.Len()%4)%4))
		out.WriteString(e[1])
		out.Write(make([]byte, (4-out.Len()%4)%4))
	}
	return deb.Gzip(out.Bytes())
}

// rpmed makes a package with a file below usr/lib64, signed by a key if there is one: its header, or all of it.
func rpmed(t *testing.T, key *openpgp.Entity, whole bool, name, version, release string) []byte {
	t.Helper()
	payload := cpio("./usr/lib64/"+name, name+" "+version)
	values := []value{
		{tagName, name},
		{tagVersion, version},
		{tagRelease, release},
		{tagArch, "x86_64"},
		{tagSource, "x.src.rpm"},
		{tagPayload, "cpio"},
		{tagEpoch, uint32(3)},
	}
	if !whole {
		values = append(values, value{tagPayloadDigest, digest(payload)}, value{tagPayloadHash, uint32(8)})
	}
	h := header(values...)
	var signatures []value
	switch {
	case key != nil && whole:
		signatures = append(signatures, value{tagSignPGP, detached(t, key, slices.Concat(h, payload))})
	case key != nil:
		signatures = append(signatures, value{tagSignRSA, detached(t, key, h)})
	}
	s := header(signatures...)
	lead := make([]byte, leadSize)
	copy(lead, "\xed\xab\xee\xdb")
	return slices.Concat(lead, s, make([]byte, (8-len(s)%8)%8), h, payload)
}

// yum is an rpm repository in the making.
type yum struct {
	b       *bench
	primary string
	when    time.Time
}

func (y *yum) add(name, version, release string, text []byte) {
	file := "Packages/" + name + "-" + version + "-" + release + ".x86_64.rpm"
	y.b.files[file] = text
	y.primary += fmt.Sprintf(`<package type="rpm"><name>%s</name><arch>x86_64</arch>`+
		`<version epoch="3" ver="%s" rel="%s"/><checksum type="sha256" pkgid="YES">%s</checksum>`+
		`<size package="%d" installed="1"/><location href="%s"/>`+
		`<format><rpm:license>x</rpm:license></format></package>`, name, version, release, digest(text), len(text), file)
}

// publish writes the repository as it is, signed by a key if there is one.
func (y *yum) publish(key *openpgp.Entity) {
	packed := deb.Gzip([]byte(`<?xml version="1.0" encoding="UTF-8"?><metadata ` +
		`xmlns="http://linux.duke.edu/metadata/common" xmlns:rpm="http://linux.duke.edu/metadata/rpm">` + y.primary +
		`</metadata>`))
	top := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><repomd xmlns="http://linux.duke.edu/metadata/repo">`+
		`<revision>1</revision><data type="primary"><checksum type="sha256">%s</checksum>`+
		`<location href="repodata/primary.xml.gz"/><timestamp>%d</timestamp><size>%d</size></data></repomd>`,
		digest(packed), y.when.Unix(), len(packed))
	y.b.files["repodata/primary.xml.gz"], y.b.files["repodata/repomd.xml"] = packed, []byte(top)
	delete(y.b.files, "repodata/repomd.xml.asc")
	if key != nil {
		y.b.files["repodata/repomd.xml.asc"] = detached(y.b.T, key, []byte(top))
	}
}

func (b *bench) yum() *yum { return &yum{b: b, when: time.Now().Add(-time.Hour)} }

func (b *bench) rpms(packages ...string) Request {
	r := b.request(packages...)
	r.Repository.Format, r.Repository.Architecture = RPM, "x86_64"
	r.Repository.Suite, r.Repository.Components = "", nil
	return r
}

// TestRPM: a package is trusted because its repository is signed, or because it is.
func TestRPM(t *testing.T) {
	b := newBench(t)
	stranger := b.newKey("stranger", 0)
	for name, c := range map[string]struct {
		repository, pkg *openpgp.Entity
		whole           bool
		want            accel.Reason
	}{
		"the repository is signed":     {b.key, nil, false, ""},
		"the package is signed":        {nil, b.key, false, ""},
		"all of the package is signed": {nil, b.key, true, ""},
		"both are":                     {b.key, b.key, false, ""},
		"a package of others, listed":  {b.key, stranger, false, ""},
		"neither":                      {nil, nil, false, accel.SignatureInvalid},
		"a stranger's repository":      {stranger, b.key, false, accel.SignatureInvalid},
		"a stranger's package":         {nil, stranger, false, accel.SignatureInvalid},
		"all of it a stranger's":       {nil, stranger, true, accel.SignatureInvalid},
	} {
		b := &bench{T: t, h: b.h, root: b.root, key: b.key, o: b.o, server: b.server, files: b.files}
		b.must(os.RemoveAll(filepath.Join(b.root, "out")))
		b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
		y := b.yum()
		y.add("libx1", "1.2", "1.el9", rpmed(t, c.pkg, c.whole, "libx1", "1.2", "1.el9"))
		y.publish(c.repository)
		if c.want != "" {
			b.refused(name, b.rpms("libx1"), c.want)
			continue
		}
		got, problem := b.fetch(b.rpms("libx1=1.2"))
		if problem != nil {
			t.Errorf("%s: %v", name, problem)
			continue
		}
		p := got.Packages[0]
		diff := cmp.Diff(map[string]string{"usr/lib64/libx1": "libx1 1.2"}, b.there())
		if diff != "" || len(p.Key) != 40 || p.Version != "3:1.2-1.el9" || got.Date.IsZero() != (c.repository == nil) {
			t.Errorf("%s: %+v\n%s", name, got, diff)
		}
	}
}

// TestRPMAttacks: nothing is unpacked of an rpm repository that somebody tampered with.
func TestRPMAttacks(t *testing.T) {
	const file = "Packages/libx1-1.2-1.el9.x86_64.rpm"
	for name, c := range map[string]struct {
		change func(*yum)
		want   accel.Reason
		words  string
	}{
		"another repomd": {func(y *yum) {
			y.b.files["repodata/repomd.xml"] = append(y.b.files["repodata/repomd.xml"], ' ')
		}, accel.SignatureInvalid, "not valid"},
		"another list": {func(y *yum) {
			y.b.files["repodata/primary.xml.gz"] = deb.Gzip([]byte("<metadata/>"))
		}, accel.DigestMismatch, "primary"},
		"another package": {func(y *yum) {
			y.b.files[file] = rpmed(y.b.T, nil, false, "libx1", "1.2", "2.el9")
		}, accel.DigestMismatch, "libx1"},
		"a package that says it is another": {func(y *yum) {
			y.primary = ""
			y.add("libx1", "1.2", "1.el9", rpmed(y.b.T, y.b.key, false, "liby1", "1.2", "1.el9"))
			y.publish(y.b.key)
		}, accel.ArtifactInvalid, "liby1"},
		"an older package under a new name": {func(y *yum) {
			y.primary = ""
			y.add("libx1", "1.2", "1.el9", rpmed(y.b.T, y.b.key, false, "libx1", "1.1", "1.el9"))
			y.publish(nil)
		}, accel.ArtifactInvalid, "1.1"},
		"another payload, signed header": {func(y *yum) {
			text := rpmed(y.b.T, y.b.key, false, "libx1", "1.2", "1.el9")
			y.primary = ""
			y.add("libx1", "1.2", "1.el9", append(text, "more"...))
			y.publish(nil)
		}, accel.SignatureInvalid, "payload"},
		"another payload, all signed": {func(y *yum) {
			text := rpmed(y.b.T, y.b.key, true, "libx1", "1.2", "1.el9")
			y.primary = ""
			y.add("libx1", "1.2", "1.el9", append(text, "more"...))
			y.publish(nil)
		}, accel.SignatureInvalid, "not valid"},
		"a damaged signature in a signed list": {func(y *yum) {
			text := rpmed(y.b.T, y.b.key, false, "libx1", "1.2", "1.el9")
			y.primary = ""
			y.add("libx1", "1.2", "1.el9", bytes.Replace(text, []byte("x.src.rpm"), []byte("y.src.rpm"), 1))
			y.publish(y.b.key)
		}, accel.SignatureInvalid, "not valid"},
		"traversal": {func(y *yum) {
			y.primary = strings.ReplaceAll(y.primary, "Packages/", "../Packages/")
			y.publish(y.b.key)
		}, accel.ArtifactInvalid, "libx1"},
		"an endless element": {func(y *yum) {
			y.primary = `<package type="rpm"><name>` + strings.Repeat("x", 8<<20) + `</name></package>`
			y.publish(y.b.key)
		}, accel.ArtifactInvalid, "too long"},
		"no list": {func(y *yum) {
			y.b.files["repodata/repomd.xml"] = []byte("<repomd/>")
			delete(y.b.files, "repodata/repomd.xml.asc")
		}, accel.ArtifactInvalid, "no list"},
		"sha1": {func(y *yum) {
			y.primary = strings.ReplaceAll(y.primary, `"sha256"`, `"sha"`)
			y.publish(y.b.key)
		}, accel.ArtifactInvalid, "neither SHA-256"},
		"of the future": {func(y *yum) {
			y.when = time.Now().Add(48 * time.Hour)
			y.publish(y.b.key)
		}, accel.SignatureInvalid, "clock"},
		"no repository": {func(y *yum) { clear(y.b.files) }, accel.ArtifactNotFound, "404"},
		"no version": {func(y *yum) {
			y.primary = ""
			y.add("libx1", "1.3", "1.el9", nil)
			y.publish(y.b.key)
		}, accel.ArtifactInvalid, "size 0"},
	} {
		b := newBench(t)
		y := b.yum()
		y.add("libx1", "1.2", "1.el9", rpmed(t, b.key, false, "libx1", "1.2", "1.el9"))
		y.publish(b.key)
		c.change(y)
		b.refused(name, b.rpms("libx1"), c.want, c.words)
	}
	b := newBench(t)
	y := b.yum()
	y.add("libx1", "1.2", "1.el9", rpmed(t, b.key, false, "libx1", "1.2", "1.el9"))
	y.publish(b.key)
	r := b.rpms("libx1")
	r.Seen = time.Now()
	b.refused("replay", r, accel.SignatureInvalid, "serves an old one")
}

// TestDirectoryOfRPMs: a host that demands signatures takes packages of a directory that a key has signed.
func TestDirectoryOfRPMs(t *testing.T) {
	b := newBench(t)
	stranger := b.newKey("stranger", 0)
	b.write("media/good.rpm", rpmed(t, b.key, false, "good", "1", "1"))
	b.write("media/bad.rpm", rpmed(t, stranger, false, "bad", "1", "1"))
	r := b.rpms("good")
	r.Repository = Repository{Format: RPM, Path: "/media", Architecture: "x86_64", Keys: []string{"/etc/keys.gpg"}}
	b.o.Trust.Require = true
	got, problem := b.fetch(r)
	if problem != nil || len(got.Packages[0].Key) != 40 || b.there()["usr/lib64/good"] != "good 1" {
		t.Errorf("%+v, %v", got, problem)
	}
	b.must(os.RemoveAll(filepath.Join(b.root, "out")))
	b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
	r.Packages[0].Name = "bad"
	b.refused("a stranger's", r, accel.SignatureInvalid, "wanted keys")
	r.Repository.Keys = nil
	b.refused("no keys", r, accel.SignatureInvalid, "trust.require")
	b.o.Trust.Require = false
	if _, problem := b.fetch(r); problem != nil {
		t.Error(problem)
	}
}
