package artifact

import (
	"io"
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
