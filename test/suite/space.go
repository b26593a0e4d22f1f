package main

import (
	"fmt"
	"os"

	"github.com/acceld/acceld/test/vm/cache"
)

// space is how many bytes must be free before a part starts: a scenario that fills the disk fails late and blames
// something else.
const space = 10 << 30

// room makes room in the test bed's cache where it is needed, and returns an error if there is still too little.
func room(root string) error {
	c, err := cache.Open(func(format string, args ...any) { fmt.Printf("suite: "+format+"\n", args...) })
	if err != nil {
		return err
	}
	if err := c.MakeRoom(space); err != nil {
		return err
	}
	return cache.Room(space, folders(root)...)
}

// folders are where the tests write.
func folders(root string) []string {
	all := []string{root, os.TempDir()}
	if cache, err := os.UserCacheDir(); err == nil && os.MkdirAll(cache, 0o755) == nil {
		all = append(all, cache)
	}
	return all
}
