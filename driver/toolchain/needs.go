package toolchain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/packages"
	"github.com/acceld/acceld/driver/template"
)

// unpacked is the record of packages that were unpacked for builds. It is written last.
type unpacked struct {
	Kernel   string             `json:"kernel"` // uname -r
	Packages []packages.Package `json:"packages"`
	// Repository and Dated say when the repository was signed that the packages came from.
	Repository string    `json:"repository,omitempty"`
	Dated      time.Time `json:"dated,omitzero"`
}

func (x *Images) needsDir() string { return path.Join(x.o.StateDir, "needs") }

func recordFile(dir string) string { return path.Join(dir, "packages.json") }

// Needs returns what a build source needs besides its image: for each set of packages a directory that is laid out like
// a root, as a path on the host. A set is fetched once for a kernel and for what the source says of it, and is not
// looked up again: without a network a build goes on. Missing says that a set cannot be had, because a repository does
// not have it or is not this host's to use; the host may have what is in it.
func (x *Images) Needs(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source) (out []string,
	missing, problem *accel.Problem,
) {
	for i, set := range s.Needs {
		set, problem := template.Packages(def, facts, fmt.Sprintf("driver.sources.needs[%d]", i), set)
		if problem != nil {
			return nil, nil, problem
		}
		dir, problem := x.need(ctx, def, facts, set)
		if problem == nil {
			out = append(out, path.Join(dir, "root"))
			continue
		}
		problem.Message = fmt.Sprintf("cannot get the packages that the build of %q needs: %s", def.Kind, problem.Message)
		if problem.Reason != accel.ArtifactNotFound && problem.Reason != accel.RegistryDenied {
			return nil, nil, problem
		}
		missing = cmp.Or(missing, problem)
	}
	return out, missing, nil
}

// need returns the directory of one set.
func (x *Images) need(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.PackageSet) (string,
	*accel.Problem,
) {
	text, err := json.Marshal(struct {
		Kernel string
		Set    accel.PackageSet
		Signed bool
	}{facts.Kernel.Release, s, x.o.Trust.Require})
	if err != nil {
		panic(err) // strings always marshal
	}
	key := kmod.Fingerprint(text)
	dir := path.Join(x.needsDir(), key)
	release, problem := x.o.Store.LockKey(ctx, def.Kind, "needs-"+key)
	if problem != nil {
		return "", problem
	}
	defer release()
	if x.h.Exists(recordFile(dir)) {
		return dir, nil
	}
	w, done, problem := x.o.Store.Workspace("")
	if problem != nil {
		return "", problem
	}
	defer done()
	began := time.Now()
	got, from, problem := x.fetch(ctx, def, facts, s, path.Join(w.Work, "root"), path.Join(w.Dir, "tmp"))
	if problem != nil {
		return "", problem
	}
	if problem := x.keep(w.Work, dir, unpacked{
		Kernel: facts.Kernel.Release, Packages: got.Packages, Repository: from.Repository(), Dated: got.Date,
	}); problem != nil {
		return "", problem
	}
	x.o.Log.Info("packages for builds unpacked", "kind", def.Kind, "kernel", facts.Kernel.Release, "packages", s.Packages,
		"files", len(got.Tree.Files), "took", time.Since(began).Round(time.Millisecond))
	return dir, nil
}

// fetch unpacks a set to a directory of the host, from the first of its repositories that has it, and returns the set
// there.
func (x *Images) fetch(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.PackageSet,
	dir, cache string,
) (got packages.Fetched, from accel.PackageSet, problem *accel.Problem) {
	if err := x.h.MkdirAll(dir, 0o755); err != nil {
		return got, s, accel.ProblemOf(err, "cannot make %q", dir)
	}
	client := packages.New(x.h, packages.Options{Trust: x.o.Trust, Progress: x.o.Tell.Of(def.Kind)})
	var without []string
	for _, from = range s.Each() {
		r := packages.Of(from, facts.Kernel.Arch)
		r.Dir, r.Cache, r.Seen = dir, cache, x.dated(from)
		if got, problem = client.Fetch(ctx, r); problem == nil || problem.Reason != accel.ArtifactNotFound {
			return got, from, problem
		}
		without = append(without, problem.Message)
	}
	problem.Message = strings.Join(without, "; ")
	return got, from, problem
}

// keep moves what was unpacked in from to its place.
func (x *Images) keep(from, dir string, u unpacked) *accel.Problem {
	text, err := json.MarshalIndent(u, "", "  ")
	if err == nil {
		err = x.h.WriteFile(recordFile(from), append(text, '\n'), 0o600)
	}
	if err == nil {
		err = errors.Join(x.h.MkdirAll(x.needsDir(), 0o755), x.h.RemoveAll(dir))
	}
	if err == nil {
		err = errors.Join(x.h.Chmod(from, 0o755), x.h.Rename(from, dir))
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot keep the packages that builds need")
	}
	return nil
}

// records are those of everything that was unpacked, by directory.
func (x *Images) records() map[string]unpacked {
	out := map[string]unpacked{}
	for _, file := range x.h.Glob(x.needsDir(), "*/"+path.Base(recordFile(""))) {
		var u unpacked
		if text, err := x.h.ReadFile(file); err == nil && json.Unmarshal(text, &u) == nil {
			out[path.Dir(file)] = u
		}
	}
	return out
}

// dated is when the repository of a set was signed that was used last; zero if none was.
func (x *Images) dated(s accel.PackageSet) (last time.Time) {
	for _, u := range x.records() {
		if s.URL != "" && u.Repository == s.Repository() && u.Dated.After(last) {
			last = u.Dated
		}
	}
	return last
}

// forget removes what was unpacked for kernels that are neither installed nor the one of facts. What is younger than a
// day stays: a pipeline may build for several kernels at once.
func (x *Images) forget(facts accel.Facts, now time.Time) {
	const young = 24 * time.Hour
	for dir, u := range x.records() {
		if u.Kernel == facts.Kernel.Release || x.h.Exists(path.Join("/lib/modules", u.Kernel)) ||
			now.Sub(x.h.Born(dir)) < young {
			continue
		}
		if err := errors.Join(x.h.Remove(recordFile(dir)), x.h.RemoveAll(dir)); err != nil {
			x.o.Log.Warn("cannot remove packages that builds needed", "kernel", u.Kernel, "error", err)
		}
	}
}
