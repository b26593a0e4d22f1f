package main

import "os"

// space is how many bytes must be free before a part starts: a scenario that fills the disk fails late and blames
// something else.
const space = 10 << 30

// folders are where the tests write.
func folders(root string) []string {
	all := []string{root, os.TempDir()}
	if cache, err := os.UserCacheDir(); err == nil && os.MkdirAll(cache, 0o755) == nil {
		all = append(all, cache)
	}
	return all
}
