package artifact

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
)

// member is an entry of the layer of an image.
type member struct {
	flag byte
	name string
	text string // of a file; the target of a link
	mode int64  // 0644 when zero, 0755 for a directory
}

func file(name, text string) member   { return member{tar.TypeReg, name, text, 0} }
func folder(name string) member       { return member{tar.TypeDir, name + "/", "", 0} }
func link(name, text string) member   { return member{tar.TypeSymlink, name, text, 0} }
func second(name, text string) member { return member{tar.TypeLink, name, text, 0} }

// layered makes an uncompressed layer.
func layered(t testing.TB, all ...member) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range all {
		h := &tar.Header{Typeflag: m.flag, Name: m.name, Mode: m.mode, Uid: 1000, Gid: 1000}
		text := m.text
		if m.flag == tar.TypeSymlink || m.flag == tar.TypeLink {
			h.Linkname, text = m.text, ""
		}
		if m.mode == 0 {
			h.Mode = map[bool]int64{true: 0o755, false: 0o644}[m.flag == tar.TypeDir]
		}
		h.Size = int64(len(text))
		err := w.WriteHeader(h)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(out.Bytes())
}

// listed describes everything below a directory, by name.
func listed(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%o", st.Mode().Perm())
		switch {
		case st.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky|fs.ModeDevice|fs.ModeNamedPipe) != 0:
			t.Errorf("%s has mode %v", name, st.Mode())
		case e.Type() == fs.ModeSymlink:
			text, err = os.Readlink(name)
			text = "-> " + text
		case e.Type() == 0:
			var content []byte
			content, err = os.ReadFile(name)
			text += " " + string(content)
			if st.Sys().(*syscall.Stat_t).Nlink > 1 {
				text += " linked"
			}
		}
		relative, _ := filepath.Rel(dir, name)
		out[relative] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRootfs: layers make the file system that a container would have, with fewer rights. Nothing leaves it.
