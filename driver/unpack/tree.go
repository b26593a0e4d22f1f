package unpack

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Format is the format of an archive; its compression is detected.
type Format string

// The formats.
const (
	Tar  Format = "tar"
	DEB  Format = "deb"  // its data archive; the control archive is not unpacked
	CPIO Format = "cpio" // of the "new ASCII" format, as in rpm
)

// Tree is what archives left in a directory.
type Tree struct {
	Files []File // sorted by path
	Left  []Left // what was not kept, in the order of the archives
	Bytes int64  // of all files
}

// File is a regular file or a symbolic link of a tree.
type File struct {
	Path string // relative to the directory, clean
	// Mode is 0o644 or, if its owner may execute the file, 0o755; a link has 0.
	Mode   fs.FileMode
	Size   int64
	SHA256 string // in hexadecimal; empty for a link
	// Link is the text of a symbolic link. It is relative and leads to a file or a directory of the tree.
	Link string
}

// Left is something of an archive that is not in the tree, and why.
type Left struct{ Path, Why string }

// leftLimit is how many of them are listed.
const leftLimit = 1000

// tree is a tree in progress. Links are created last.
type tree struct {
	files map[string]File
	links map[string]string
	dirs  map[string]bool
	left  []Left
}

func newTree() tree {
	return tree{files: map[string]File{}, links: map[string]string{}, dirs: map[string]bool{".": true}}
}

func (t *tree) leave(name, why string) {
	if len(t.left) < leftLimit {
		t.left = append(t.left, Left{name, why})
	}
}

// Into unpacks one archive into the directory dir of h, which exists and is empty.
func Into(ctx context.Context, h *host.Host, dir string, r io.Reader, f Format, b Bounds) (Tree, *accel.Problem) {
	x := New(ctx, h, dir, b)
	if problem := x.Add(r, f); problem != nil {
		return Tree{}, problem
	}
	return x.Finish()
}

// Add unpacks one archive. Archives may share files with the same content. Nothing is durable before
// [Extraction.Finish].
func (x *Extraction) Add(r io.Reader, f Format) *accel.Problem {
	open := func(content io.Reader) entries { return tarEntries{tar.NewReader(content)} }
	var err error
	switch f {
	case Tar:
		err = x.each(r, true, open, x.keep)
	case CPIO:
		err = x.each(r, true, func(content io.Reader) entries {
			return &cpioReader{r: content, later: map[string][]string{}}
		}, x.keep)
	case DEB:
		var d Deb
		if d, err = OpenDeb(r); err == nil {
			err = x.each(d.Data, true, open, x.keep)
		} else {
			err = x.Refusal(err)
		}
	default:
		err = accel.Problemf(accel.ConfigInvalid, "%q is no format of an archive", f)
	}
	if err == nil {
		return nil
	}
	return accel.ProblemOf(err, "cannot unpack an archive")
}

// keep adds an entry to the tree.
func (x *Extraction) keep(header *tar.Header, name string, content io.Reader) error {
	odd := Oddity(header)
	switch {
	case odd == "" && header.Typeflag == tar.TypeDir:
		return nil // directories are created when a file needs them
	case odd == "":
		if header.Mode&0o7000 != 0 {
			x.tree.leave(name, "its set-user-ID, set-group-ID or sticky bit")
		}
		return x.file(name, mode(header.Mode), header.Size, content)
	case header.Typeflag == tar.TypeSymlink:
		return x.link(name, header.Linkname)
	case header.Typeflag == tar.TypeLink:
		return x.hard(name, strings.TrimPrefix(header.Linkname, "./"))
	case odd == "a sparse file":
		return invalidf("it has %q, which is %s", name, odd)
	}
	x.tree.leave(name, odd)
	return nil
}

