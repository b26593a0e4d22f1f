// Package tree takes snapshots of file trees as text, one line for each path, and compares them: what a host was before
// an installation and what it is after a purge must be the same text. It changes nothing.
//
// A line is the path, then type, mode, owner, what the path holds and its extended attributes:
//
//	/etc/cdi/a.json file 0644 0:0 size=12 sha256=9f86d081884c7d65 mtime=2026-01-02T03:04:05.000000006Z user.note="x"
//	/dev/edu0 char 0600 0:0 240:0
//	/etc/mtab link 0:0 -> "../proc/self/mounts"
//
// Natively, [Of] takes a directory as the root. In a guest of the test bed the same code runs as the program
// test/tree/cmd, static and without arguments that need a shell:
//
//	tree [-root DIR] [-mtime] [-dirtime] [-skip PATH]... PATH...  the trees below PATH, as [Of] gives them
//	tree -kernel                                                  modules, units, accelerators: [Kernel]
//
// Build it with CGO_ENABLED=0, put it on the guest, run it before and after, and give both texts to [Diff].
package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Options say what a snapshot holds.
type Options struct {
	// Paths are the trees that are looked at, as seen from the root; all of it when empty. Those that are not there are
	// left out.
	Paths []string
	// Skip are paths that are left out with all below them.
	Skip []string
	// Mtime adds the time of files and links, DirTime that of directories.
	Mtime, DirTime bool
}

// Of returns the snapshot of the trees below root. Links are not followed and other file systems are entered. A file
// that vanishes while it is read is left out; one that cannot be read has its error for content.
func Of(root string, o Options) (string, error) {
	paths := o.Paths
	if len(paths) == 0 {
		paths = []string{"/"}
	}
	var lines []string
	for _, p := range paths {
		err := filepath.WalkDir(filepath.Join(root, p), func(real string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, real)
			if err != nil {
				return err
			}
			seen := path.Join("/", rel)
			if slices.Contains(o.Skip, seen) {
				return fs.SkipDir
			}
			if l := line(real, seen, o); l != "" {
				lines = append(lines, l)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), ""), nil
}

func line(real, seen string, o Options) string {
	var st unix.Stat_t
	if err := unix.Lstat(real, &st); err != nil {
		return ""
	}
	owner := fmt.Sprintf("%d:%d", st.Uid, st.Gid)
	mode := fmt.Sprintf("%04o %s", st.Mode&0o7777, owner)
	mtime := ""
	kind := st.Mode & unix.S_IFMT
	if o.Mtime && kind != unix.S_IFDIR || o.DirTime && kind == unix.S_IFDIR {
		mtime = " mtime=" + time.Unix(st.Mtim.Unix()).UTC().Format(time.RFC3339Nano)
	}
	var what string
	switch kind {
	case unix.S_IFREG:
		what = fmt.Sprintf("file %s size=%d %s", mode, st.Size, content(real))
	case unix.S_IFLNK:
		text, err := os.Readlink(real)
		if err != nil {
			text = err.Error()
		}
		what = fmt.Sprintf("link %s -> %q", owner, text)
	case unix.S_IFDIR:
		what = "dir " + mode
	case unix.S_IFCHR:
		what = fmt.Sprintf("char %s %d:%d", mode, unix.Major(st.Rdev), unix.Minor(st.Rdev))
	case unix.S_IFBLK:
		what = fmt.Sprintf("block %s %d:%d", mode, unix.Major(st.Rdev), unix.Minor(st.Rdev))
	case unix.S_IFIFO:
		what = "fifo " + mode
	default:
		what = "socket " + mode
	}
	return seen + " " + what + mtime + attributes(real) + "\n"
}

// content is the digest of a file. Pseudo files and those that are gone again have their error instead.
func content(real string) string {
	f, err := os.Open(real)
	if err != nil {
		return "error=" + reason(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "error=" + reason(err)
	}
	return "sha256=" + hex.EncodeToString(h.Sum(nil)[:16])
}

func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Sprintf("%q", err.Error())
}

// attributes are the extended ones, sorted.
func attributes(real string) string {
	buf := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Llistxattr(real, buf)
	if err != nil || n == 0 {
		return ""
	}
	var out []string
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		value := make([]byte, 64<<10) // XATTR_SIZE_MAX
		n, err := unix.Lgetxattr(real, name, value)
		if err == nil {
			out = append(out, fmt.Sprintf(" %s=%q", name, value[:n]))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// Diff returns the lines that only one of two snapshots has, "- " before those of the first and "+ " before those of
// the second, sorted by path; empty when they are equal.
func Diff(before, after string) string {
	count := map[string]int{}
	for l := range strings.Lines(before) {
		count[l]--
	}
	for l := range strings.Lines(after) {
		count[l]++
	}
	var out []string
	for l, n := range count {
		if n < 0 {
			out = append(out, "- "+l)
		}
		if n > 0 {
			out = append(out, "+ "+l)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		return strings.Compare(a[2:]+a[:1], b[2:]+b[:1])
	})
	return strings.Join(out, "")
}
