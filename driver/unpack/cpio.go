package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The header of an entry in the "new ASCII" format of cpio: a magic number and thirteen numbers of eight hexadecimal
// digits (Documentation/driver-api/early-userspace/buffer-format.rst of Linux).
const (
	cpioHeader  = 110
	cpioTrailer = "TRAILER!!!"
	linkLimit   = NameLimit
	hardLimit   = 4096 // names of files whose content is still to come
)

// The types of files in a mode (inode(7)).
const (
	modeType = 0o170000
	modeReg  = 0o100000
	modeDir  = 0o040000
	modeLink = 0o120000
)

// cpioReader reads the entries of a cpio archive as those of a tar archive.
type cpioReader struct {
	r      io.Reader
	member exact
	pad    int64
	// later are the names of files of the inodes whose content comes with the last of their names.
	later map[string][]string
	count int
	links []*tar.Header // to be returned before the next entry is read
	ended bool
}

// next returns the next entry; io.EOF after the last.
func (c *cpioReader) next() (*tar.Header, error) {
	for {
		if len(c.links) > 0 {
			h := c.links[0]
			c.links = c.links[1:]
			return h, nil
		}
		if c.ended {
			return nil, io.EOF
		}
		h, err := c.read()
		if err != nil || h != nil {
			return h, err
		}
	}
}

func (c *cpioReader) Read(p []byte) (int, error) { return c.member.Read(p) }

// read reads an entry; nil if it is one that comes later, or the last.
func (c *cpioReader) read() (*tar.Header, error) {
	if err := errors.Join(c.member.skip(), c.fill(c.pad)); err != nil {
		return nil, err
	}
	c.pad = 0
	var raw [cpioHeader]byte
	if _, err := io.ReadFull(c.r, raw[:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the trailer is missing
		}
		return nil, err
	}
	if magic := string(raw[:6]); magic != "070701" && magic != "070702" {
		return nil, fmt.Errorf("it has a cpio entry of format %.6q", magic)
	}
	var f [13]int64
	for i := range f {
		n, err := strconv.ParseUint(string(raw[6+8*i:14+8*i]), 16, 32)
		if err != nil {
			return nil, errors.New("it has a cpio header that cannot be read")
		}
		f[i] = int64(n)
	}
	inode, mode, names, size, length := fmt.Sprint(f[0], f[7], f[8]), f[1], f[4], f[6], f[11]
	if length < 1 || length > NameLimit+1 {
		return nil, fmt.Errorf("it has a cpio entry whose name has %d bytes", length)
	}
	name := make([]byte, length)
	if _, err := io.ReadFull(c.r, name); err != nil {
		return nil, err
	}
	if err := c.fill(padding(cpioHeader + length)); err != nil {
		return nil, err
	}
	c.member, c.pad = exact{c.r, size}, padding(size)
	// Some writers of rpm let the names begin at the root of the machine, which is the top of the tree.
	text := strings.TrimPrefix(strings.TrimRight(string(name), "\x00"), "/")
	return c.entry(text, inode, mode, names, size)
}

// entry turns an entry into that of a tar archive.
func (c *cpioReader) entry(name, inode string, mode, names, size int64) (*tar.Header, error) {
	if name == cpioTrailer {
		c.ended = true
		for _, inode := range slices.Sorted(maps.Keys(c.later)) { // files without content
			all := c.later[inode]
			c.links = append(c.links, &tar.Header{Typeflag: tar.TypeReg, Name: all[0], Mode: 0o644})
			c.hard(all[0], all[1:])
		}
		return nil, nil
	}
	h := &tar.Header{Name: name, Mode: mode & 0o7777, Size: size}
	switch mode & modeType {
	case modeDir:
		h.Typeflag = tar.TypeDir
	case modeLink:
		if size > linkLimit {
			return nil, fmt.Errorf("its link %.200q has %d bytes", name, size)
		}
		text, err := io.ReadAll(&c.member)
		if err != nil {
			return nil, err
		}
		h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, string(text), 0
	case modeReg:
		h.Typeflag = tar.TypeReg
		if names < 2 {
			break
		}
		if size == 0 {
			if c.count++; c.count > hardLimit {
				return nil, fmt.Errorf("it has more than %d hard links", hardLimit)
			}
			c.later[inode] = append(c.later[inode], name)
			return nil, nil
		}
		c.hard(name, c.later[inode])
		delete(c.later, inode)
	default:
		h.Typeflag = tar.TypeFifo // a node or a socket: nothing that is kept
	}
	return h, nil
}

// hard lets hard links to a file follow.
func (c *cpioReader) hard(to string, names []string) {
	for _, n := range names {
		c.links = append(c.links, &tar.Header{Typeflag: tar.TypeLink, Name: n, Linkname: to})
	}
}

// fill skips filling bytes.
func (c *cpioReader) fill(n int64) error {
	_, err := io.CopyN(io.Discard, c.r, n)
	return err
}

// padding is how many bytes fill n bytes up to a multiple of four.
func padding(n int64) int64 { return (4 - n%4) % 4 }