// mode is the mode of a file in a tree.
func mode(packed int64) fs.FileMode {
	if packed&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// file writes one file, or compares it with the one that is there.
func (x *Extraction) file(name string, mode fs.FileMode, size int64, content io.Reader) error {
	if size > x.room {
		return errTooLarge
	}
	if have, ok := x.tree.files[name]; ok {
		sum := sha256.New()
		if _, err := io.Copy(sum, content); err != nil {
			return err
		}
		if hex.EncodeToString(sum.Sum(nil)) != have.SHA256 {
			return invalidf("it has a second file %q with other content", name)
		}
		return nil
	}
	if _, ok := x.tree.links[name]; ok {
		return invalidf("it has %q twice, as a file and as a link", name)
	}
	if err := x.mkdir(path.Dir(name)); err != nil {
		return err
	}
	to := path.Join(x.dir, name)
	n := x.room
	sum, err := x.create(to, mode, content, func(f *os.File) error { return f.Chmod(mode) })
	if err != nil {
		return err
	}
	x.tree.files[name] = File{Path: name, Mode: mode, Size: n - x.room, SHA256: sum}
	return nil
}

// mkdir creates a directory below the directory, and those above it, which everybody may read.
func (x *Extraction) mkdir(dir string) error {
	if x.tree.dirs[dir] {
		return nil
	}
	if err := x.mkdir(path.Dir(dir)); err != nil {
		return err
	}
	if x.count++; x.count > x.bounds.Files {
		return invalidf("it has more than %d files and directories", x.bounds.Files)
	}
	to := path.Join(x.dir, dir)
	err := x.h.MkdirAll(to, 0o755)
	if err == nil {
		err = x.h.Chmod(to, 0o755)
	}
	if err != nil {
		return WriteProblem(err, to)
	}
	x.tree.dirs[dir] = true
	return nil
}

// hard gives a file of the tree a second name, as a copy: a change of one must not change the other.
func (x *Extraction) hard(name, to string) error {
	have, ok := x.tree.files[to]
	if !ok {
		x.tree.leave(name, "a hard link to a file that is not there")
		return nil
	}
	f, err := x.h.Open(path.Join(x.dir, to))
	if err != nil {
		return accel.ProblemOf(err, "cannot read %q", to)
	}
	defer f.Close()
	return x.file(name, have.Mode, have.Size, f)
}

// link notes a symbolic link.
func (x *Extraction) link(name, text string) error {
	if text == "" || len(text) > NameLimit || strings.Count(text, "/") >= 2*depthLimit ||
		strings.ContainsAny(text, "\x00\n") {
		x.tree.leave(name, "a link whose text is not usable")
		return nil
	}
	if have, ok := x.tree.links[name]; ok && have != text {
		return invalidf("it has a second link %q to another file", name)
	}
	if _, ok := x.tree.files[name]; ok {
		return invalidf("it has %q twice, as a file and as a link", name)
	}
	x.tree.links[name] = text
	return nil
}

// Finish creates the links that lead to something in the tree and makes all of it durable.
func (x *Extraction) Finish() (Tree, *accel.Problem) {
	t := &x.tree
	links := slices.Sorted(maps.Keys(t.links))
	var kept []File
	for _, name := range links { // a directory in the place of a link changes where others lead
		if err := x.mkdir(path.Dir(name)); err != nil {
			return Tree{}, accel.ProblemOf(err, "cannot create a link")
		}
	}
	for _, name := range links {
		file := File{Path: name}
		var why string
		if file.Link, why = t.resolved(name); why != "" {
			t.leave(name, "a link to "+why)
			continue
		}
		if t.dirs[name] {
			t.leave(name, "a link in the place of a directory")
			continue
		}
		kept = append(kept, file)
	}
	out := Tree{Files: kept, Left: t.left}
	for _, f := range t.files {
		out.Files = append(out.Files, f)
		out.Bytes += f.Size
	}
	slices.SortFunc(out.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for _, f := range out.Files {
		if f.Link == "" {
			continue
		}
		if err := x.h.Symlink(f.Link, path.Join(x.dir, f.Path)); err != nil {
			return Tree{}, WriteProblem(err, path.Join(x.dir, f.Path))
		}
	}
	dir, err := x.h.Path(x.dir)
	if err == nil {
		err = x.syncDisk(dir)
	}
	if err != nil {
		return Tree{}, WriteProblem(err, x.dir)
	}
	return out, nil
}