func TestRootfs(t *testing.T) {
	base := []member{folder("usr"), folder("usr/bin"), link("bin", "/usr/bin"), file("bin/make", "make")}
	root := map[string]string{"usr": "755", "usr/bin": "755", "bin": "-> /usr/bin", "usr/bin/make": "644 make"}
	with := func(more map[string]string) map[string]string {
		out := map[string]string{}
		for _, m := range []map[string]string{root, more} {
			for k, v := range m {
				if out[k] = v; v == "" {
					delete(out, k)
				}
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		above []member
		want  map[string]string // nil: refused
	}{
		"nothing above": {nil, root},
		"another file":  {[]member{file("./usr/bin/make", "new")}, with(map[string]string{"usr/bin/make": "644 new"})},
		"rights that are not kept": {
			[]member{{tar.TypeReg, "su", "x", 0o6755}, {tar.TypeDir, "tmp/", "", 0o1777}, {tar.TypeDir, "closed/", "", 0o4000}},
			with(map[string]string{"su": "755 x", "tmp": "777", "closed": "700"}),
		},
		"what is no file": {[]member{
			{tar.TypeChar, "dev/sda", "", 0}, {tar.TypeBlock, "sdb", "", 0}, {tar.TypeFifo, "pipe", "", 0},
		}, with(map[string]string{})},
		"a hard link": {
			[]member{second("gmake", "usr/bin/make")},
			with(map[string]string{"gmake": "644 make linked", "usr/bin/make": "644 make linked"}),
		},
		"a hard link to itself": {[]member{second("usr/bin/make", "bin/make")}, root},
		"a file is removed":     {[]member{file("bin/.wh.make", "")}, with(map[string]string{"usr/bin/make": ""})},
		"a directory is removed": {
			[]member{file(".wh.usr", "")}, map[string]string{"bin": "-> /usr/bin"},
		},
		"a directory is emptied, after what comes instead": {
			[]member{file("usr/bin/gcc", "gcc"), file("usr/bin/.wh..wh..opq", "")},
			with(map[string]string{"usr/bin/make": "", "usr/bin/gcc": "644 gcc"}),
		},
		"everything is removed": {[]member{file(".wh..wh..opq", ""), file("a", "a")}, map[string]string{"a": "644 a"}},
		"notes of a driver":     {[]member{file(".wh..wh.plnk/x", ""), file(".wh..wh.aufs", "")}, with(map[string]string{".wh..wh.plnk": "755", ".wh..wh.plnk/x": "644 "})},
		"a directory for a link": {
			[]member{folder("bin"), file("bin/x", "x")},
			with(map[string]string{"bin": "755", "bin/x": "644 x"}),
		},
		"a link for a directory": {
			[]member{link("usr", "elsewhere"), file("usr/x", "x")},
			map[string]string{"bin": "-> /usr/bin", "usr": "-> elsewhere", "elsewhere": "755", "elsewhere/x": "644 x"},
		},
		"links that lead out": {
			[]member{link("up", "../../../../.."), file("up/etc/x", "x"), link("self", "self2"), link("root", "/")},
			with(map[string]string{
				"up": "-> ../../../../..", "etc": "755", "etc/x": "644 x", "self": "-> self2", "root": "-> /",
			}),
		},
		"a file for a link that leads out": {
			[]member{link("passwd", "../outside"), second("again", "passwd"), file("again", "evil")},
			with(map[string]string{"passwd": "-> ../outside", "again": "644 evil"}),
		},
		"a name that leads out":         {[]member{file("../x", "x")}, nil},
		"a name that leads about":       {[]member{file("a/../../x", "x")}, nil},
		"an absolute name":              {[]member{file("/x", "x")}, nil},
		"a hard link that leads out":    {[]member{second("x", "../outside")}, nil},
		"a hard link to a directory":    {[]member{second("x", "usr")}, nil},
		"a hard link to nothing":        {[]member{second("x", "nothing")}, nil},
		"a mark that leads out":         {[]member{file("usr/.wh...", "")}, nil},
		"a mark of the directory":       {[]member{file("usr/.wh..", "")}, nil},
		"a mark of nothing":             {[]member{file("usr/.wh.", "")}, nil},
		"a link to nothing":             {[]member{link("x", strings.Repeat("x", unpack.NameLimit))}, nil},
		"a file below a file":           {[]member{file("bin/make/x", "x")}, nil},
		"links that lead to each other": {[]member{link("a", "b"), link("b", "a"), file("a/x", "x")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkbench(t)
			b.write("/tmp/outside", "outside")
			dir := b.empty() + "/root"
			f, err := newRootfs(newExtraction(t.Context(), b.h, dir, imageLimits()))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.layer(layered(t, base...)); err != nil {
				t.Fatal(err)
			}
			err = f.layer(layered(t, c.above...))
			refused := err != nil && explain(err).Reason == accel.ArtifactInvalid
			if c.want == nil && !refused || c.want != nil && err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(c.want, listed(t, filepath.Join(b.root, dir))); c.want != nil && diff != "" {
				t.Error(diff)
			}
			if got := b.read("/tmp/outside"); got != "outside" {
				t.Errorf("the file outside is %q", got)
			}
		})
	}
}

// TestRootfsBounds: directories that no entry is for count as files, and both limits hold for all layers together.
func TestRootfsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]member
		good   bool
	}{
		"as many files as allowed": {[][]member{{file("a", ""), file("b", "")}, {file("c/d", "")}}, true},
		"one file more":            {[][]member{{file("a", ""), file("b", "")}, {file("c", ""), file("d", ""), file("e", "")}}, false},
		"many directories":         {[][]member{{file("a/b/c/d/e", "")}}, false},
		"as many bytes as allowed": {[][]member{{file("a", strings.Repeat("x", 5000))}, {file("a", strings.Repeat("x", 5000))}}, true},
		"more bytes": {[][]member{
			{file("a", strings.Repeat("x", 5000))}, {file("a", strings.Repeat("x", 5000))}, {file("a", strings.Repeat("x", 5000))},
		}, false},
		"a byte more in one header": {[][]member{{file("a", strings.Repeat("x", 14001))}}, false},
	} {
		b := newWorkbench(t)
		x := newExtraction(t.Context(), b.h, b.empty(), Limits{Unpacked: 14000, Files: 4})
		f, err := newRootfs(x)
		for _, l := range c.layers {
			if err == nil {
				err = f.layer(layered(t, l...))
			}
		}
		if c.good != (err == nil) || err != nil && explain(err).Reason != accel.ArtifactInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// builder pushes an image of two layers, and returns its descriptor.
func (b *workbench) builder(s accel.Source, tag, arch string) v1.Descriptor {
	b.t.Helper()
	var blobs []blob
	for _, l := range []*bytes.Reader{
		layered(b.t, folder("bin"), file("bin/make", "make 1"), file("bin/old", "old")),
		layered(b.t, file("bin/make", "make 2"), file("bin/.wh.old", "")),
	} {
		text, _ := io.ReadAll(l)
		blobs = append(blobs, memoryBlob(types.OCIUncompressedLayer, text))
	}
	config := memoryBlob(types.OCIConfigJSON, fmt.Appendf(nil, `{"architecture":%q,"os":"linux"}`, arch))
	a, err := assemble(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}, config, blobs...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.upload(s, a, tag)
	return v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Digest: a.manifest.digest, Size: int64(len(a.manifest.raw)),
		Platform: &v1.Platform{OS: "linux", Architecture: arch},
	}
}

