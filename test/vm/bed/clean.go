package bed

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/progress"
)

// Clean ends what earlier runs left behind and removes everything that the bed keeps, except the Go build cache, which is
// Go's, and the failures of tests. It removes only what the bed makes: the cache folder may hold others' things.
func Clean(ctx context.Context, out io.Writer) error {
	b := &Bed{log: progress.New(out)}
	var err error
	if b.cache, err = cache.Open(b.log.Say); err != nil {
		return err
	}
	if err := b.take(ctx); err != nil {
		return err
	}
	defer b.Close()
	for _, pattern := range []string{
		"accel-*", "debian-*", "guestd-*", "identity-*", "part-*", "programs-*", "snapshot-*", "ports.json",
	} {
		paths, err := filepath.Glob(b.cache.Path(pattern))
		if err != nil {
			return fmt.Errorf("cannot list %q: %w", pattern, err)
		}
		for _, path := range paths {
			b.log.Say("removing %s", filepath.Base(path))
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("cannot remove %q: %w", path, err)
			}
		}
	}
	return nil
}
