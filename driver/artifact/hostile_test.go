package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/host"
)

// block is a tar header, which the writer of the standard library would not write in every form.
func block(name string, flag byte, size int64, link string, more func(b []byte)) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x00")
	copy(b[124:], fmt.Sprintf("%011o\x00", size))
	b[156] = flag
	copy(b[157:], link)
	copy(b[257:], "ustar\x0000")
	if more != nil {
		more(b)
	}
	copy(b[148:], "        ")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// padded fills the last block.
func padded(text string) []byte { return append([]byte(text), make([]byte, -len(text)&511)...) }

// records are PAX records in front of a header.
func records(all ...string) []byte {
	text := ""
	for _, r := range all {
		n := len(r) + 3
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n++
		}
		text += fmt.Sprintf("%d %s\n", n, r)
	}
	return append(block("pax", tar.TypeXHeader, int64(len(text)), "", nil), padded(text)...)
}

// sparse are layers with one file that claims to be a hole of size bytes, in each form that tar has for that.
func sparse(name string, size int64) map[string][]byte {
	end := make([]byte, 1024)
	claim := fmt.Sprint("GNU.sparse.size=", size)
	file := block(name, tar.TypeReg, 0, "", nil)
	return map[string][]byte{
		"GNU": slices.Concat(block(name, tar.TypeGNUSparse, 0, "", func(b []byte) {
			copy(b[257:], "ustar  \x00")
			copy(b[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
			copy(b[483:], fmt.Sprintf("%011o\x00", size))
		}), end),
		"PAX 0.0": slices.Concat(records(claim, "GNU.sparse.numblocks=1", fmt.Sprint("GNU.sparse.offset=", size),
			"GNU.sparse.numbytes=0"), file, end),
		"PAX 0.1": slices.Concat(records(claim, "GNU.sparse.numblocks=1", fmt.Sprintf("GNU.sparse.map=%d,0", size),
			"GNU.sparse.name="+name), file, end),
		"PAX 1.0": slices.Concat(records("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name="+name,
			fmt.Sprint("GNU.sparse.realsize=", size)), block("GNUSparseFile.0/x", tar.TypeReg, 512, "", nil),
			padded("0\n"), end),
		"PAX of another version": slices.Concat(records("GNU.sparse.major=2", "GNU.sparse.minor=0", claim), file, end),
	}
}

// modulesDir is where an image in a foreign layout has the modules of this kernel.
const modulesDir = "opt/lib/modules/6.1.0-9-amd64/"

// unpacks are the ways to unpack a layer, by the name that a module has there.
func unpacks() map[string]func(*extraction, io.Reader) error {
	return map[string]func(*extraction, io.Reader) error{
		"edu.ko": func(x *extraction, r io.Reader) error { return x.native(r, content().Config) },
		modulesDir + "edu.ko": func(x *extraction, r io.Reader) error {
			f := &foreign{x: x, modules: modulesDir, files: map[string]string{}}
			if err := f.layer(r); err != nil {
				return err
			}
			return f.finish()
		},
	}
}

// written counts the files below a directory and their bytes.
func written(t testing.TB, dir string) (files int, size int64) {
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := e.Info()
		if err == nil {
			files, size = files+1, size+st.Size()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return files, size
}

// TestSparse: a sparse file is refused by name in every form of tar. Some hundred bytes would write any number.
func TestSparse(t *testing.T) {
	limits := Limits{Unpacked: 1 << 20, Files: 16}
	for name, unpack := range unpacks() {
		for form, layer := range sparse(name, 64<<20) {
			b := newWorkbench(t)
			dir := b.empty()
			err := unpack(newExtraction(t.Context(), b.h, dir, limits), bytes.NewReader(layer))
			if err == nil || explain(err).Reason != accel.ArtifactInvalid ||
				!strings.Contains(err.Error(), fmt.Sprintf("%q, which is a sparse file", name)) {
				t.Errorf("%s, %s: %v", form, name, err)
			}
			if files, size := written(t, filepath.Join(b.root, dir)); files > 0 {
				t.Errorf("%s, %s: %d files with %d bytes were written", form, name, files, size)
			}
		}
	}
}

// TestOddEntries: whatever is neither a plain file nor a directory is refused by name and for what it is.
func TestOddEntries(t *testing.T) {
	for flag, want := range map[byte]string{
		tar.TypeSymlink: "a symbolic link", tar.TypeLink: "a hard link", tar.TypeChar: "a device node",
		tar.TypeBlock: "a device node", tar.TypeFifo: "a named pipe", 'Z': `an entry of type 'Z'`,
	} {
		for name, unpack := range unpacks() {
			b := newWorkbench(t)
			dir := b.empty()
			layer := append(block(name, flag, 0, "/etc/shadow", nil), make([]byte, 1024)...)
			err := unpack(newExtraction(t.Context(), b.h, dir, defaultLimits()), bytes.NewReader(layer))
			if err == nil || explain(err).Reason != accel.ArtifactInvalid ||
				!strings.Contains(err.Error(), fmt.Sprintf("%q, which is %s", name, want)) {
				t.Errorf("%s of type %q: %v", name, flag, err)
			}
			if left, err := os.ReadDir(filepath.Join(b.root, dir)); err != nil || len(left) > 0 {
				t.Errorf("%s of type %q: left are %v (%v)", name, flag, left, err)
			}
		}
	}
}

// TestLongName: a name longer than a path can be is refused, and not repeated in full.
func TestLongName(t *testing.T) {
	for n, good := range map[int]bool{unpack.NameLimit: true, unpack.NameLimit + 1: false, 500_000: false} {
		b := newWorkbench(t)
		x := newExtraction(t.Context(), b.h, b.empty(), defaultLimits())
		f := &foreign{x: x, modules: modulesDir, files: map[string]string{}}
		err := f.layer(packed(t, entry{name: firmwareDir + strings.Repeat("x", n-len(firmwareDir))}))
		refused := err != nil && explain(err).Reason == accel.ArtifactInvalid && len(err.Error()) < 1000
		if good && err != nil || !good && !refused {
			t.Errorf("a name of %d characters: %.300v", n, err)
		}
	}
}

// asking is a context that ends when it was asked often enough.
type asking struct {
	context.Context
	asked *int
}

func (a asking) Err() error {
	if *a.asked++; *a.asked > 20 {
		return context.Canceled
	}
	return nil
}

// TestCalledOffMidway: unpacking and copying end soon after they were called off, and the error says so.
func TestCalledOffMidway(t *testing.T) {
	large := strings.Repeat("x", 8<<20)
	for name, unpack := range unpacks() {
		b := newWorkbench(t)
		dir := b.empty()
		asked := 0
		x := newExtraction(asking{t.Context(), &asked}, b.h, dir, defaultLimits())
		err := unpack(x, packed(t, entry{name, large}))
		if err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		if _, size := written(t, filepath.Join(b.root, dir)); size > 1<<20 {
			t.Errorf("%s: %d bytes were written", name, size)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &shelf{content: func(v1.Descriptor) (io.Reader, error) { return strings.NewReader(large), nil }}
	r, err := open(ctx, s, memoryBlob(types.OCILayer, []byte(large)).Descriptor, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if n, err := io.Copy(io.Discard, r); err == nil || n > 0 {
		t.Errorf("%d more bytes were read (%v)", n, err)
	}
}

// substitute answers with another body for every blob whose digest is wanted.
type substitute struct {
	http.ResponseWriter
	body []byte
	sent bool
}

func (l *substitute) WriteHeader(code int) {
	l.Header().Del("Content-Length")
	l.ResponseWriter.WriteHeader(code)
}

func (l *substitute) Write(b []byte) (int, error) {
	if !l.sent {
		l.sent = true
		if _, err := l.ResponseWriter.Write(l.body); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// TestLyingMirror: a mirror that lies after the manifest gets nothing unpacked, whatever it sends: the digest is
// verified first. The registry behind it serves.
func TestLyingMirror(t *testing.T) {
	b := newWorkbench(t)
	inner := newRegistry()
	mirror := &meddling{Handler: inner}
	s := accel.Source{Image: serve(t, inner) + "/edu", Mirrors: []string{serve(t, mirror)}}
	pushed := b.push(s, PushOptions{})
	m, err := func() (v1.Manifest, error) {
		from, err := dial(t.Context(), b.h, s, s.Image, time.Minute, defaultLimits())
		if err != nil {
			return v1.Manifest{}, err
		}
		defer from.close()
		raw, err := from.manifest(t.Context(), pushed.Digest)
		if err != nil {
			return v1.Manifest{}, err
		}
		return decode[v1.Manifest](raw)
	}()
	if err != nil {
		t.Fatal(err)
	}
	bomb, err := io.ReadAll(packed(t, entry{"edu.ko", strings.Repeat("\x00", 2<<20)}))
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"another driver": bomb[:1024], "a large file": bomb, "no tar": []byte("x"), "nothing": nil,
		"a sparse file": sparse("edu.ko", 64<<20)["PAX 1.0"],
	} {
		lie := func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
			if strings.HasSuffix(r.URL.Path, m.Layers[0].Digest.String()) {
				return &substitute{ResponseWriter: w, body: body}
			}
			return w
		}
		mirror.with.Store(&lie)
		dir := b.empty()
		alone := accel.Source{Image: s.Mirrors[0] + "/edu"}
		_, problem := b.c.Pull(t.Context(), alone, this(), dir)
		if problem == nil || problem.Reason != accel.DigestMismatch {
			t.Errorf("%s: %v, want DigestMismatch", name, problem)
		}
		if left := slices.Collect(maps.Keys(b.tree(dir))); len(left) > 0 {
			t.Errorf("%s: left are %q", name, left)
		}
		pulled, problem := b.c.Pull(t.Context(), s, this(), b.empty())
		if problem != nil || !strings.HasPrefix(pulled.Reference, s.Image) {
			t.Errorf("%s: %+v %v", name, pulled, problem)
		}
	}
}

// TestNothingStays: a layer that has the right digest and is refused while it is unpacked leaves nothing behind.
func TestNothingStays(t *testing.T) {
	b := newWorkbench(t)
	s := accel.Source{Image: serve(t, newRegistry()) + "/edu:evil"}
	b.image(accel.Source{Image: strings.TrimSuffix(s.Image, ":evil")}, "evil", map[string]string{
		modulesDir + "edu.ko": "the module", "firmware/a/edu.bin": "the firmware", "zzz/../../x": "of a stranger",
	})
	dir := b.empty()
	_, problem := b.c.Pull(t.Context(), s, this(), dir)
	if problem == nil || problem.Reason != accel.ArtifactInvalid || !strings.Contains(problem.Message, "zzz/../../x") {
		t.Error(problem)
	}
	if left := slices.Collect(maps.Keys(b.tree(dir))); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// TestDrip: an answer of which a few bytes come all the time ends with the time for which a transfer may stall, whether
// it is a manifest or a layer. Nothing ever comes to a standstill.
func TestDrip(t *testing.T) {
	for _, part := range []string{"/manifests/", "/blobs/"} {
		b := newWorkbench(t)
		b.c.o.Stall, b.c.o.Timeout = 100*time.Millisecond, 20*time.Second
		inner := newRegistry()
		var drips atomic.Bool
		s := accel.Source{Image: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !drips.Load() || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, part) {
				inner.ServeHTTP(w, r)
				return
			}
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		})) + "/edu"}
		b.push(s, PushOptions{})
		drips.Store(true)
		began := time.Now()
		_, problem := b.c.Pull(t.Context(), s, this(), b.empty())
		if problem == nil || !strings.Contains(problem.Message, "bytes came in 100ms") || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %v after %v", part, problem, time.Since(began))
		}
	}
}

// TestSlowMirror: a mirror that sends just enough does not use up the time of the registry behind it.
func TestSlowMirror(t *testing.T) {
	b := newWorkbench(t)
	c, _ := b.large()
	inner := newRegistry()
	mirror := &meddling{Handler: inner}
	s := accel.Source{Image: serve(t, inner) + "/edu", Mirrors: []string{serve(t, mirror)}}
	if _, problem := b.c.Push(t.Context(), s, this(), c, b.empty(), PushOptions{}); problem != nil {
		t.Fatal(problem)
	}
	b.c.o.Timeout = 4 * time.Second
	slow := func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
		return &piecemeal{ResponseWriter: w, pause: 500 * time.Millisecond}
	}
	mirror.with.Store(&slow)
	pulled, problem := b.c.Pull(t.Context(), s, this(), b.empty())
	if problem != nil || !strings.HasPrefix(pulled.Reference, s.Image) {
		t.Errorf("%+v %v", pulled, problem)
	}
}

// TestLongTexts: a configuration with texts or lists longer than any real one is refused.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("x", textLimit+1)
	for name, change := range map[string]func(*Config){
		"nothing":  func(*Config) {},
		"version":  func(c *Config) { c.DriverVersion = long },
		"kernel":   func(c *Config) { c.KernelVersion = long },
		"module":   func(c *Config) { c.Modules[0].Vermagic = long },
		"depends":  func(c *Config) { c.Modules[0].Depends = []string{long} },
		"firmware": func(c *Config) { c.Firmware[0].Path = strings.Repeat("x", pathLimit+1) },
		"identity": func(c *Config) { c.Identity = []byte(`"` + strings.Repeat("x", identityLimit) + `"`) },
	} {
		c := content().Config
		change(&c)
		if err := c.bounded(); (err == nil) != (name == "nothing") || err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fuzzed unpacks a layer in every way, and counts what was written.
func fuzzed(t *testing.T, h *host.Host, root string, layer []byte) {
	limits := Limits{Unpacked: 1 << 20, Files: 16}
	ways := unpacks()
	ways["an image"] = func(x *extraction, r io.Reader) error {
		f, err := newRootfs(x)
		if err != nil {
			return err
		}
		return f.layer(r.(io.ReadSeeker))
	}
	for name, unpack := range ways {
		dir, err := h.MakeTemp("/", "x")
		if err != nil {
			t.Fatal(err)
		}
		_ = unpack(newExtraction(t.Context(), h, dir, limits), bytes.NewReader(layer))
		if files, size := written(t, filepath.Join(root, dir)); files > limits.Files || size > limits.Unpacked {
			t.Errorf("%s: %d files with %d bytes were written", name, files, size)
		}
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
			t.Errorf("%s: the root has %v (%v)", name, entries, err)
		}
		if err := h.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// fuzzHost is a host for a fuzz target, with the directory of its root.
func fuzzHost(f *testing.F) (*host.Host, string) {
	root := f.TempDir()
	h, err := host.New(root)
	if err != nil {
		f.Fatal(err)
	}
	return h, root
}

// FuzzUnpack: whatever a layer of an artifact or of an image contains, no more is written than allowed, nothing
// outside its directory, and nothing panics.
func FuzzUnpack(f *testing.F) {
	h, root := fuzzHost(f)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range []string{"edu.ko", modulesDir + "edu.ko", "firmware/a/edu.bin", "firmware/a/.wh.edu.bin"} {
		if err := addFile(w, name, 0o600, 10, strings.NewReader("the module")); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add(out.Bytes()[:out.Len()/2])
	for name := range unpacks() {
		for _, layer := range sparse(name, 4<<20) {
			f.Add(layer)
		}
	}
	f.Fuzz(func(t *testing.T, layer []byte) { fuzzed(t, h, root, layer) })
}

// FuzzHeader is [FuzzUnpack] for one header with a good checksum and any type, with PAX records before it, which bytes
// without a plan never have.
func FuzzHeader(f *testing.F) {
	h, root := fuzzHost(f)
	f.Add("edu.ko", byte(tar.TypeReg), int64(5), "GNU.sparse.major=1\nGNU.sparse.minor=0\nGNU.sparse.realsize=9999999", "0\n")
	f.Add("edu.ko", byte(tar.TypeGNUSparse), int64(0), "size=99999999", "")
	f.Add(modulesDir+"edu.ko", byte(tar.TypeReg), int64(0), "GNU.sparse.map=0,1,9999998,1\nGNU.sparse.size=9999999", "xx")
	f.Add(modulesDir+"edu.ko", byte(tar.TypeSymlink), int64(0), "linkpath=/etc/shadow\npath=firmware/../x", "")
	f.Add("firmware/a", byte(tar.TypeXGlobalHeader), int64(3), "path=firmware/a/b\npath=edu.ko", "abc")
	f.Fuzz(func(t *testing.T, name string, flag byte, size int64, pax, body string) {
		if len(body) > 1<<16 || size < 0 || size > 8<<30 {
			t.Skip("no header holds that size")
		}
		layer := slices.Concat(records(strings.Split(pax, "\n")...), block(name[:min(100, len(name))], flag, size,
			"/etc/shadow", nil), padded(body), make([]byte, 1024))
		fuzzed(t, h, root, layer)
	})
}

// FuzzEnvelope: a bundle that holds no good signature has no signer, whatever else it is.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"verificationMaterial":{"certificate":{"rawBytes":"MIIB"}},"dsseEnvelope":{"payload":"e30=",` +
		`"payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"AAAA"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e := envelope(text)
		if statementNames(e.payload, newManifest([]byte("an artifact"), "").digest) && len(e.message) == 0 {
			t.Errorf("%q speaks of the artifact and signs nothing", text)
		}
	})
}
