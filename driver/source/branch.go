package source

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/packages"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/template"
)

// Resolve returns def with a version, if it has a branch instead: the version that was chosen before, else one of the
// branch that is loaded or in the store, else the newest that a source has. It records the choice.
func (x *Sources) Resolve(ctx context.Context, def *accel.Definition, facts accel.Facts) (*accel.Definition,
	*accel.Problem,
) {
	def, problem := store.Branched(x.h, x.store.StateDir(), def)
	if problem != nil || def.Driver.Branch == "" || def.Driver.Version != "" {
		return def, problem
	}
	b := x.here(def, facts)
	if b.Version == "" {
		if b, problem = x.Newest(ctx, def, facts); problem != nil {
			return def, problem
		}
	}
	x.log.Info("version of a branch chosen", "kind", def.Kind, "branch", b.Branch, "version", b.Version, "from", b.From)
	if problem := b.Choose(x.h, x.store.StateDir(), def.Kind); problem != nil {
		x.log.Warn("the version of a branch is chosen again next time", "kind", def.Kind, "error", problem)
	}
	return b.Apply(def), nil
}

// here is the version of a branch that the host has; without a version if it has none.
func (x *Sources) here(def *accel.Definition, facts accel.Facts) store.Branch {
	b := branchOf(def)
	for _, m := range def.Driver.Modules {
		if live, ok := kmod.Live(x.h, m.Name); ok && accel.InBranch(live.Version, b.Branch) {
			b.Version, b.From = live.Version, "loaded"
			return b
		}
	}
	entries, err := x.store.List()
	if err != nil {
		x.log.Warn("cannot look for a version of a branch in the store", "kind", def.Kind, "error", err)
	}
	for _, e := range entries {
		v := e.ModulesVersion()
		if e.Problem == "" && e.Kind == def.Kind && e.KernelRelease == facts.Kernel.Release &&
			accel.InBranch(v, b.Branch) && accel.Natural(v, b.Version) > 0 {
			b.Version, b.From = v, "store"
		}
	}
	return b
}

// branchOf is the branch of a definition, of which no version is known yet.
func branchOf(def *accel.Definition) store.Branch {
	return store.Branch{Branch: def.Driver.Branch, Time: time.Now().UTC().Round(0)}
}

// Newest finds the newest version in the branch of def that a source of its driver has, and for which there is a user
// space, if the kind has one. What is prebuilt comes before what must be built, whichever is newer. It records nothing.
func (x *Sources) Newest(ctx context.Context, def *accel.Definition, facts accel.Facts) (store.Branch,
	*accel.Problem,
) {
	b := branchOf(def)
	q := &versions{&search{x, def, facts, Options{}}}
	nobody := fmt.Sprintf("no source of %q has a version of branch %q", def.Kind, def.Driver.Branch)
	last := &accel.Problem{Reason: accel.NoDriverSource}
	var tried []string
	for _, prebuilt := range []bool{true, false} {
		found := map[string]string{} // the name of the first source that has a version
		for _, p := range q.configured() {
			if p.source.Type.Prebuilt() != prebuilt {
				continue
			}
			name := named(p.row.title, p.source)
			all, problem := q.of(ctx, p.source)
			for _, v := range all {
				if found[v] == "" {
					found[v] = name
				}
			}
			if problem == nil {
				continue
			}
			verdict := failed(problem).Verdict
			if problem.Reason == accel.NoDriverSource {
				verdict = Unavailable
			}
			tried = append(tried, Sentence(name, verdict, problem))
			if verdict != Unavailable {
				return b, &accel.Problem{Reason: problem.Reason, Message: problem.Message, Tried: tried}
			}
			last = telling(last, problem)
		}
		if len(found) == 0 {
			continue
		}
		all, problem := q.withSpace(ctx, descending(slices.Collect(maps.Keys(found))))
		if problem == nil {
			b.Version, b.From = all[0], found[all[0]]
			return b, nil
		}
		tried = append(tried, problem.Message)
		last = telling(last, problem)
	}
	if last.Reason != accel.ArtifactNotFound && last.Message != "" {
		nobody += ": " + last.Message
	}
	return b, &accel.Problem{Reason: last.Reason, Message: nobody, Tried: tried}
}

// versions finds out which versions the sources of a driver have.
type versions struct{ *search }

// descending sorts versions, the newest first.
func descending(all []string) []string {
	slices.SortFunc(all, func(a, b string) int { return accel.Natural(b, a) })
	return slices.Compact(all)
}

// open returns a search for a placeholder version of the branch, and that version. Templates are filled with it, and
// what a source has is compared with the result.
func (q *versions) open() (*search, string) {
	def := *q.def
	def.Driver.Version = q.def.Driver.Branch + ".any-version"
	return &search{q.Sources, &def, q.facts, q.Options}, def.Driver.Version
}

// usable matches the versions that acceld accepts from an index, a registry or a directory: they become part of paths,
// package names and image names, and the value of a label.
var usable = regexp.MustCompile(`^[0-9][0-9A-Za-z]*(\.[0-9A-Za-z]+)*$`)

