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
)

// foreign collects the modules and the firmware of one kernel from the layers of an image in the layout of the kernel
// module management operator: /opt/lib/modules/<release>/*.ko, possibly compressed, and /firmware. It ignores the
// rest of the image, which is some base image.
type foreign struct {
	x       *extraction
	modules string            // "opt/lib/modules/<release>/"
	files   map[string]string // path in the image → file in the directory
	n       int
}

// The names of files that remove what lower layers have (OCI image specification 1.1, layer.md).
const (
	whiteout = ".wh."
	opaque   = whiteout + whiteout + ".opq"
)

// layer applies one layer on top of the layers below it.
func (f *foreign) layer(r io.Reader) error {
	return f.x.each(r, func(header *tar.Header, name string, content io.Reader) error {
		dir, base := path.Split(name)
		if base == opaque {
			return f.remove(path.Clean(dir))
		}
		if hidden, ok := strings.CutPrefix(base, whiteout); ok {
			return f.remove(path.Join(dir, hidden))
		}
		if !f.wants(name) || header.Typeflag == tar.TypeDir {
			return nil
		}
		if odd := oddity(header); odd != "" {
			return invalidf("its layer has %q, which is %s", name, odd)
		}
		f.n++
		file := fmt.Sprintf("layered-%d", f.n)
		if _, err := f.x.write(file, header.Size, content); err != nil {
			return err
		}
		if err := f.remove(name); err != nil {
			return err
		}
		f.files[name] = file
		return nil
	})
}

// wants reports whether the image's file is a module of the kernel or firmware.
func (f *foreign) wants(name string) bool {
	if strings.HasPrefix(name, firmwareDir) {
		return true
	}
	return strings.HasPrefix(name, f.modules) && slices.ContainsFunc([]string{".ko", ".ko.xz", ".ko.zst", ".ko.gz"},
		func(s string) bool { return strings.HasSuffix(name, s) })
}

// remove removes name and everything below it.
func (f *foreign) remove(name string) error {
	for have, file := range f.files {
		if have != name && !strings.HasPrefix(have, name+"/") {
			continue
		}
		if err := f.x.h.Remove(path.Join(f.x.dir, file)); err != nil {
			return writeProblem(err, file)
		}
		delete(f.files, have)
	}
	return nil
}

// finish gives the files their final names: modules in the directory itself, firmware below "firmware".
func (f *foreign) finish() error {
	modules := 0
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		to := name
		if !strings.HasPrefix(name, firmwareDir) {
			to = path.Base(name)
			modules++
		}
		to = path.Join(f.x.dir, to)
		if f.x.h.Exists(to) {
			return invalidf("it has two module files %q", path.Base(name))
		}
		if err := f.x.h.MkdirAll(path.Dir(to), 0o700); err != nil {
			return writeProblem(err, to)
		}
		if err := f.x.h.Rename(path.Join(f.x.dir, f.files[name]), to); err != nil {
			return writeProblem(err, to)
		}
	}
	if modules == 0 {
		return accel.Problemf(accel.ArtifactNotFound, "has no module in %q", "/"+strings.TrimSuffix(f.modules, "/"))
	}
	return nil
}
