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

// Clean ends what earlier runs left behind and removes everything that the bed keeps, except the Go build cache, which
// is Go's, and the failures of tests. It removes only what the bed makes: the cache folder may hold others' things.
func Clean(ctx context.Context, out io.Writer) error {
	log := progress.New(out)
	c, err := cache.Open(log.Say)
	if err != nil {
		return err
	}
	var beds []*Bed
	defer func() {
		for _, b := range beds {
			b.Close()
		}
	}()
	for _, seat := range seats() {
		beds = append(beds, &Bed{log: log, cache: c})
		if err := beds[len(beds)-1].take(ctx, seat); err != nil {
			return err
		}
	}
	for _, pattern := range []string{
		"accel-*", "debian-*", "guestd-*", "identity-*", "part-*", "programs-*", "seat-*",
	} {
		paths, err := filepath.Glob(c.Path(pattern))
		if err != nil {
			return fmt.Errorf("cannot list %q: %w", pattern, err)
		}
		for _, path := range paths {
			log.Say("removing %s", filepath.Base(path))
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("cannot remove %q: %w", path, err)
			}
		}
	}
	return nil
}
