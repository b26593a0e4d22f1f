package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/template"
)

// wanted says what an artifact must be for.
func (q *search) wanted() artifact.Wanted {
	k := q.facts.Kernel
	return artifact.Wanted{
		Kind: q.def.Kind, Version: q.def.Driver.Version, Arch: k.Arch, KernelRelease: k.Release,
		KernelVersion: k.Version, KernelBuildID: k.BuildID,
	}
}

// artifacts returns the client for registries and bundles. It reports progress for a kind. Known may be nil.
func (x *Sources) artifacts(kind string, known func(artifact.Pulled) bool) *artifact.Client {
	o := x.o.Artifact
	o.Known = known
	o.Progress = x.o.Tell.Of(kind)
	return artifact.New(x.h, o)
}

// askOCI pulls the driver from the registries of a source. Nothing goes into the store before everything has been
// judged.
func (q *search) askOCI(ctx context.Context, s accel.Source) Answer {
	return q.fetch(ctx, s, (*artifact.Client).Pull)
}

// askBundle takes the driver from a bundle in a file or a directory.
func (q *search) askBundle(ctx context.Context, s accel.Source) Answer {
	return q.fetch(ctx, s, (*artifact.Client).PullBundle)
}

// filled is s with the templates in its path and its image filled.
func (q *search) filled(s accel.Source) (accel.Source, *accel.Problem) {
	var problem *accel.Problem
	if s.Path, problem = template.Fill(q.def, q.facts, "driver.sources.path", s.Path); problem != nil {
		return s, problem
	}
	s.Image, problem = template.Fill(q.def, q.facts, "driver.sources.image", s.Image)
	return s, problem
}

// pulling is a way to get an artifact into a directory.
type pulling func(*artifact.Client, context.Context, accel.Source, artifact.Wanted, string) (artifact.Pulled,
	*accel.Problem)

// fetch gets an artifact into a private directory, judges it like a build, moves it into the store and uses it from
// there.
func (q *search) fetch(ctx context.Context, s accel.Source, pull pulling) Answer {
	s, problem := q.filled(s)
	if problem != nil {
		return failed(problem)
	}
	j, done, problem := q.delivery()
	if problem != nil {
		return failed(problem)
	}
	defer done()
	k := q.facts.Kernel
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", q.def.Kind, k.Release, store.KernelID(k)))
	release, problem := q.store.LockKey(ctx, q.def.Kind, "fetch-"+hex.EncodeToString(sum[:])[:32])
	if problem != nil {
		return failed(problem)
	}
	defer release()
	var there store.Entry
	var known func(artifact.Pulled) bool
	if q.Fresh {
		known = func(p artifact.Pulled) bool {
			there = j.known(p)
			return there.Key != ""
		}
	} else if a := q.stored(); a.Verdict == Satisfied {
		return a // another process has fetched or built it meanwhile
	}
	want := q.wanted()
	want.Root = q.root(false)
	pulled, problem := pull(q.artifacts(q.def.Kind, known), ctx, s, want, j.Work)
	if problem != nil {
		return failed(problem)
	}
	if there.Key != "" {
		return q.useFetched(there, s.Type)
	}
	e, problem := j.adopt(pulled, s.Type)
	if problem != nil {
		return failed(problem)
	}
	a := q.use(store.Entry{Manifest: e.Manifest, Path: j.Entry})
	if a.Verdict != Satisfied {
		if a.Problem.Reason == accel.NoDriverSource { // it lacks a module of the definition
			a.Problem.Reason = accel.ArtifactInvalid
		}
		a.Verdict = Refused
		a.Problem.Message = pulled.Reference + ": " + a.Problem.Message
		return a
	}
	a.Plan.Close()
	j.arrived(ctx, pulled, s.Type, a.Plan.Version())
	if problem := j.publish(e, pulled); problem != nil {
		return failed(problem)
	}
	q.log.Info("driver fetched", "kind", q.def.Kind, "from", pulled.Reference, "key", e.Key)
	return q.useFetched(e, s.Type)
}

// useFetched uses an entry of the store as the answer of another source.
func (q *search) useFetched(e store.Entry, from accel.SourceType) Answer {
	if p := q.quarantined(e.Key); p != nil {
		return failed(p)
	}
	a := q.use(e)
	if a.Verdict == Satisfied {
		a.Plan.Source = from
	}
	return a
}

