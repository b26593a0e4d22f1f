package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// wanted says what an artifact must be for.
func wanted(def *accel.Definition, facts accel.Facts) artifact.Wanted {
	k := facts.Kernel
	return artifact.Wanted{
		Kind: def.Kind, Version: def.Driver.Version, Arch: k.Arch, KernelRelease: k.Release,
		KernelVersion: k.Version, KernelBuildID: k.BuildID,
	}
}

// artifacts returns the client for registries and bundles. It reports progress for a kind. Known may be nil.
func (x *Sources) artifacts(kind string, known func(artifact.Pulled) bool) *artifact.Client {
	o := x.o.Artifact
	o.Known = known
	o.Log, o.Progress = x.log, func(p accel.Progress) {
		p.Kind = kind
		x.o.Tell(p)
	}
	return artifact.New(x.h, o)
}

// fetch gets an artifact into a private directory, judges it like a build, moves it into the store and uses it from
// there.
func (x *Sources) fetch(ctx context.Context, def *accel.Definition, facts accel.Facts, from accel.SourceType, o Options,
	pull func(*artifact.Client, string) (artifact.Pulled, *accel.Problem),
) Answer {
	w, done, problem := x.store.Workspace("")
	if problem != nil {
		return Answer{Verdict: Failed, Problem: problem}
	}
	defer done()
	j := &delivery{Workspace: w, def: def, facts: facts, index: kmod.NewIndex(x.h, facts.Kernel.Release)}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", def.Kind, facts.Kernel.Release, store.KernelID(facts.Kernel)))
	release, problem := x.store.LockKey(ctx, def.Kind, "fetch-"+hex.EncodeToString(sum[:])[:32])
	if problem != nil {
		return Answer{Verdict: Failed, Problem: problem}
	}
	defer release()
	var known store.Entry
	if !o.Fresh {
		if a := x.askStore(def, facts, o); a.Verdict == Satisfied {
			return a // another process has fetched or built it meanwhile
		}
	} else {
		j.known = func(p artifact.Pulled) bool {
			known = x.known(j, p)
			return known.Key != ""
		}
	}
	pulled, problem := pull(x.artifacts(def.Kind, j.known), j.Work)
	if problem != nil {
		return Answer{Verdict: verdictOf(problem), Problem: problem}
	}
	if known.Key != "" {
		return x.useFetched(def, facts, known, from, o)
	}
	e, problem := x.adopt(j, pulled)
	if problem != nil {
		return Answer{Verdict: verdictOf(problem), Problem: problem}
	}
	a := x.use(def, facts, store.Entry{Manifest: e.Manifest, Path: j.Entry})
	if a.Verdict != Satisfied {
		if a.Problem.Reason == accel.NoDriverSource { // it lacks a module of the definition
			a.Verdict, a.Problem.Reason = Refused, accel.ArtifactInvalid
		}
		a.Problem.Message = pulled.Reference + ": " + a.Problem.Message
		return a
	}
	a.Plan.Close()
	if err := x.store.Publish(w, e.Key); err != nil {
		return Answer{Verdict: Failed, Problem: accel.ProblemOf(err, "cannot put %q into the store", pulled.Reference)}
	}
	x.log.Info("driver fetched", "kind", def.Kind, "from", pulled.Reference, "key", e.Key)
	return x.useFetched(def, facts, e, from, o)
}

// useFetched uses an entry of the store as the answer of another source.
func (x *Sources) useFetched(def *accel.Definition, facts accel.Facts, e store.Entry, from accel.SourceType,
	o Options,
) Answer {
	if o.Retry {
		if p := x.attempts.Forgive(e.Key); p != nil {
			return Answer{Failed, nil, p}
		}
	}
	if p := x.attempts.Quarantined(e.Key); p != nil {
		return Answer{Refused, nil, p}
	}
	a := x.use(def, facts, e)
	if a.Verdict == Satisfied {
		a.Plan.Source = from
	}
	return a
}

