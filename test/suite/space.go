package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// space is how many bytes must be free before a part starts: a scenario that fills the disk fails late and blames
// something else.
const space = 10 << 30

// roomy returns an error that names the first folder whose disk has fewer than want bytes free.
func roomy(want uint64, folders ...string) error {
	for _, folder := range folders {
		var disk unix.Statfs_t
		if err := unix.Statfs(folder, &disk); err != nil {
			return fmt.Errorf("cannot read how much space is free in %s: %w", folder, err)
		}
		if free := disk.Bavail * uint64(disk.Bsize); free < want {
			return fmt.Errorf("%s has %.1f GB free, and the tests need %.1f GB: make room (go clean -cache, "+
				"the test bed's cache ~/.cache/acceld)", folder, float64(free)/1e9, float64(want)/1e9)
		}
	}
	return nil
}

// folders are where the tests write.
func folders(root string) []string {
	all := []string{root, os.TempDir()}
	if cache, err := os.UserCacheDir(); err == nil && os.MkdirAll(cache, 0o755) == nil {
		all = append(all, cache)
	}
	return all
}
