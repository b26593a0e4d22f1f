package artifact

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// entry is one file of a layer.
type entry struct{ name, text string }

// packed makes an uncompressed layer of files, in the given order.
func packed(t *testing.T, files ...entry) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.text)), Mode: 0o644})
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// tree returns the text of every file below a directory of the workbench.
func (b *workbench) tree(dir string) map[string]string {
	b.t.Helper()
	out, top := map[string]string{}, filepath.Join(b.root, dir)
	err := filepath.WalkDir(top, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(file, top), "/")
		if !e.IsDir() {
			out[name] = b.read(filepath.Join(dir, name))
		} else if empty, err := os.ReadDir(file); err == nil && len(empty) == 0 && name != "" {
			out[name+"/"] = ""
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestLayer: a layer must have exactly the files that the configuration names, each once and with its digest.
func TestLayer(t *testing.T) {
	module, firmware := entry{"edu.ko", "the module"}, entry{"firmware/a/edu.bin", "the firmware"}
	for name, c := range map[string]struct {
		files []entry
		want  accel.Reason
	}{
		"all":                  {[]entry{module, firmware}, ""},
		"another order":        {[]entry{firmware, module}, ""},
		"no firmware":          {[]entry{module}, accel.ArtifactInvalid},
		"no module":            {[]entry{firmware}, accel.ArtifactInvalid},
		"nothing":              {nil, accel.ArtifactInvalid},
		"one more":             {[]entry{module, firmware, {"firmware/b.bin", "of a stranger"}}, accel.ArtifactInvalid},
		"one twice":            {[]entry{module, firmware, module}, accel.ArtifactInvalid},
		"one twice, otherwise": {[]entry{module, firmware, {"edu.ko", "of a stranger"}}, accel.ArtifactInvalid},
		"another module":       {[]entry{{"edu.ko", "of a stranger"}, firmware}, accel.DigestMismatch},
	} {
		b := newWorkbench(t)
		dir := b.empty()
		err := newExtraction(t.Context(), b.h, dir, defaultLimits()).native(packed(t, c.files...), content().Config)
		if c.want != "" {
			if err == nil || explain(err).Reason != c.want {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			continue
		}
		want := map[string]string{"edu.ko": "the module", "firmware/a/edu.bin": "the firmware"}
		if diff := cmp.Diff(want, b.tree(dir)); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// TestManyFiles: the limit on files applies to all layers of an image together.
func TestManyFiles(t *testing.T) {
	const limit = 4
	for name, layers := range map[string][]int{
		"as many as allowed": {4}, "in two layers": {2, 2}, "one more": {5},
		"one more in two layers": {3, 2}, "a flood": {1000},
	} {
		b := newWorkbench(t)
		dir := b.empty()
		x := newExtraction(t.Context(), b.h, dir, Limits{Unpacked: 1 << 20, Files: limit})
		f := &foreign{x: x, modules: "opt/lib/modules/6.1.0-9-amd64/", files: map[string]string{}}
		var err error
		all := 0
		for _, n := range layers {
			var files []entry
			for range n {
				files = append(files, entry{name: fmt.Sprintf("firmware/%d.bin", all)})
				all++
			}
			if err == nil {
				err = f.layer(packed(t, files...))
			}
		}
		if written := len(b.tree(dir)); written > limit || all <= limit && (err != nil || written != all) {
			t.Errorf("%s: %d files were written (%v)", name, written, err)
		}
		if all > limit && (err == nil || explain(err).Reason != accel.ArtifactInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPowerCut: an unsynced file may be empty after a power cut; every file of an unpacked layer is synced.
func TestPowerCut(t *testing.T) {
	b := newWorkbench(t)
	dir := b.empty()
	disk := map[string]string{}
	x := newExtraction(t.Context(), b.h, dir, defaultLimits())
	x.Sync = func(f *os.File) error {
		name, err := filepath.Rel(filepath.Join(b.root, dir), f.Name())
		if err == nil {
			disk[name] = b.read(filepath.Join(dir, name))
		}
		return err
	}
	files := []entry{{"edu.ko", "the module"}, {"firmware/a/edu.bin", "the firmware"}}
	if err := x.native(packed(t, files...), content().Config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.tree(dir), disk); diff != "" {
		t.Errorf("what the disk has (-written +synced):\n%s", diff)
	}
	// If the disk fails, the problem blames the disk, not the artifact.
	x = newExtraction(t.Context(), b.h, b.empty(), defaultLimits())
	x.Sync = func(*os.File) error { return fs.ErrInvalid }
	if err := x.native(packed(t, files...), content().Config); err == nil ||
		explain(err).Reason != accel.InternalError {
		t.Error(err)
	}
}
