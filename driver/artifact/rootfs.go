package artifact

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/host"
)

// imageLimits are the limits of an image with a compiler. They are far above the largest in use: the official image of
// gcc has 1.5 GB in 35,000 files, a Debian with build-essential 0.4 GB in 15,000.
func imageLimits() Limits {
	return Limits{Manifest: 4 << 20, Packed: 3 << 30, Unpacked: 8 << 30, Files: 300_000, Layers: 128}
}

// PullImage finds the image of any kind that s names and unpacks it, as the root of a Linux system, into the directory
// "root" in dir, which must exist and be empty. S is a source with its templates filled in, and arch is the machine
// name of `uname -m`. Registries, mirrors, digests and signatures are those of [Client.Pull], and so are the failures.
// All files belong to the agent's user; there are no device nodes and no program has more rights than its caller.
func (c *Client) PullImage(ctx context.Context, s accel.Source, arch, dir string) (Pulled, *accel.Problem) {
	r, err := parseReference(s)
	if err != nil {
		return Pulled{}, explain(err)
	}
	if r.tag == "" && r.digest == "" {
		s.Image += ":latest"
	}
	if c.o.Limits == defaultLimits() {
		c = &Client{h: c.h, o: c.o}
		c.o.Limits = imageLimits()
	}
	return c.find(ctx, s, Wanted{Arch: arch}, dir, true)
}

// machine refuses an image that is for other machines. An index says that too, but not every image is in one.
func (p pull) machine(ctx context.Context, from place, img v1.Manifest) error {
	text, err := readBlob(ctx, from, img.Config, p.o.Limits.Manifest)
	if err != nil {
		return err
	}
	var config struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return invalidf("its configuration cannot be read: %v", err)
	}
	if arch := accel.GoArch(p.wanted.Arch); config.OS != "linux" || config.Architecture != arch {
		return accel.Problemf(accel.ArchMismatch, "is for %.32q on %.32q, the machine is linux on %q", config.OS,
			config.Architecture, arch)
	}
	return nil
}

// root unpacks an image into the directory "root".
func (p pull) root(ctx context.Context, t *transfer.Meter, from place, img v1.Manifest) error {
	x := newExtraction(ctx, p.h, path.Join(p.dir, "root"), p.o.Limits)
	f, err := newRootfs(x)
	if err != nil {
		return err
	}
	if err := p.each(ctx, t, from, img.Layers, f.layer); err != nil {
		return err
	}
	if err := f.to.Sync(); err != nil {
		return unpack.WriteProblem(err, x.dir)
	}
	return nil
}

// rootfs is the file system of an image in its directory.
type rootfs struct {
	x    *extraction
	to   *host.Tree
	dirs map[string]bool // those that were counted
}

func newRootfs(x *extraction) (*rootfs, error) {
	if err := x.h.MkdirAll(x.dir, 0o755); err != nil {
		return nil, unpack.WriteProblem(err, x.dir)
	}
	to, err := host.OpenTree(x.h, x.dir)
	if err != nil {
		return nil, unpack.WriteProblem(err, x.dir)
	}
	return &rootfs{x, to, map[string]bool{".": true}}, nil
}

// layer applies one layer on top of the layers below it. What it hides of them goes first: its own files with those
// names stay, wherever they are in it.
func (f *rootfs) layer(r io.ReadSeeker) error {
	back := f.x.Mark()
	if err := f.x.Each(r, f.hide); err != nil {
		return err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return f.x.Refusal(err)
	}
	back() // the same entries again
	return f.x.Each(r, f.entry)
}

// hide removes what an entry hides of the layers below.
func (f *rootfs) hide(_ *tar.Header, name string, _ io.Reader) error {
	dir, base := path.Split(name)
	hidden, ok := strings.CutPrefix(base, whiteout)
	if !ok {
		return nil
	}
	names := []string{hidden}
	switch {
	case base == opaque:
		var err error
		if names, err = f.to.Names("/" + dir); err != nil {
			return unpack.WriteProblem(err, name)
		}
	case strings.HasPrefix(hidden, whiteout): // notes of a storage driver
		return nil
	case hidden == "" || hidden == "." || hidden == "..":
		return invalidf("its layer has an entry named %.200q", name)
	}
	for _, n := range names {
		if err := f.to.Remove(path.Join(dir, n)); err != nil {
			return unpack.WriteProblem(err, path.Join(dir, n))
		}
	}
	return nil
}

// entry writes one entry.
func (f *rootfs) entry(header *tar.Header, name string, content io.Reader) error {
	if strings.HasPrefix(path.Base(name), whiteout) {
		return nil
	}
	if err := f.count(path.Dir(name)); err != nil {
		return err
	}
	err := f.write(header, name, content)
	var known *accel.Problem
	var machine *fs.PathError
	if !errors.As(err, &known) && errors.As(err, &machine) {
		return unpack.WriteProblem(err, name)
	}
	return err
}

// count counts a directory and those above it, which are made if no entry is for them.
func (f *rootfs) count(dir string) error {
	for ; !f.dirs[dir]; dir = path.Dir(dir) {
		if err := f.x.Count(); err != nil {
			return err
		}
		f.dirs[dir] = true
	}
	return nil
}

func (f *rootfs) write(header *tar.Header, name string, content io.Reader) error {
	mode := fs.FileMode(header.Mode) & fs.ModePerm // without setuid, setgid and sticky
	switch header.Typeflag {
	case tar.TypeDir:
		return f.to.Dir(name, mode|0o700)
	case tar.TypeReg:
		if odd := unpack.Oddity(header); odd != "" {
			return invalidf("its layer has %q, which is %s", name, odd)
		}
		content, err := f.x.Content(header.Size, content)
		if err != nil {
			return err
		}
		return f.to.File(name, mode, content)
	case tar.TypeSymlink:
		if header.Linkname == "" || len(header.Linkname) >= unpack.NameLimit {
			return invalidf("its layer has the link %q to %.200q", name, header.Linkname)
		}
		return f.to.Symlink(header.Linkname, name)
	case tar.TypeLink:
		target := strings.TrimPrefix(strings.TrimPrefix(header.Linkname, "./"), "/")
		if len(target) > unpack.NameLimit || !unpack.Local(target) {
			return invalidf("its layer has the link %q to %.200q", name, header.Linkname)
		}
		err := f.to.Link(target, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR) {
			return invalidf("its layer has the link %q to %.200q, which is no file", name, header.Linkname)
		}
		return err
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeXGlobalHeader:
		return nil // a build gets its own device nodes, and the rest are no files
	}
	return invalidf("its layer has %q, which is %s", name, unpack.Oddity(header))
}
