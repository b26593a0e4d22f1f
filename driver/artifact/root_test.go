package artifact

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
)

// tarOf makes an uncompressed layer; an entry whose text begins with "-> " is a link.
func tarOf(t *testing.T, files ...entry) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.text)), Mode: 0o755}
		text, link := strings.CutPrefix(f.text, "-> ")
		if link {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, text, 0
		}
		err := w.WriteHeader(h)
		if err == nil && !link {
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

func wantedRoot(alone bool) Wanted {
	return Wanted{KernelRelease: "6.1.0-9-amd64", Root: &Root{
		Modules: []string{"edu_x"}, Firmware: []string{"edu/a.bin"}, Alone: alone,
		File: func(name, text string) bool {
			return strings.Contains(name, "libedu") || strings.Contains(text, "libedu")
		},
	}}
}

// TestRootLayout: of an image that is a whole system only what is wanted is unpacked.
func TestRootLayout(t *testing.T) {
	const modules = "lib/modules/6.1.0-9-amd64/"
	image := []entry{
		{"etc/shadow", "secret"},
		{modules + "kernel/other.ko", "other"},
		{modules + "extra/edu-x.ko", "module"},
		{"usr/lib/modules/6.1.0-8-amd64/extra/edu-x.ko", "older"},
		{"usr/lib/firmware/edu/a.bin", "firmware"},
		{"usr/lib/firmware/edu/b.bin", "more"},
		{"usr/lib/x86_64-linux-gnu/libedu.so.1.0.0", "library"},
		{"usr/lib/x86_64-linux-gnu/libedu.so.1", "-> libedu.so.1.0.0"},
		{"usr/lib/libc.so.6", "libc"},
	}
	for _, alone := range []bool{false, true} {
		b := newWorkbench(t)
		dir := b.empty()
		f := newForeign(newExtraction(t.Context(), b.h, dir, defaultLimits()), wantedRoot(alone))
		if err := f.layer(tarOf(t, image...)); err != nil {
			t.Fatal(err)
		}
		if err := f.finish(); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"root/usr/lib/x86_64-linux-gnu/libedu.so.1.0.0": "library",
			"root/usr/lib/x86_64-linux-gnu/libedu.so.1":     "library",
		}
		if !alone {
			want["edu-x.ko"], want["firmware/edu/a.bin"] = "module", "firmware"
		}
		if diff := cmp.Diff(want, b.tree(dir)); diff != "" {
			t.Errorf("alone %t:\n%s", alone, diff)
		}
	}
}

// TestRootLinks: a link of an image is never written through, and a layer above can take it away.
func TestRootLinks(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]entry
		reason accel.Reason
		want   map[string]string
	}{
		"below a link": {
			layers: [][]entry{{{"libedu", "-> /etc"}, {"libedu/libedu.so", "-> x"}}}, reason: accel.ArtifactInvalid,
		},
		"a file below a link": {
			layers: [][]entry{{{"libedu", "-> /outside"}, {"libedu/libedu.so", "evil"}}}, reason: accel.ArtifactInvalid,
		},
		"taken away": {
			layers: [][]entry{{{"libedu.so", "-> /etc/passwd"}, {"a/libedu.so", "x"}}, {{".wh.libedu.so", ""}}},
			want:   map[string]string{"root/a/libedu.so": "x"},
		},
		"replaced by a file": {
			layers: [][]entry{{{"libedu.so", "-> /etc/passwd"}}, {{"libedu.so", "x"}}},
			want:   map[string]string{"root/libedu.so": "x"},
		},
		"nothing wanted": {layers: [][]entry{{{"etc/passwd", "x"}}}, reason: accel.ArtifactNotFound},
		"too long": {
			layers: [][]entry{{{"libedu.so", "-> " + strings.Repeat("a", unpack.NameLimit+1)}}}, reason: accel.ArtifactInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkbench(t)
			dir := b.empty()
			outside := filepath.Join(b.root, "outside")
			if err := os.MkdirAll(outside, 0o755); err != nil {
				t.Fatal(err)
			}
			f := newForeign(newExtraction(t.Context(), b.h, dir, defaultLimits()), wantedRoot(true))
			var err error
			for _, layer := range c.layers {
				if err == nil {
					err = f.layer(tarOf(t, layer...))
				}
			}
			if err == nil {
				err = f.finish()
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("written outside: %v", left)
			}
			if c.reason != "" {
				if err == nil || explain(err).Reason != c.reason {
					t.Errorf("%v, want %s", err, c.reason)
				}
				return
			}
			if diff := cmp.Diff(c.want, b.tree(dir)); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}
