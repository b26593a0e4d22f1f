package artifact

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestForeignLayers: a layer hides files of the layers below it, as in a container, and two modules cannot share a
// name.
func TestForeignLayers(t *testing.T) {
	const modules = "opt/lib/modules/6.1.0-9-amd64/"
	below := []entry{
		{modules + "extra/edu.ko", "old"},
		{modules + "other.ko", "other"},
		{"firmware/a/edu.bin", "firmware"},
	}
	for name, c := range map[string]struct {
		above  []entry
		want   map[string]string
		reason accel.Reason
	}{
		"nothing above": {want: map[string]string{
			"edu.ko": "old", "other.ko": "other",
			"firmware/a/edu.bin": "firmware",
		}},
		"another text": {
			above: []entry{{modules + "extra/edu.ko", "new"}},
			want:  map[string]string{"edu.ko": "new", "other.ko": "other", "firmware/a/edu.bin": "firmware"},
		},
		"a file is removed": {
			above: []entry{{modules + "extra/.wh.edu.ko", ""}},
			want:  map[string]string{"other.ko": "other", "firmware/a/edu.bin": "firmware"},
		},
		"a directory is removed": {
			above: []entry{{modules + ".wh.extra", ""}, {"firmware/.wh.a", ""}},
			want:  map[string]string{"other.ko": "other"},
		},
		"a directory is removed whose name begins like others": {
			above: []entry{{modules + ".wh.ex", ""}, {modules + ".wh.other", ""}},
			want:  map[string]string{"edu.ko": "old", "other.ko": "other", "firmware/a/edu.bin": "firmware"},
		},
		"a directory is replaced": {
			above: []entry{{modules + ".wh..wh..opq", ""}, {modules + "third.ko", "third"}},
			want:  map[string]string{"third.ko": "third", "firmware/a/edu.bin": "firmware"},
		},
		"all modules are removed": {above: []entry{{"opt/lib/.wh.modules", ""}}, reason: accel.ArtifactNotFound},
		"two of one name":         {above: []entry{{modules + "updates/edu.ko", "new"}}, reason: accel.ArtifactInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkbench(t)
			dir := b.empty()
			x := newExtraction(t.Context(), b.h, dir, defaultLimits())
			f := &foreign{x: x, modules: modules, files: map[string]string{}}
			for _, layer := range [][]entry{below, c.above} {
				if err := f.layer(packed(t, layer...)); err != nil {
					t.Fatal(err)
				}
			}
			err := f.finish()
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
