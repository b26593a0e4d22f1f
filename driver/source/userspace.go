package source

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/packages"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/driver/userspace"
	"github.com/acceld/acceld/host"
)

// space is one type of source of a user space.
type space struct {
	typ   accel.SourceType
	title string // for people; the source's path or image follows
	slow  bool   // it needs a network
	ask   func(*search, context.Context, accel.Source, string) (userspace.Manifest, *accel.Problem)
}

// spaces are the types of sources of a user space. They are asked in the order in which the definition has them.
func spaces() []space {
	return []space{
		{accel.SourceOCI, "oci", true, (*search).spaceOfImage},
		{accel.SourceBundle, "bundle", false, (*search).spaceOfBundle},
		{accel.SourceRoot, "root", false, (*search).spaceOfRoot},
		{accel.SourcePackages, "packages", true, (*search).spaceOfPackages},
		{accel.SourceArchive, "archive", false, (*search).spaceOfArchive},
		{accel.SourceDistribution, "distribution", false, (*search).spaceOfDistribution},
	}
}

// UserSpace makes sure that the store has the user space of def for a version of its modules: what is there, unless
// def asks for something else by now, or what the first source has that has one. If no source has any, an entry that
// was made for another wish is good enough, unless o is Exact.
func (x *Sources) UserSpace(ctx context.Context, def *accel.Definition, facts accel.Facts, version string,
	o Options,
) *accel.Problem {
	if def.Driver.UserSpace == nil {
		return nil
	}
	q := &search{x, def, facts, o}
	m, problem := x.spaces.Find(def, version)
	if problem == nil && m.Wish == userspace.Wish(def) && x.spaces.Check(m) == nil {
		return nil
	}
	if version == "" {
		return problem
	}
	release, locked := x.store.LockKey(ctx, def.Kind, "userspace-"+def.Kind)
	if locked != nil {
		return locked
	}
	defer release()
	asked := q.askSpaces(ctx, version)
	if asked != nil && problem == nil && !o.Exact && x.spaces.Check(m) == nil {
		x.log.Warn("the previous user space stays in service", "kind", def.Kind, "version", version, "reason", asked.Reason, "message",
			asked.Message)
		return nil
	}
	return asked
}

// askSpaces asks the sources of the user space, in order.
func (q *search) askSpaces(ctx context.Context, version string) *accel.Problem {
	last := accel.Problemf(accel.UserSpaceMissing, "no source has a user space of %q in version %q", q.def.Kind, version)
	var tried []string
	for _, s := range q.spaceSources() {
		i := slices.IndexFunc(spaces(), func(r space) bool { return r.typ == s.Type })
		if i < 0 {
			return accel.Problemf(accel.DefinitionInvalid,
				"driver.userSpace of %q has a source of type %q, which provides no user space", q.def.Kind, s.Type)
		}
		row := spaces()[i]
		s, problem := q.filledFor(s, version)
		if problem == nil && row.slow && q.NoBuild {
			problem = accel.Problemf(accel.UserSpaceMissing, "nothing is fetched at this time")
		}
		if problem == nil {
			if _, problem = row.ask(q, ctx, s, version); problem == nil {
				return nil
			}
		}
		name := "user space, " + strings.TrimSpace(row.title+" "+s.Image+s.URL+s.Path+" "+s.Suite)
		a := failed(problem)
		if problem.Reason == accel.UserSpaceMissing {
			a.Verdict = Unavailable
		}
		tried = append(tried, Sentence(name, a.Verdict, problem))
		if last = problem; a.Verdict != Unavailable {
			break // what is wrong must not become something else
		}
	}
	last.Tried = append(tried, last.Tried...)
	return last
}

// spaceSources are the sources of the user space, in order, each repository of packages by itself.
func (q *search) spaceSources() (out []accel.Source) {
	for _, s := range q.def.UserSpaceSources() {
		for _, set := range s.PackageSet().Each() {
			s.URL, s.Mirrors, s.Suite, s.Also = set.URL, set.Mirrors, set.Suite, nil
			out = append(out, s)
		}
	}
	return out
}

