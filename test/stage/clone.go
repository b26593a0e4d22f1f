package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Clone makes a repository of its own in dir, which it makes: one commit with the files of this tree as they are now,
// without what git ignores, and with a tag. The same files give the same commit.
func (s *Stage) Clone(ctx context.Context, dir, tag string) error {
	const script = `mkdir -p "$2"
git -C "$1" ls-files -z --cached --others --exclude-standard | (cd "$1" && while IFS= read -r -d '' f; do [ -e "$f" ] && printf '%s\0' "$f"; done) |
	tar -C "$1" --null --no-recursion -T - -cf - | tar -C "$2" -xf - --no-same-owner
cd "$2"
git init -q
git add -A
git -c user.name=newcomer -c user.email=newcomer@example.com -c commit.gpgsign=false commit -q -m "$3"
git tag "$3"`
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script, "bash", s.root, dir, tag)
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot clone the tree: %w\n%s", err, out)
	}
	return nil
}
