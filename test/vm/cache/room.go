package cache

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Room returns an error that names the first folder whose disk has fewer than want bytes free.
func Room(want uint64, folders ...string) error {
	for _, folder := range folders {
		var disk unix.Statfs_t
		if err := unix.Statfs(folder, &disk); err != nil {
			return fmt.Errorf("cannot read how much space is free in %s: %w", folder, err)
		}
		if free := disk.Bavail * uint64(disk.Bsize); free < want {
			return fmt.Errorf("%s has %.1f GB free, and %.1f GB are needed: make room (go clean -cache, "+
				"the test bed's cache ~/.cache/acceld)", folder, float64(free)/1e9, float64(want)/1e9)
		}
	}
	return nil
}

// spare is how many bytes must still be free after an entry was built. On a full disk, programs that make images have
// exited without an error and left files with holes.
const spare = 1 << 30

// whole runs build and returns an error unless all that it wrote below tmp has reached the disk.
func whole(tmp string, build func(tmp string) error) error {
	dir, err := os.Open(tmp) // before build: syncfs(2) reports the errors since then
	if err != nil {
		return fmt.Errorf("cannot open %q: %w", tmp, err)
	}
	defer dir.Close()
	if err := build(tmp); err != nil {
		return err
	}
	if err := Room(spare, tmp); err != nil {
		return err
	}
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("cannot write %q to the disk: %w", tmp, err)
	}
	return nil
}
