package source

import (
	"context"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/trust"
)

// Export writes a bundle with entries of the store to file, a path on the host. Key signs them if it is not nil.
func (x *Sources) Export(facts accel.Facts, entries []store.Entry, file string, key *trust.Key) ([]artifact.Pushed,
	*accel.Problem,
) {
	var contents []artifact.Content
	for _, e := range entries {
		for _, m := range e.Modules {
			if problem := x.store.Check(e, m); problem != nil {
				return nil, problem
			}
		}
		c, problem := x.wholeContentOf(e, facts)
		if problem != nil {
			return nil, problem
		}
		contents = append(contents, c)
	}
	w, done, problem := x.store.Workspace("")
	if problem != nil {
		return nil, problem
	}
	defer done()
	return x.artifacts("bundle", nil).Export(file, contents, w.Work, key)
}

// Import puts the drivers of a bundle, a path on the host, into the store: those of defs, for this kernel and others.
// If there are keys, one of them must have signed each driver. Without keys, those of a kind's sources must have if
// every one of them has some. Import returns the entries, and the kinds that have no
// definition.
func (x *Sources) Import(ctx context.Context, defs map[string]*accel.Definition, facts accel.Facts, file string,
	keys []string,
) (entries []store.Entry, unknown []string, problem *accel.Problem) {
	all, problem := x.artifacts("bundle", nil).ListBundle(ctx, file)
	if problem != nil {
		return nil, nil, problem
	}
	for _, b := range all {
		def, ok := defs[b.Config.Profile]
		if !ok {
			unknown = append(unknown, b.Config.Profile)
			continue
		}
		e, problem := x.importOne(ctx, def, facts, accel.Source{
			Type: accel.SourceBundle, Path: file, Digest: b.Digest, Keys: demanded(def, keys),
		}, b.Config)
		if problem != nil {
			return entries, unknown, problem
		}
		entries = append(entries, e)
	}
	return entries, unknown, nil
}

// demanded returns the keys for an import: those that were named, or else those of def's sources.
func demanded(def *accel.Definition, named []string) []string {
	if len(named) > 0 {
		return named
	}
	var out []string
	for _, s := range def.Driver.Sources {
		if s.Type.Prebuilt() {
			if len(s.Keys) == 0 {
				return nil
			}
			out = append(out, s.Keys...)
		}
	}
	return out
}

// importOne imports one artifact of a bundle, for the kernel that it names. It judges the modules against that
// kernel; each load judges them against the running one.
func (x *Sources) importOne(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source,
	c artifact.Config,
) (store.Entry, *accel.Problem) {
	own := *def
	own.Driver.Version = "" // a bundle may bring the next version
	if k := facts.Kernel; k.Release != c.KernelRelease || k.Arch != c.Arch || c.KernelBuildID != "" &&
		c.KernelBuildID != k.BuildID || c.KernelBuildID == "" && c.KernelVersion != k.Version {
		facts.Kernel = accel.Kernel{
			Release: c.KernelRelease, Arch: c.Arch, BuildID: c.KernelBuildID,
			Version: c.KernelVersion,
		}
	}
	q := &search{x, &own, facts, Options{}}
	j, done, problem := q.delivery()
	if problem != nil {
		return store.Entry{}, problem
	}
	defer done()
	pulled, problem := x.artifacts(def.Kind, nil).PullBundle(ctx, s, q.wanted(), j.Work)
	if problem != nil {
		return store.Entry{}, problem
	}
	e, problem := j.adopt(pulled, s.Type)
	if problem == nil {
		problem = j.store.Trusted(&own, e.Manifest)
	}
	if problem != nil {
		return store.Entry{}, problem
	}
	j.arrived(ctx, pulled, s.Type, e.ModulesVersion())
	return e, j.publish(e, pulled)
}
