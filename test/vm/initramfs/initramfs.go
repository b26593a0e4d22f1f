// Package initramfs writes the small first root file system that a guest's kernel boots into: a cpio archive of the
// "newc" kind (kernel documentation, driver-api/early-userspace/buffer-format). It only encodes; it reads no files.
package initramfs

import (
	"fmt"
	"io"
	"path"
	"sort"
	"strings"
)

// File is one entry. Exactly one of Content, Link and Dir says what it is.
type File struct {
	// Mode is the permission, such as 0o644. Links ignore it.
	Mode uint32
	// Content is a regular file's content.
	Content []byte
	// Link is the target of a symbolic link.
	Link string
	// Dir makes the entry a folder.
	Dir bool
}

// The file types of a mode, stat(2).
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// Write writes an archive of the files, by their path without a leading slash. Missing parent folders are added.
func Write(w io.Writer, files map[string]File) error {
	all := map[string]File{}
	for name, file := range files {
		name = strings.TrimPrefix(path.Clean("/"+name), "/")
		all[name] = file
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, there := all[dir]; !there {
				all[dir] = File{Dir: true, Mode: 0o755}
			}
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names) // parents come before what they hold
	out := &counter{w: w}
	for i, name := range names {
		f := all[name]
		mode, content := typeFile|f.Mode, f.Content
		switch {
		case f.Dir:
			mode, content = typeDir|f.Mode, nil
		case f.Link != "":
			mode, content = typeLink|0o777, []byte(f.Link)
		}
		out.entry(i+1, name, mode, content)
	}
	out.entry(0, "TRAILER!!!", 0, nil)
	if out.err != nil {
		return fmt.Errorf("cannot write initramfs: %w", out.err)
	}
	return nil
}

// counter remembers the first error and the position, for padding.
type counter struct {
	w   io.Writer
	n   int
	err error
}

func (c *counter) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
		c.n += len(b)
	}
}

func (c *counter) pad() { c.write(make([]byte, -c.n&3)) }

func (c *counter) entry(inode int, name string, mode uint32, content []byte) {
	links := 1
	// inode, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
	c.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name)+1, 0))
	c.write(append([]byte(name), 0))
	c.pad()
	c.write(content)
	c.pad()
}
