package artifact

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
)

// foreign collects what is wanted from the layers of an image in one of two layouts: that of the kernel module
// management operator (/opt/lib/modules/<release>/*.ko, possibly compressed, and /firmware), and that of a system's
// root (/lib/modules/<release>, /lib/firmware, and libraries and programs). It ignores the rest of the image.
type foreign struct {
	x       *extraction
	modules string            // "opt/lib/modules/<release>/"
	files   map[string]string // path in the image → file in the directory
	n       int
	root    *Root             // nil if nothing is wanted of the second layout
	links   map[string]string // path in the image → where the link points to
}

func newForeign(x *extraction, w Wanted) *foreign {
	return &foreign{
		x: x, modules: "opt/lib/modules/" + w.KernelRelease + "/", files: map[string]string{}, root: w.Root,
		links: map[string]string{},
	}
}

// linkLimit is how many links of an image are kept: those of a driver's libraries are some dozens.
const linkLimit = 10_000

// part is what a file of an image is.
type part int

const (
	unwanted part = iota
	moduleFile
	firmwareFile
	rootFile
)

// The names of files that remove what lower layers have (OCI image specification 1.1, layer.md).
const (
	whiteout = ".wh."
	opaque   = whiteout + whiteout + ".opq"
)

// layer applies one layer on top of the layers below it.
func (f *foreign) layer(r io.Reader) error {
	return f.x.Each(r, func(header *tar.Header, name string, content io.Reader) error {
		dir, base := path.Split(name)
		if base == opaque {
			return f.remove(path.Clean(dir))
		}
		if hidden, ok := strings.CutPrefix(base, whiteout); ok {
			return f.remove(path.Join(dir, hidden))
		}
		if header.Typeflag == tar.TypeDir {
			return nil
		}
		if header.Typeflag == tar.TypeSymlink && f.root != nil && f.root.File(name, header.Linkname) {
			return f.link(name, header.Linkname)
		}
		if f.part(name) == unwanted {
			return f.remove(name) // it may have replaced a link
		}
		if odd := unpack.Oddity(header); odd != "" {
			return invalidf("its layer has %q, which is %s", name, odd)
		}
		f.n++
		file := fmt.Sprintf("layered-%d", f.n)
		if _, err := f.x.Write(file, header.Size, content); err != nil {
			return err
		}
		if err := f.remove(name); err != nil {
			return err
		}
		f.files[name] = file
		return nil
	})
}

// link notes a symbolic link. It is made when all files are in place, so that nothing is ever written through it.
func (f *foreign) link(name, text string) error {
	if len(text) > unpack.NameLimit || strings.ContainsRune(text, 0) || len(f.links) > linkLimit {
		return invalidf("its layer has a link %q to %.200q", name, text)
	}
	if err := f.remove(name); err != nil {
		return err
	}
	f.links[name] = text
	return nil
}

// part says what a file of the image is, by its path.
func (f *foreign) part(name string) part {
	_, part := f.place(name)
	return part
}

// place returns where a file of the image is put, below the directory, and what it is.
func (f *foreign) place(name string) (string, part) {
	alone := f.root != nil && f.root.Alone
	if strings.HasPrefix(name, firmwareDir) && !alone {
		return name, firmwareFile
	}
	if strings.HasPrefix(name, f.modules) && moduleName(name) != "" && !alone {
		return path.Base(name), moduleFile
	}
	if f.root == nil {
		return "", unwanted
	}
	if f.root.File(name, "") {
		return rootDir + name, rootFile
	}
	rest := strings.TrimPrefix(name, "usr/")
	if alone || !strings.HasPrefix(rest, "lib/") {
		return "", unwanted
	}
	rest = strings.TrimPrefix(rest, "lib/")
	if file, ok := strings.CutPrefix(rest, firmwareDir); ok && slices.Contains(f.root.Firmware, file) {
		return firmwareDir + file, firmwareFile
	}
	release := strings.TrimPrefix(f.modules, "opt/lib/")
	if strings.HasPrefix(rest, release) && slices.Contains(f.root.Modules, moduleName(rest)) {
		return path.Base(rest), moduleFile
	}
	return "", unwanted
}

// moduleName is the name of the module in a file, with underscores; empty if it is no module.
func moduleName(file string) string {
	for _, s := range []string{".ko", ".ko.xz", ".ko.zst", ".ko.gz"} {
		if base, ok := strings.CutSuffix(path.Base(file), s); ok {
			return strings.ReplaceAll(base, "-", "_")
		}
	}
	return ""
}

// remove removes name and everything below it.
func (f *foreign) remove(name string) error {
	for have, file := range f.files {
		if have != name && !strings.HasPrefix(have, name+"/") {
			continue
		}
		if err := f.x.h.Remove(path.Join(f.x.dir, file)); err != nil {
			return unpack.WriteProblem(err, file)
		}
		delete(f.files, have)
	}
	maps.DeleteFunc(f.links, func(have, _ string) bool { return have == name || strings.HasPrefix(have, name+"/") })
	return nil
}

// finish gives the files their final names: modules in the directory itself, firmware below "firmware", the rest below
// "root".
func (f *foreign) finish() error {
	modules, alone := 0, f.root != nil && f.root.Alone
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		to, part := f.place(name)
		if part == moduleFile {
			modules++
		}
		to = path.Join(f.x.dir, to)
		if f.x.h.Exists(to) {
			return invalidf("it has two files %q", path.Base(name))
		}
		if err := f.x.h.MkdirAll(path.Dir(to), 0o700); err != nil {
			return unpack.WriteProblem(err, to)
		}
		if err := f.x.h.Rename(path.Join(f.x.dir, f.files[name]), to); err != nil {
			return unpack.WriteProblem(err, to)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.links)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, linked := f.links[dir]; linked {
				return invalidf("it has %q, and %q is a link", name, dir) // nothing is written through a link
			}
		}
		if err := f.x.link(name, f.links[name]); err != nil {
			return err
		}
	}
	release := strings.TrimSuffix(strings.TrimPrefix(f.modules, "opt"), "/")
	switch {
	case alone && len(f.files) == 0:
		return accel.Problemf(accel.ArtifactNotFound, "has none of the files that are wanted")
	case !alone && modules == 0:
		return accel.Problemf(accel.ArtifactNotFound, "has no module in %q or in %q", "/opt"+release, release)
	}
	return nil
}