// verdictOf says whether another source may be asked after a problem with an artifact. If the artifact is missing,
// unreachable or denied, another source may have it. If it is wrong, it is refused.
func verdictOf(p *accel.Problem) Verdict {
	switch p.Reason {
	case accel.ArtifactNotFound, accel.RegistryUnreachable, accel.RegistryDenied, accel.KernelMismatch,
		accel.ArchMismatch:
		return Unavailable
	case accel.NoSpace, accel.ReadOnly, accel.PermissionDenied, accel.InternalError:
		return Failed
	}
	return Refused
}

// delivery is an artifact that is being turned into an entry of the store.
type delivery struct {
	*store.Workspace
	def   *accel.Definition
	facts accel.Facts
	index *kmod.Index
	// known reports whether the store has an artifact already; nil if nobody needs to know.
	known func(artifact.Pulled) bool
}

// known returns the entry of the store for an artifact; the zero entry if there is none.
func (x *Sources) known(j *delivery, p artifact.Pulled) store.Entry {
	id, problem := identityOf(j, p)
	if problem != nil {
		return store.Entry{} // adopt reports it
	}
	entries, err := x.store.Find(j.def, j.facts.Kernel)
	if err != nil {
		return store.Entry{}
	}
	for _, e := range entries {
		if e.Key == id.Key() {
			return e
		}
	}
	return store.Entry{}
}

// adopt creates the entry for an artifact that was unpacked into the work directory.
func (x *Sources) adopt(j *delivery, pulled artifact.Pulled) (store.Entry, *accel.Problem) {
	id, problem := identityOf(j, pulled)
	if problem != nil {
		return store.Entry{}, problem
	}
	m := store.Manifest{
		Schema: store.Schema, Key: id.Key(), Identity: id, Built: pulled.Config.Created,
		Origin: pulled.Reference,
	}
	if m.Built.IsZero() {
		m.Built = x.o.Now().UTC()
	}
	for _, want := range j.def.Driver.Modules {
		s, problem := x.adoptModule(j, want)
		switch {
		case problem == nil:
			m.Modules = append(m.Modules, s)
		case !want.Optional:
			problem.Message = pulled.Reference + ": " + problem.Message
			return store.Entry{}, problem
		}
	}
	if m.Firmware, problem = x.adoptFirmware(j, pulled.Config); problem != nil {
		return store.Entry{}, problem
	}
	if len(m.Modules) == 0 {
		return store.Entry{}, accel.Problemf(accel.ArtifactInvalid, "%s: it has no module of %q", pulled.Reference,
			j.def.Kind)
	}
	if err := x.store.Describe(j.Workspace, m); err != nil {
		return store.Entry{}, accel.ProblemOf(err, "cannot put %q into the store", pulled.Reference)
	}
	return store.Entry{Manifest: m, Path: x.store.EntryDir(m.Key)}, nil
}

// identityOf identifies a fetched driver. If acceld built it, it has the same identity as in its builder's store, so
// that fetching and building result in the same entry.
func identityOf(j *delivery, pulled artifact.Pulled) (store.Identity, *accel.Problem) {
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
func (x *Sources) adoptModule(j *delivery, want accel.Module) (store.Module, *accel.Problem) {
	found := ""
	entries, err := x.h.ReadDir(j.Work)
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
	m, problem := kmod.Open(x.h, found)
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
	if s.SHA256, problem = x.store.Copy(m.Content, path.Join(j.Entry, s.File)); problem != nil {
		return store.Module{}, problem
	}
	return s, nil
}

// adoptFirmware moves the firmware of an artifact into the entry. The firmware of an image in a foreign layout has no
// digests, and is not listed.
func (x *Sources) adoptFirmware(j *delivery, c artifact.Config) ([]artifact.File, *accel.Problem) {
	from := path.Join(j.Work, "firmware")
	if !x.h.Exists(from) {
		return nil, nil
	}
	if err := x.h.Rename(from, path.Join(j.Entry, "firmware")); err != nil {
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
		out.Config.Modules = append(out.Config.Modules, artifact.Module(m))
		out.Paths[m.File] = path.Join(e.Path, m.File)
	}
	for _, f := range e.Firmware {
		out.Paths["firmware/"+f.Path] = path.Join(e.Path, "firmware", f.Path)
	}
	return out, nil
}

// isHex tells a build-id from a `uname -v` text.
func isHex(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) >= 8
}