// filledFor is filled for a user space of the version.
func (q *search) filledFor(s accel.Source, version string) (accel.Source, *accel.Problem) {
	own := *q.def
	own.Driver.Version = version
	set, problem := template.Packages(&own, q.facts, "driver.userSpace.sources", s.PackageSet())
	if problem != nil {
		return s, problem
	}
	s.Suite, s.Packages, s.OptionalPackages = set.Suite, set.Packages, set.OptionalPackages
	return (&search{q.Sources, &own, q.facts, q.Options}).filled(s)
}

// root says what of an image belongs to def's driver.
func (q *search) root(alone bool) *artifact.Root {
	r := &artifact.Root{Alone: alone, File: func(string, string) bool { return false }}
	if q.def.Driver.UserSpace != nil {
		r.File = userspace.Wanted(q.def)
	}
	for _, m := range q.def.Driver.Modules {
		r.Modules = append(r.Modules, kmod.Normal(m.Name))
		if files, problem := template.Firmware(q.def, q.facts, m); problem == nil {
			r.Firmware = append(r.Firmware, files...)
		}
	}
	return r
}

// spaceOfImage takes the user space from an image that is laid out like a root, or from an artifact that has one.
func (q *search) spaceOfImage(ctx context.Context, s accel.Source, version string) (userspace.Manifest,
	*accel.Problem,
) {
	return q.spaceOf(ctx, s, version, (*artifact.Client).Pull)
}

// spaceOfBundle takes the user space from what a bundle has.
func (q *search) spaceOfBundle(ctx context.Context, s accel.Source, version string) (userspace.Manifest,
	*accel.Problem,
) {
	return q.spaceOf(ctx, s, version, (*artifact.Client).PullBundle)
}

func (q *search) spaceOf(ctx context.Context, s accel.Source, version string, pull pulling) (userspace.Manifest,
	*accel.Problem,
) {
	w, done, problem := q.store.Workspace("")
	if problem != nil {
		return userspace.Manifest{}, problem
	}
	defer done()
	want := q.wanted()
	want.Version, want.Root = version, q.root(true)
	pulled, problem := pull(q.artifacts(q.def.Kind, nil), ctx, s, want, w.Work)
	if problem != nil {
		return userspace.Manifest{}, problem
	}
	return q.takePulled(ctx, w, pulled, s.Type, version)
}

// takePulled stores the user space that a pull has put into a workspace.
func (q *search) takePulled(ctx context.Context, w *store.Workspace, pulled artifact.Pulled, from accel.SourceType,
	version string,
) (userspace.Manifest, *accel.Problem) {
	own := pulled.Config.Profile != "" // from a store: licences are kept where they were
	return q.take(ctx, path.Join(w.Work, "root"), userspace.Tree{Deep: true, Licences: own}, version, userspace.Source{
		Type: from, Origin: pulled.Reference, SignedBy: pulled.Signers,
	})
}

// spaceOfRoot takes the user space from a directory of the host that is laid out like a root, such as "/" itself.
func (q *search) spaceOfRoot(ctx context.Context, s accel.Source, version string) (userspace.Manifest,
	*accel.Problem,
) {
	if !q.h.Exists(s.Path) {
		return userspace.Manifest{}, accel.Problemf(accel.UserSpaceMissing, "%q does not exist", s.Path)
	}
	return q.take(ctx, s.Path, userspace.Tree{}, version, userspace.Source{Type: accel.SourceRoot, Origin: s.Path})
}