// failed is the answer for a problem with an artifact or with this host. If the artifact is missing, unreachable or
// denied, another source may have it. If it is wrong, it is refused.
func failed(p *accel.Problem) Answer {
	switch p.Reason {
	case accel.ArtifactNotFound, accel.RegistryUnreachable, accel.RegistryDenied, accel.KernelMismatch,
		accel.ArchMismatch:
		return Answer{Verdict: Unavailable, Problem: p}
	case accel.NoSpace, accel.ReadOnly, accel.PermissionDenied, accel.InternalError, accel.BuildTimeout:
		return Answer{Verdict: Failed, Problem: p}
	}
	return Answer{Verdict: Refused, Problem: p}
}

// delivery is an artifact that is being turned into an entry of the store.
type delivery struct {
	*search
	*store.Workspace
	index *kmod.Index
}

// delivery returns a new one. Done removes its files.
func (q *search) delivery() (j *delivery, done func(), problem *accel.Problem) {
	w, done, problem := q.store.Workspace("")
	return &delivery{q, w, kmod.NewIndex(q.h, q.facts.Kernel.Release)}, done, problem
}

// publish moves an adopted artifact into the store.
func (j *delivery) publish(e store.Entry, pulled artifact.Pulled) *accel.Problem {
	if err := j.store.Publish(j.Workspace, j.def, e.Key); err != nil {
		return accel.ProblemOf(err, "cannot put %q into the store", pulled.Reference)
	}
	return nil
}

// known returns the entry of the store for an artifact; the zero entry if there is none.
func (j *delivery) known(p artifact.Pulled) store.Entry {
	id, problem := j.identity(p)
	if problem != nil {
		return store.Entry{} // adopt reports it
	}
	entries, err := j.store.Find(j.def, j.facts.Kernel)
	i := slices.IndexFunc(entries, func(e store.Entry) bool {
		return e.Key == id.Key() && j.store.Trusted(j.def, e.Manifest) == nil
	})
	if err != nil || i < 0 {
		return store.Entry{}
	}
	return entries[i]
}

// adopt creates the entry for an artifact that was unpacked into the work directory.
func (j *delivery) adopt(pulled artifact.Pulled, from accel.SourceType) (store.Entry, *accel.Problem) {
	id, problem := j.identity(pulled)
	if problem != nil {
		return store.Entry{}, problem
	}
	m := store.Manifest{
		Schema: store.Schema, Key: id.Key(), Identity: id, Built: pulled.Config.Created,
		Source: from, Origin: pulled.Reference, SignedBy: pulled.Signers,
	}
	if m.Built.IsZero() {
		m.Built = time.Now().UTC()
	}
	for _, want := range j.def.Driver.Modules {
		s, problem := j.adoptModule(want)
		switch {
		case problem == nil:
			m.Modules = append(m.Modules, s)
		case !want.Optional:
			problem.Message = pulled.Reference + ": " + problem.Message
			return store.Entry{}, problem
		}
	}
	if m.Firmware, problem = j.adoptFirmware(pulled.Config); problem != nil {
		return store.Entry{}, problem
	}
	if len(m.Modules) == 0 {
		return store.Entry{}, accel.Problemf(accel.ArtifactInvalid, "%s: it has no module of %q", pulled.Reference,
			j.def.Kind)
	}
	if err := j.store.Describe(j.Workspace, m); err != nil {
		return store.Entry{}, accel.ProblemOf(err, "cannot put %q into the store", pulled.Reference)
	}
	return store.Entry{Manifest: m, Path: j.store.EntryDir(m.Key)}, nil
}

// identity identifies a fetched driver. If acceld built it, it has the same identity as in its builder's store, so
// that fetching and building result in the same entry.
func (j *delivery) identity(pulled artifact.Pulled) (store.Identity, *accel.Problem) {
	k := j.facts.Kernel
	id := store.Identity{Kind: j.def.Kind, Version: j.def.Driver.Version, SourceDigest: "oci:" + pulled.Digest}
	if text := pulled.Config.Identity; len(text) > 0 {
		id = store.Identity{}
		if err := json.Unmarshal(text, &id); err != nil || id.SourceDigest == "" {
			return id, accel.Problemf(accel.ArtifactInvalid, "%s: its identity cannot be read", pulled.Reference)
		}
	}
	id.Kind, id.Arch, id.KernelRelease, id.KernelID = j.def.Kind, k.Arch, k.Release, store.KernelID(k)
	id.ModuleNames = store.ModuleNames(j.def)
	return id, nil
}

