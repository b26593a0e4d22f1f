package packages

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/host"
)

// filesLimit is how many files of a directory are looked at.
const filesLimit = 4096

// fromPath gets the packages from a directory of the host, or a file.
func (f *fetch) fromPath(ctx context.Context) (Fetched, *accel.Problem) {
	r := f.Repository
	if r.Format == Deb && (f.o.Trust.Require || len(r.Keys) > 0) {
		return Fetched{}, accel.Problemf(accel.SignatureInvalid,
			"%q: deb packages in a directory carry no signature, and one is demanded (trust.require, keys)", r.Path)
	}
	if f.o.Trust.Require && len(r.Keys) == 0 {
		return Fetched{}, accel.Problemf(accel.SignatureInvalid,
			"%q: this host demands signatures (trust.require), and no keys are named", r.Path)
	}
	all, problem := f.scan(ctx)
	if problem != nil {
		return Fetched{}, problem
	}
	chosen, problem := choose(r.Format, all, f.Packages)
	if problem != nil {
		problem.Message = fmt.Sprintf("%q: %s", r.Path, problem.Message)
		return Fetched{}, problem
	}
	var out Fetched
	files := make([]string, len(chosen))
	for i, c := range chosen {
		files[i] = c.file
		out.Packages = append(out.Packages, Package{
			Name: c.name, Version: c.version, Architecture: c.architecture, From: c.file, Bytes: c.size,
			SHA256: strings.TrimPrefix(string(c.digest), "sha256:"),
		})
	}
	if f.o.Known != nil && f.o.Known(out.Packages) {
		return out, nil
	}
	out.Tree, problem = f.unpack(ctx, files, out.Packages, len(r.Keys) == 0)
	return out, problem
}

// scan reads what the packages of the directory are.
func (f *fetch) scan(ctx context.Context) ([]candidate, *accel.Problem) {
	at := f.Repository.Path
	st, err := f.h.Stat(at)
	if err != nil {
		return nil, accel.ProblemOr(err, accel.ArtifactNotFound, "cannot read %q", at)
	}
	files := []string{at}
	if st.IsDir() {
		names, err := f.h.Names(at)
		if err != nil {
			return nil, accel.ProblemOf(err, "cannot read %q", at)
		}
		suffix := "." + string(f.Repository.Format)
		names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, suffix) })
		if len(names) > filesLimit {
			return nil, accel.Problemf(accel.ArtifactInvalid, "%q has more than %d packages", at, filesLimit)
		}
		files = nil
		for _, n := range names {
			files = append(files, path.Join(at, n))
		}
	}
	var all []candidate
	for _, name := range files {
		if ctx.Err() != nil {
			return nil, accel.Problemf(accel.InternalError, "reading %q was called off: %v", at, ctx.Err())
		}
		if err := host.RootOwned(f.h, name); err != nil {
			return nil, accel.Problemf(accel.SignatureInvalid, "%q is not trusted: %v", name, err)
		}
		c, err := f.inspect(name)
		if err != nil {
			return nil, accel.ProblemOr(err, accel.ArtifactInvalid, "%q cannot be read", name)
		}
		wanted := slices.ContainsFunc(f.Packages, func(w Wanted) bool { return w.Name == c.name })
		if wanted && slices.Contains([]string{f.Repository.Architecture, allDeb, allRPM}, c.architecture) {
			if c, err = f.digested(c); err != nil {
				return nil, accel.ProblemOf(err, "cannot read %q", name)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// inspect reads what a package is.
func (f *fetch) inspect(name string) (candidate, error) {
	in, err := f.h.Open(name)
	if err != nil {
		return candidate{}, err
	}
	defer in.Close()
	if f.Repository.Format == RPM {
		r, err := readRPM(in)
		return candidate{name: r.name, version: r.version, architecture: r.architecture, file: name}, err
	}
	d, err := unpack.OpenDeb(in)
	if err != nil {
		return candidate{}, err
	}
	s, err := single(strings.NewReader(d.Control))
	if err == nil && (!packageName.MatchString(s["package"]) || !versionForm.MatchString(s["version"])) {
		err = errors.New("its control file names no package and version")
	}
	return candidate{
		name: s["package"], version: s["version"], architecture: s["architecture"], file: name,
	}, err
}

// digested adds the digest and the size of a file.
func (f *fetch) digested(c candidate) (candidate, error) {
	sum, size, err := transfer.Sum(f.h, c.file)
	c.digest, c.size = sum, size
	return c, err
}
