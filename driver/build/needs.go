package build

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/host"
)

// needed is the file system of packages that a build was given besides its image: a directory of the machine that is
// laid out like a root.
type needed struct {
	dir string // on the machine
	h   *host.Host
}

// needs fetches the packages of a source if the machine lacks the source tree at p or the headers; nil if it has both.
func (b *Builder) needs(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source, p string) (
	[]needed, *accel.Problem,
) {
	if _, problem := b.headers(facts); len(s.Needs) == 0 || problem == nil && b.h.Exists(p) {
		return nil, nil
	}
	dirs, missing, problem := b.o.Images.Needs(ctx, def, facts, s)
	if problem != nil {
		return nil, problem
	}
	var out []needed
	for _, dir := range dirs {
		n := needed{dir: dir}
		in, err := b.h.Path(dir)
		if err == nil {
			n.h, err = host.New(in)
		}
		if err != nil {
			return nil, accel.ProblemOf(err, "cannot use the packages of a build in %q", dir)
		}
		out = append(out, n)
	}
	if missing == nil {
		return out, nil
	}
	if _, _, problem := b.findHeaders(&job{facts: facts, needs: out}); problem != nil || !b.h.Exists(b.locate(out, p)) {
		return nil, missing
	}
	return out, nil
}

// locate returns where the source tree is that a source names by p: there, or in packages.
func (b *Builder) locate(all []needed, p string) string {
	if b.h.Exists(p) {
		return p
	}
	for _, n := range all {
		if n.h.Exists(p) {
			return path.Join(n.dir, p)
		}
	}
	return p
}

// findHeaders returns the directory of the kernel's build headers, and the file system that it is in: the machine's, or
// that of packages.
func (b *Builder) findHeaders(j *job) (string, *host.Host, *accel.Problem) {
	dir, problem := b.headers(j.facts)
	if problem == nil {
		return dir, b.h, nil
	}
	for _, n := range j.needs {
		other := *b
		other.h = n.h
		if dir, p := other.headers(j.facts); p == nil {
			return dir, n.h, nil
		}
	}
	if len(j.needs) > 0 {
		problem.Message += ", and driver.sources.needs brings none that are whole"
	}
	return "", b.h, problem
}

// firmware copies into the entry what firmware the definition names and packages brought. What they did not bring is
// the machine's.
func (b *Builder) firmware(j *job) (out []artifact.File, problem *accel.Problem) {
	for _, m := range j.def.Driver.Modules {
		names, problem := template.Firmware(j.def, j.facts, m)
		if problem != nil {
			return nil, problem
		}
		for _, name := range names {
			there := slices.ContainsFunc(out, func(f artifact.File) bool { return f.Path == name })
			if name == "" || there {
				continue
			}
			for _, n := range j.needs {
				sum, problem := b.copyFirmware(n, name, path.Join(j.Entry, "firmware", name))
				if problem != nil {
					return nil, problem
				}
				if sum != "" {
					out = append(out, artifact.File{Path: name, SHA256: sum})
					break
				}
			}
		}
	}
	return out, nil
}

// copyFirmware copies one firmware file of packages and returns its digest; empty if they do not have it.
func (b *Builder) copyFirmware(n needed, name, to string) (string, *accel.Problem) {
	from, err := n.h.Open(path.Join("/usr/lib/firmware", name))
	if errors.Is(err, fs.ErrNotExist) {
		from, err = n.h.Open(path.Join("/lib/firmware", name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", accel.ProblemOf(err, "cannot read the firmware %q", name)
	}
	defer from.Close()
	if err := b.h.MkdirAll(path.Dir(to), 0o700); err != nil {
		return "", accel.ProblemOf(err, "cannot make %q", path.Dir(to))
	}
	return b.store.Copy(from, to)
}

// binds are the parts of packages that a build sees under their own names: what is in /usr/src, and Debian's kbuild.
func (n needed) binds() (out []host.Bind) {
	for _, pattern := range []string{"usr/src/*", "usr/lib/linux-*"} {
		for _, name := range n.h.Glob("/", pattern) {
			if st, err := n.h.Stat(name); err == nil && st.IsDir() {
				out = append(out, host.Bind{From: path.Join(n.dir, name), To: name})
			}
		}
	}
	return out
}

// linkHeaders makes the links in /lib/modules by which a tree's own Makefile finds the headers of packages, and returns
// what a build sees of them.
func (b *Builder) linkHeaders(j *job) (host.Bind, error) {
	dir, modules := path.Join(j.Dir, "modules"), "/lib/modules/"+j.facts.Kernel.Release
	source := j.headers
	for _, name := range []string{modules + "/source", "/usr" + modules + "/source"} { // Debian's, in two parts
		if !j.headersIn.Exists(name) {
			continue
		}
		var err error
		if source, err = j.headersIn.Follow(name); err != nil {
			return host.Bind{}, err
		}
		break
	}
	err := errors.Join(b.h.MkdirAll(dir, 0o755), b.h.Symlink(j.headers, path.Join(dir, "build")),
		b.h.Symlink(source, path.Join(dir, "source")))
	return host.Bind{From: dir, To: modules}, err
}
