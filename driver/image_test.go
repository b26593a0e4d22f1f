package driver

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/test/ko"
)

// builders is a registry with builder images, of this machine's own programs and the libraries that those need.
type builders struct {
	*workshop
	*shop
}

// newBuilders has a makefile that copies the module which the image names, and looks at what the build may do.
func newBuilders(t *testing.T) *builders {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a build in an image needs root")
	}
	b := &builders{newWorkshop(t, "true"), newShop(t)}
	for _, which := range []string{"one", "two"} {
		m := ko.Edu()
		m.BuildID = strings.Repeat(map[string]string{"one": "11", "two": "22"}[which], 20)
		b.write(b.headers, which+".bin", string(m.Bytes()))
	}
	b.makefile(`test -f $(M)/edu.c && test ! -e ` + b.state + `/kmod
test "$$(id -u)" != 0 && ! (echo x > /etc/other) 2>/dev/null && ! (echo x > here) 2>/dev/null
echo x > /tmp/x && echo x > /var/tmp/y && echo x > $$TMPDIR/z && test ! -e /root && test -e /proc/self
cp $$(cat /etc/builder).bin $(M)/edu.ko && echo changed > /etc/builder`)
	return b
}

// makefile replaces that of the headers.
func (b *builders) makefile(text string) {
	b.write(b.headers, "Makefile", "modules:\n\t@"+strings.ReplaceAll(text, "\n", "\n\t@")+"\n")
}

func (b *builders) image() string { return b.host() + "/builder:gcc12" }

func (b *builders) definition(image string) *accel.Definition {
	def := b.workshop.definition()
	def.Driver.Sources[0].Image = image
	return def
}

// push puts an image under the tag that builds a module, without some of the programs.
func (b *builders) push(which string, without ...string) v1.Hash {
	b.t.Helper()
	files := map[string]string{} // in the image: on this machine
	for _, program := range []string{"sh", "make", "gcc", "ld", "strip", "cp", "cat", "id"} {
		file, err := exec.LookPath(program)
		if err != nil {
			b.t.Skipf("program %q is not installed", program)
		}
		if slices.Contains(without, program) {
			continue
		}
		files["usr/bin/"+program] = file
		out, err := exec.Command("ldd", file).Output() // fails for a static program, which needs nothing
		if err != nil {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			files[strings.TrimPrefix(m[1], "/")] = m[1]
		}
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	add := func(h tar.Header, text []byte) {
		h.Size = int64(len(text))
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin", Mode: 0o777}, nil)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(files[file])
		if err != nil {
			b.t.Fatal(err)
		}
		add(tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o755}, text)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/builder", Mode: 0o666}, []byte(which))
	if err := w.Close(); err != nil {
		b.t.Fatal(err)
	}
	return b.pushLayer(content.Bytes())
}

func (b *builders) pushLayer(content []byte) v1.Hash {
	b.t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	var img v1.Image
	if err == nil {
		img, err = mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux"})
	}
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	var ref name.Reference
	if err == nil {
		ref, err = name.ParseReference(b.image(), name.Insecure)
	}
	var digest v1.Hash
	if err == nil {
		digest, err = img.Digest()
	}
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return digest
}

// unpacked describes all images on the host.
func (b *builders) unpacked() string {
	out, err := exec.Command("find", b.state+"/builders", "-mindepth", "1", "-not", "-name", "uses.json", "-not", "-name", "lock",
		"-printf", "%p %M %s %T@ %l\n").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	return string(out)
}

// built is the entry of a build that succeeds.
func (b *builders) built(d *Driver, def *accel.Definition) store.Entry {
	b.t.Helper()
	e, problem := d.sources.Build(b.t.Context(), def, b.facts())
	if problem != nil {
		logs, _ := filepath.Glob(b.state + "/kmod/failed/*.log")
		for _, l := range logs {
			text, _ := os.ReadFile(l)
			b.t.Logf("%s:\n%s", l, text)
		}
		b.t.Fatal(problem, problem.Tried)
	}
	return e
}

// TestBuilderImage builds in an image: with its programs, as a user without rights, and with nothing of the host but
// what a build needs. The image stays as it is.
func TestBuilderImage(t *testing.T) {
	b := newBuilders(t)
	digest := b.push("one")
	var mu sync.Mutex
	stages := map[accel.Stage]accel.Progress{}
	d := New(b.h, Options{StateDir: b.state, Artifact: patient(), Progress: func(p accel.Progress) {
		mu.Lock()
		defer mu.Unlock()
		stages[p.Stage] = p
	}})
	e := b.built(d, b.definition(b.image()))
	if e.Builder != digest.String() || !strings.HasPrefix(e.Modules[0].BuildID, "11") {
		t.Errorf("built in %q: %+v", e.Builder, e.Modules)
	}
	if p := stages[accel.StagePull]; p.Kind != "qemu-edu" || !p.Ended || p.Done == 0 || p.Done != p.Total {
		t.Errorf("progress of the pull: %+v", p)
	}
	b.isClean(1)
	before, asked := b.unpacked(), b.asked()
	again := b.built(d, b.definition(b.image()))
	if again.Key != e.Key || b.asked() == asked {
		t.Errorf("key %q, then %q; the registry was asked %d times more", e.Key, again.Key, b.asked()-asked)
	}
	b.write(b.source, "edu.c", "int y;\n")
	if other := b.built(d, b.definition(b.image())); other.Key == e.Key {
		t.Error("another source has the same key")
	}
	b.isClean(2)
	if after := b.unpacked(); after != before {
		t.Errorf("the image was\n%s\nand is\n%s", before, after)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), b.state) {
		t.Errorf("mounts are left (%v):\n%s", err, mounts)
	}
	def := b.workshop.definition()
	def.Driver.Sources[0].AnyCompiler = true
	b.makefile("cp one.bin $(M)/edu.ko")
	if host := b.built(d, def); host.Key == e.Key || host.Builder != "" {
		t.Errorf("the host's compiler has key %q and builder %q", host.Key, host.Builder)
	}
}

