package artifact

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestLargeIndex: an index above the limit is not read, neither in a file nor in a directory.
func TestLargeIndex(t *testing.T) {
	const limit = 1000
	for size, want := range map[int]accel.Reason{
		100: "", limit: "", limit + 1: accel.ArtifactInvalid,
		100 * limit: accel.ArtifactInvalid,
	} {
		b := newWorkbench(t)
		b.c.o.Limits.Manifest = limit
		index := `{"schemaVersion":2,"manifests":[]}`
		index += strings.Repeat(" ", size-len(index))
		archive, err := io.ReadAll(packed(t, entry{layoutFile, layoutText}, entry{indexFile, index}))
		if err != nil {
			t.Fatal(err)
		}
		b.write("/tmp/edu.tar", string(archive))
		b.write("/tmp/edu/"+indexFile, index)
		for _, name := range []string{"/tmp/edu.tar", "/tmp/edu"} {
			_, problem := b.c.ListBundle(t.Context(), name)
			if want == "" && problem != nil || want != "" && (problem == nil || problem.Reason != want) {
				t.Errorf("%s with an index of %d bytes: %v", name, size, problem)
			}
		}
	}
}

// TestOtherManifest: a bundle in which a digest names another manifest than its own is refused, and nothing of that
// manifest is used.
func TestOtherManifest(t *testing.T) {
	b := newWorkbench(t)
	digest := sum("the manifest that was there")
	b.write("/tmp/edu/"+layoutFile, layoutText)
	b.write("/tmp/edu/"+indexFile, `{"schemaVersion":2,"manifests":[{"digest":"sha256:`+digest+`","size":2}]}`)
	b.write("/tmp/edu/blobs/sha256/"+digest, "{}")
	got, problem := b.c.ListBundle(t.Context(), "/tmp/edu")
	if problem == nil || problem.Reason != accel.DigestMismatch || !strings.Contains(problem.Message, digest) {
		t.Errorf("got %v, %v; want DigestMismatch with %s", got, problem, digest)
	}
}

// TestHalfBundle: an export that fails while it writes the bundle leaves nothing beside it.
func TestHalfBundle(t *testing.T) {
	b := newWorkbench(t)
	b.write("/media/.keep", "")
	b.write("/store/longer.ko", strings.Repeat("another module ", 1000))
	// Both have one configuration, so the layer of the second replaces the packed layer of the first.
	one, other := content(), content()
	other.Paths = maps.Clone(other.Paths)
	other.Paths["edu.ko"] = "/store/longer.ko"
	if _, problem := b.c.Export("/media/b.tar", []Content{one, other}, b.empty(), nil); problem == nil {
		t.Fatal("two artifacts with one configuration were exported")
	}
	left, err := os.ReadDir(filepath.Join(b.root, "media"))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the bundle: %v, %v", left, err)
	}
}
