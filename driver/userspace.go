package driver

import (
	"context"
	"path"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/source"
)

// halves keeps the user space of a driver with its modules.
type halves struct{ *Driver }

// ensure lets the user space for the live modules serve. It gets it from its sources if the store has none.
func (d halves) ensure(ctx context.Context, def *accel.Definition, facts accel.Facts,
	accs []accel.Accelerator, o source.Options, version string,
) (accel.DriverHave, *accel.Problem) {
	if problem := d.sources.UserSpace(ctx, def, facts, version, o); problem != nil {
		have, _ := d.Probe(def, facts, accs)
		return have, problem
	}
	if problem := d.serve(ctx, def, version); problem != nil {
		have, _ := d.Probe(def, facts, accs)
		return have, problem
	}
	return d.Probe(def, facts, accs)
}

// serve lets the user space of a version serve, with its companions, under the driver lock.
func (d halves) serve(ctx context.Context, def *accel.Definition, version string) *accel.Problem {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return problem
	}
	defer release()
	if problem := d.spaces.Serve(def, version); problem != nil {
		return problem
	}
	return d.attend(ctx, def, version)
}

// attend starts the companions of a version, under the driver lock.
func (d halves) attend(ctx context.Context, def *accel.Definition, version string) *accel.Problem {
	root := ""
	if def.Driver.UserSpace != nil && len(def.Driver.Companions) > 0 {
		m, problem := d.spaces.Find(def, version)
		if problem != nil {
			return problem
		}
		root = d.spaces.Root(m.Key)
	}
	return d.companions.Start(ctx, def, root, version)
}

// libraries is the directory with the libraries that belong to the live modules, as a path on the host; empty if the
// kind has those of the host. It need not serve yet: an upgrade proves first.
func (d halves) libraries(def *accel.Definition) string {
	if def.Driver.UserSpace == nil {
		return ""
	}
	m, problem := d.spaces.Find(def, sight{modules: d.loader.liveOf(def)}.version())
	if problem != nil {
		return "" // the probe says so
	}
	return path.Join(d.spaces.Root(m.Key), accel.UserSpaceLibraries)
}

// resume puts the user space of a version back into service, with its companions, under the driver lock. If there is
// none, or they do not run, the next probe says so and why.
func (d halves) resume(ctx context.Context, def *accel.Definition, version string) {
	problem := d.spaces.Serve(def, version)
	if problem == nil {
		problem = d.attend(ctx, def, version)
	}
	if problem != nil {
		d.log.Warn("the user space or its daemons do not serve", "kind", def.Kind, "reason", problem.Reason, "message", problem.Message)
	}
}

// collect removes what nothing needs any more from the store: drivers and user spaces.
func (d halves) collect(facts accel.Facts) {
	underway := d.journals.underway()
	d.store.Collect(facts, underway)
	versions := map[string]bool{}
	for _, g := range underway {
		if g != nil {
			versions[g.Version] = true
		}
	}
	entries, err := d.store.List()
	if err != nil {
		return // nothing is known to be superfluous
	}
	for _, e := range entries {
		versions[e.ModulesVersion()] = true
	}
	d.spaces.Collect(func(_, version string) bool { return versions[version] })
}