// adoptModule judges one module of an artifact and copies it, uncompressed, into the entry.
func (j *delivery) adoptModule(want accel.Module) (store.Module, *accel.Problem) {
	found := ""
	entries, err := j.h.ReadDir(j.Work)
	if err != nil {
		return store.Module{}, accel.ProblemOf(err, "cannot read an artifact")
	}
	for _, e := range entries {
		if base, ok := kmod.NameOf(e.Name()); ok && base == kmod.Normal(want.Name) {
			found = path.Join(j.Work, e.Name())
		}
	}
	if found == "" {
		return store.Module{}, accel.Problemf(accel.ArtifactInvalid, "it has no module %q", want.Name)
	}
	m, problem := kmod.Open(j.h, found)
	if problem != nil {
		return store.Module{}, problem
	}
	defer m.Close()
	m.Path = path.Base(found)
	if p := kmod.CheckVermagic(m, j.facts.Kernel, j.index.Flags()); p != nil {
		return store.Module{}, accel.Problemf(accel.ArtifactInvalid, "it says that it is for this kernel, but %s",
			p.Message)
	}
	if v := j.def.Driver.Version; v != "" && m.Version != "" && m.Version != v {
		return store.Module{}, accel.Problemf(accel.ArtifactInvalid, "its module %q is of version %q, wanted is %q",
			want.Name, m.Version, v)
	}
	base, _, _ := strings.Cut(path.Base(found), ".ko")
	s := store.Module{
		Name: kmod.Normal(want.Name), File: base + ".ko", BuildID: m.BuildID, SrcVersion: m.SrcVersion,
		Vermagic: m.Vermagic, Depends: m.Depends, Version: m.Version,
	}
	if s.SHA256, problem = j.store.Copy(m.Content, path.Join(j.Entry, s.File)); problem != nil {
		return store.Module{}, problem
	}
	return s, nil
}

// adoptFirmware moves the firmware of an artifact into the entry. The firmware of an image in a foreign layout has no
// digests, and is not listed.
func (j *delivery) adoptFirmware(c artifact.Config) ([]artifact.File, *accel.Problem) {
	from := path.Join(j.Work, "firmware")
	if !j.h.Exists(from) {
		return nil, nil
	}
	if err := j.h.Rename(from, path.Join(j.Entry, "firmware")); err != nil {
		return nil, accel.ProblemOf(err, "cannot put firmware into the store")
	}
	return c.Firmware, nil
}

// contentOf describes an entry of the store as an artifact.
func contentOf(e store.Entry, facts accel.Facts) (artifact.Content, *accel.Problem) {
	identity, err := json.Marshal(e.Identity)
	if err != nil {
		return artifact.Content{}, accel.ProblemOf(err, "cannot describe %q", e.Key)
	}
	c := artifact.Config{
		Schema: artifact.Schema, Profile: e.Kind, DriverVersion: cmp.Or(e.Identity.Version,
			e.ModulesVersion()), Arch: e.Arch,
		KernelRelease: e.KernelRelease, Created: e.Built, BuiltBy: "acceld", Identity: identity, Firmware: e.Firmware,
	}
	switch k := facts.Kernel; {
	case e.KernelID == store.KernelID(k) && e.KernelRelease == k.Release:
		c.KernelBuildID, c.KernelVersion = k.BuildID, k.Version
	case isHex(e.KernelID):
		c.KernelBuildID = e.KernelID
	default:
		c.KernelVersion = e.KernelID
	}
	out := artifact.Content{Config: c, Paths: map[string]string{}}
	for _, m := range e.Modules {
		out.Config.Modules = append(out.Config.Modules, m)
		out.Paths[m.File] = path.Join(e.Path, m.File)
	}
	for _, f := range e.Firmware {
		out.Paths["firmware/"+f.Path] = path.Join(e.Path, "firmware", f.Path)
	}
	return out, nil
}

// wholeContentOf describes an entry of the store with the user space of its modules, if the store has one.
func (x *Sources) wholeContentOf(e store.Entry, facts accel.Facts) (artifact.Content, *accel.Problem) {
	c, problem := contentOf(e, facts)
	if problem != nil {
		return c, problem
	}
	m, there := x.spaces.Of(e.Kind, e.ModulesVersion())
	if !there {
		return c, nil
	}
	if problem := x.spaces.Check(m); problem != nil {
		return c, problem
	}
	for _, f := range m.Files {
		c.Config.UserSpace = append(c.Config.UserSpace, artifact.RootFile{Path: f.Path, SHA256: f.SHA256, Link: f.Link})
		if f.Link == "" {
			c.Paths["root/"+f.Path] = path.Join(x.spaces.Root(m.Key), f.Path)
		}
	}
	return c, nil
}

// isHex tells a build-id from a `uname -v` text.
func isHex(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) >= 8
}
