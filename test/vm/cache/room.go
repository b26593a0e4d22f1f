package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Room returns an error that names the first folder whose disk has fewer than want bytes free.
func Room(want uint64, folders ...string) error {
	for _, folder := range folders {
		free, err := free(folder)
		if err != nil {
			return err
		}
		if free < want {
			return fmt.Errorf("%s has %.1f GB free, and %.1f GB are needed: make room (go clean -cache, "+
				"the test bed's cache ~/.cache/acceld)", folder, float64(free)/1e9, float64(want)/1e9)
		}
	}
	return nil
}

// free is how many bytes a disk has free.
func free(folder string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return 0, fmt.Errorf("cannot read how much space is free in %s: %w", folder, err)
	}
	return disk.Bavail * uint64(disk.Bsize), nil
}

// MakeRoom removes entries that were not used last of their kind, the longest unused first, until the folder's disk has
// want bytes free. It returns no error if that is not enough, so that [Room] says it.
func (d Dir) MakeRoom(want uint64) error {
	old, err := d.old()
	if err != nil {
		return err
	}
	for _, entry := range old {
		have, err := free(d.path)
		if err != nil || have >= want {
			return err
		}
		d.say("removing %s: %.1f GB are free, and %.1f GB are needed", entry, float64(have)/1e9, float64(want)/1e9)
		if err := os.RemoveAll(entry); err != nil {
			return fmt.Errorf("cannot remove old cache entry %q: %w", entry, err)
		}
	}
	return nil
}

// old returns the paths of the entries that are not the last used of their kind, the longest unused first.
func (d Dir) old() ([]string, error) {
	var all []string
	for _, pattern := range []string{d.Path("*-" + anyKey), d.Path("*", "*-"+anyKey)} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("cannot list cache entries: %w", err)
		}
		all = append(all, found...)
	}
	used := map[string]time.Time{}
	for _, path := range all {
		if info, err := os.Stat(path); err == nil {
			used[path] = info.ModTime()
		}
	}
	slices.SortFunc(all, func(a, b string) int { return used[a].Compare(used[b]) })
	kind := func(path string) string { return path[:len(path)-len("-")-keyLength] }
	last := map[string]string{}
	for _, path := range all {
		last[kind(path)] = path
	}
	return slices.DeleteFunc(all, func(path string) bool { return last[kind(path)] == path }), nil
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