// TestBuilderImageReplaced: a tag that moves makes another driver, and without a registry it is what it was last, which
// is said.
func TestBuilderImageReplaced(t *testing.T) {
	b := newBuilders(t)
	b.push("one")
	d := New(b.h, Options{StateDir: b.state, Artifact: patient(), StoreEntries: -1})
	first := b.built(d, b.definition(b.image()))
	moved := b.push("two")
	second := b.built(d, b.definition(b.image()))
	if second.Key == first.Key || second.Builder != moved.String() || !strings.HasPrefix(second.Modules[0].BuildID, "22") {
		t.Errorf("%q, then %q in %q: %+v", first.Key, second.Key, second.Builder, second.Modules)
	}
	if images, _ := filepath.Glob(b.state + "/builders/*/etc"); len(images) != 1 {
		t.Errorf("images are %v, want that of the tag alone", images)
	}
	b.Close()
	if same := b.built(d, b.definition(b.image())); same.Key != second.Key {
		t.Errorf("without a registry the key is %q, was %q", same.Key, second.Key)
	}
	b.write(b.source, "edu.c", "int z;\n")
	plan, tried, problem := d.sources.Acquire(t.Context(), b.definition(b.image()), b.facts(),
		source.Options{Fresh: true})
	if problem != nil {
		tried = problem.Tried
	} else {
		plan.Close()
	}
	want := "build from " + b.source + " in " + b.image() + ": the builder image"
	if !slices.ContainsFunc(tried, func(s string) bool {
		return strings.HasPrefix(s, want) && strings.Contains(s, moved.String())
	}) {
		t.Errorf("tried %q, want %q (%v)", tried, want, problem)
	}
	b.isClean(3)
}

// TestBuilderImageLacks: what an image does not have is said of the image.
func TestBuilderImageLacks(t *testing.T) {
	b := newBuilders(t)
	for _, c := range []struct {
		name   string
		push   func()
		config string
		want   accel.Reason
		says   string
	}{
		{"no compiler", func() { b.push("one", "gcc") }, "", accel.CompilerMissing, `/builder:gcc12" has no program "gcc"`},
		{"no shell", func() { b.push("one", "sh") }, "", accel.CompilerMissing, `has no program "sh"`},
		{"nothing", func() { b.pushLayer(make([]byte, 1024)) }, "", accel.CompilerMissing, `has no program "sh"`},
		{
			"another compiler", func() { b.push("one") }, "CONFIG_CC_VERSION_TEXT=\"gcc (GCC) 7.5.0\"\n",
			accel.CompilerMismatch, `gcc in the builder image "` + b.image(),
		},
		{"no module", func() { b.push("three") }, "", accel.BuildFailed, "Makefile:"},
	} {
		c.push()
		b.write(b.headers, ".config", c.config)
		d := New(b.h, Options{StateDir: b.state, Artifact: patient()})
		_, problem := d.sources.Build(t.Context(), b.definition(b.image()), b.facts())
		if problem == nil || problem.Reason != c.want || !strings.Contains(problem.Message, c.says) {
			t.Errorf("%s: %v, want %s with %q", c.name, problem, c.want, c.says)
		}
		b.isClean(0)
	}
	if _, problem := New(b.h, Options{StateDir: b.state, Artifact: patient()}).sources.Build(t.Context(),
		b.definition(b.host()+"/nothing:1"), b.facts()); problem == nil || problem.Reason != accel.ArtifactNotFound {
		t.Error(problem)
	}
}

// TestBuilderImagePurged: a purge leaves neither images nor anything else of them.
func TestBuilderImagePurged(t *testing.T) {
	b := newBuilders(t)
	b.push("one")
	d := New(b.h, Options{StateDir: b.state, Artifact: patient()})
	b.built(d, b.definition(b.image()))
	if _, err := d.ledger.Discard(false); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(b.state); err == nil {
		t.Errorf("left are %v", left)
	}
}

// patient gives a busy machine time for a whole compiler.
func patient() artifact.Options {
	return artifact.Options{Backoff: time.Millisecond, Stall: 30 * time.Second, Timeout: 5 * time.Minute}
}
