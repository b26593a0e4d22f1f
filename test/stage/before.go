package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/acceld/acceld/test/stage/programs"
)

// release is the commit that counts as the release before this tree, until there are releases.
const release = "c4ef5c343e57f926a4ca86dbff998e20699a020f"

// NewBefore is [New] for the release before this tree: its programs, images and manifests, without the test
// programs. The clone must have that commit.
func NewBefore(ctx context.Context, dir string) (*Stage, error) {
	here, err := programs.Root(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stage{root: filepath.Join(dir, "before"), bin: filepath.Join(dir, "before-bin"), tag: "before"}
	for _, d := range []string{s.root, s.bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	archive := s.root + ".tar"
	for _, args := range [][]string{
		{"git", "-C", here, "archive", "-o", archive, release},
		{"tar", "-xf", archive, "-C", s.root},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot get the release before, commit %s: %w\n%s", release, err, out)
		}
	}
	return s, programs.BuildProduct(ctx, s.root, s.bin)
}