// of returns the versions of the branch that a source has, newest first. Without a problem there is at least one.
func (q *versions) of(ctx context.Context, s accel.Source) (out []string, problem *accel.Problem) {
	if text := s.Lacks(q.def, q.facts); text != "" {
		return nil, accel.Problemf(accel.NoDriverSource, "%s", text)
	}
	switch s.Type {
	case accel.SourceOCI:
		out, problem = q.tagged(ctx, s)
	case accel.SourceBuild:
		out, problem = q.buildable(ctx, s)
	case accel.SourcePackages:
		out, problem = q.packaged(ctx, s.PackageSet())
	default:
		return nil, q.unlisted()
	}
	out = slices.DeleteFunc(out, func(v string) bool {
		return !usable.MatchString(v) || !accel.InBranch(v, q.def.Driver.Branch)
	})
	if problem == nil && len(out) == 0 {
		problem = accel.Problemf(accel.ArtifactNotFound, "it has no version of branch %q", q.def.Driver.Branch)
	}
	return descending(out), problem
}

// unlisted is the problem of a source that does not say which versions it has.
func (q *versions) unlisted() *accel.Problem {
	return accel.Problemf(accel.NoDriverSource,
		"it does not say which versions it has: {{.DriverVersion}} is not in the tag, a package's version or the last "+
			"part of the path")
}

// withSpace returns those of the versions for which a source has a user space. A source that does not list its versions
// may have each.
func (q *versions) withSpace(ctx context.Context, all []string) ([]string, *accel.Problem) {
	u := q.def.Driver.UserSpace
	if u == nil || len(u.Sources) == 0 { // it comes with the modules
		return all, nil
	}
	var problem *accel.Problem
	var have []string
	for _, s := range u.Sources {
		more, p := q.of(ctx, s)
		if p != nil && p.Reason == accel.NoDriverSource {
			return all, nil
		}
		if have = append(have, more...); p != nil {
			problem = p
		}
	}
	both := slices.DeleteFunc(slices.Clone(all), func(v string) bool { return !slices.Contains(have, v) })
	switch {
	case len(both) > 0:
		return both, nil
	case problem != nil:
		return nil, accel.Problemf(problem.Reason, "user space: %s", problem.Message)
	}
	return nil, accel.Problemf(accel.ArtifactNotFound, "no source of the user space has one of the versions %s",
		strings.Join(all, ", "))
}

// tagged returns the versions in the tags of an image's repository.
func (q *versions) tagged(ctx context.Context, s accel.Source) ([]string, *accel.Problem) {
	own, unknown := q.open()
	s, problem := own.filled(s)
	if problem != nil {
		return nil, problem
	}
	repository, forms, problem := artifact.Refs(s, own.wanted())
	if problem != nil {
		return nil, problem
	}
	if strings.Contains(repository, unknown) || !strings.Contains(strings.Join(forms, " "), unknown) {
		return nil, q.unlisted()
	}
	tags, problem := q.artifacts(q.def.Kind, nil).Tags(ctx, s)
	return matching(tags, unknown, forms...), problem
}

// matching returns the versions for which one of the forms, with the version in place of the unknown one, is among the
// names.
func matching(names []string, unknown string, forms ...string) (out []string) {
	for _, form := range forms {
		before, after, ok := strings.Cut(form, unknown)
		if !ok {
			continue
		}
		for _, name := range names {
			rest, begins := strings.CutPrefix(name, before)
			if version, ends := strings.CutSuffix(rest, after); begins && ends && usable.MatchString(version) {
				out = append(out, version)
			}
		}
	}
	return out
}

// buildable returns the versions of a source tree: those that the host has, or else those that the repositories of what
// the build needs have.
func (q *versions) buildable(ctx context.Context, s accel.Source) ([]string, *accel.Problem) {
	own, unknown := q.open()
	filled, problem := own.filled(s)
	if problem != nil {
		return nil, problem
	}
	dir, last := path.Split(path.Clean(filled.Path))
	if strings.Contains(last, unknown) && !strings.Contains(dir, unknown) {
		entries, _ := q.h.ReadDir(dir) // what cannot be read is not there
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if found := matching(names, unknown, last); len(found) > 0 {
			return found, nil
		}
	}
	var out []string
	listed := false
	for _, set := range s.Needs {
		if !slices.ContainsFunc(set.Packages, func(p string) bool { return strings.Contains(p, "={{.DriverVersion}}") }) {
			continue
		}
		found, problem := q.packaged(ctx, set)
		if problem != nil {
			return nil, problem
		}
		if listed {
			found = slices.DeleteFunc(found, func(v string) bool { return !slices.Contains(out, v) })
		}
		out, listed = found, true
	}
	if !listed {
		return nil, q.unlisted()
	}
	return out, nil
}

// packaged returns the versions that the packages of a set have in one of its repositories.
func (q *versions) packaged(ctx context.Context, set accel.PackageSet) (out []string, problem *accel.Problem) {
	own, unknown := q.open()
	if set, problem = template.Packages(own.def, q.facts, "packages", set); problem != nil {
		return nil, problem
	}
	var names []string
	for _, p := range set.Packages {
		if name, version, _ := strings.Cut(p, "="); version == unknown && !strings.Contains(name, unknown) {
			names = append(names, name)
		}
	}
	if set.Packages, set.OptionalPackages = names, nil; len(names) == 0 {
		return nil, q.unlisted()
	}
	w, done, problem := q.store.Workspace("")
	if problem != nil {
		return nil, problem
	}
	defer done()
	client := packages.New(q.h, packages.Options{Trust: q.o.Trust, Progress: q.o.Tell.Of(q.def.Kind)})
	for _, one := range set.Each() {
		r := packages.Of(one, q.facts.Kernel.Arch)
		r.Dir, r.Cache = w.Work, path.Join(w.Dir, "tmp")
		found, p := client.Versions(ctx, r)
		if p != nil {
			problem = p
		}
		out = append(out, found...)
	}
	if len(out) > 0 {
		problem = nil
	}
	return out, problem
}