// TestPullImage: an image is found by tag, by digest and without either, from a mirror too, and its architecture and
// its signature are judged before anything is unpacked.
func TestPullImage(t *testing.T) {
	b := newWorkbench(t)
	registry := serve(t, newRegistry())
	s := accel.Source{Image: registry + "/builder"}
	made := b.builder(s, "gcc12", "amd64")
	b.builder(s, "latest", "amd64")
	b.builder(s, "arm", "arm64")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b.public("/etc/key.pub", key.Public())
	for name, c := range map[string]struct {
		source accel.Source
		want   accel.Reason
	}{
		"a tag":         {accel.Source{Image: s.Image + ":gcc12"}, ""},
		"no tag":        {s, ""},
		"a digest":      {accel.Source{Image: s.Image + ":any@" + made.Digest.String()}, ""},
		"a mirror":      {accel.Source{Image: "localhost:1/builder:gcc12", Mirrors: []string{registry}}, ""},
		"another tag":   {accel.Source{Image: s.Image + ":gcc13"}, accel.ArtifactNotFound},
		"another arch":  {accel.Source{Image: s.Image + ":arm"}, accel.ArtifactNotFound},
		"not signed":    {accel.Source{Image: s.Image + ":gcc12", Keys: []string{"/etc/key.pub"}}, accel.SignatureInvalid},
		"no registry":   {accel.Source{Image: "localhost:1/builder"}, accel.RegistryUnreachable},
		"no such image": {accel.Source{Image: registry + "/nothing"}, accel.ArtifactNotFound},
	} {
		dir := b.empty()
		got, problem := b.c.PullImage(t.Context(), c.source, "x86_64", dir)
		if c.want != "" {
			if problem == nil || problem.Reason != c.want || len(b.tree(dir)) > 0 {
				t.Errorf("%s: %v, want %s; left are %v", name, problem, c.want, b.tree(dir))
			}
			continue
		}
		if problem != nil || got.Digest != made.Digest.String() || !strings.HasSuffix(got.Reference, "/builder@"+got.Digest) {
			t.Errorf("%s: %+v %v", name, got, problem)
			continue
		}
		if diff := cmp.Diff(map[string]string{"root/bin/make": "make 2"}, b.tree(dir)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