// spaceOfPackages takes the user space out of packages. Nothing of them is installed, and none of their scripts runs.
func (q *search) spaceOfPackages(ctx context.Context, s accel.Source, version string) (userspace.Manifest,
	*accel.Problem,
) {
	w, done, problem := q.store.Workspace("")
	if problem != nil {
		return userspace.Manifest{}, problem
	}
	defer done()
	set := s.PackageSet()
	r := packages.Of(set, q.facts.Kernel.Arch)
	r.Dir, r.Cache, r.Seen = w.Work, path.Join(w.Dir, "tmp"), q.spaces.Seen(set.Repository())
	fetched, problem := packages.New(q.h, packages.Options{
		Trust: q.o.Trust, Progress: q.o.Tell.Of(q.def.Kind),
	}).Fetch(ctx, r)
	if problem != nil {
		return userspace.Manifest{}, problem
	}
	from := userspace.Source{
		Type: accel.SourcePackages, Repository: set.Repository(), Dated: fetched.Date,
		Origin: strings.TrimSpace(s.URL + s.Path + " " + s.Suite),
	}
	for _, p := range fetched.Packages {
		from.Origin += fmt.Sprintf(", %s %s", p.Name, p.Version)
		from.Packages = append(from.Packages, userspace.Package{
			Name: p.Name, Version: p.Version, SHA256: p.SHA256, Key: p.Key,
		})
	}
	return q.take(ctx, w.Work, userspace.Tree{Deep: true, Licences: true}, version, from)
}

// spaceOfArchive takes the user space out of an archive of a vendor, of which nothing is executed.
func (q *search) spaceOfArchive(ctx context.Context, s accel.Source, version string) (userspace.Manifest,
	*accel.Problem,
) {
	w, done, problem := q.store.Workspace("")
	if problem != nil {
		return userspace.Manifest{}, problem
	}
	defer done()
	if _, problem := unpack.Archive(ctx, q.h, s.Path, strings.TrimPrefix(s.Digest, "sha256:"), w.Work,
		unpack.Usual()); problem != nil {
		return userspace.Manifest{}, problem
	}
	return q.take(ctx, w.Work, userspace.Tree{Deep: true, Licences: true}, version, userspace.Source{
		Type: accel.SourceArchive, Origin: s.Path + "@" + s.Digest,
	})
}

// spaceOfDistribution is askDistribution for a user space.
func (q *search) spaceOfDistribution(context.Context, accel.Source, string) (userspace.Manifest, *accel.Problem) {
	return userspace.Manifest{}, accel.Problemf(accel.UserSpaceMissing, "%s", q.def.NoDistribution(q.facts.OS.Major()))
}

// take stores the user space of a directory, a path on the host.
func (q *search) take(ctx context.Context, dir string, t userspace.Tree, version string, from userspace.Source) (
	userspace.Manifest, *accel.Problem,
) {
	real, err := q.h.Path(dir)
	if err == nil {
		t.Host, err = host.New(real)
	}
	if err != nil {
		return userspace.Manifest{}, accel.ProblemOf(err, "cannot read %q", dir)
	}
	t.Arch = q.facts.Kernel.Arch
	return q.spaces.Take(ctx, q.def, version, t, from)
}

// arrived stores the user space that came with the modules, if any did: the image is then pulled once. What another
// host's store exported is taken even if the definition names other sources for it, because a host without a network
// cannot reach those. A problem here is not fatal: the sources of the user space are asked next, and report theirs.
func (j *delivery) arrived(ctx context.Context, pulled artifact.Pulled, from accel.SourceType, version string) {
	u := j.def.Driver.UserSpace
	if u == nil || len(u.Sources) > 0 && len(pulled.Config.UserSpace) == 0 || !j.h.Exists(path.Join(j.Work, "root")) {
		return
	}
	if _, problem := j.takePulled(ctx, j.Workspace, pulled, from, version); problem != nil {
		j.log.Warn("the user space of an image is not used", "kind", j.def.Kind, "from", pulled.Reference, "reason",
			problem.Reason, "message", problem.Message)
	}
}
