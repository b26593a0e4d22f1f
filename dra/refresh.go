package dra

import (
	"context"
	"crypto/sha256"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// refresh keeps the CDI specs of prepared claims up to date. A container that restarts in a living pod gets what its
// spec says at that time, and nothing prepares the claim again first. Device nodes and libraries may have changed
// with the driver, the gate's program may have changed with the agent, or somebody may have removed the file.
func (p *Plugin) refresh(ctx context.Context) {
	events, err := p.cfg.Host.Watch(ctx, specDir)
	if err != nil {
		p.cfg.Log.Warn("cannot watch the directory of CDI specs", "path", specDir, "error", err)
	}
	for {
		v := p.list.load()
		if v.reported {
			for _, r := range p.book.all() {
				p.renew(r.UID)
			}
		}
		if !p.awaitDrift(ctx, v, events) {
			return
		}
	}
}

// awaitDrift waits until every spec may be outdated. Meanwhile it renews single specs that somebody changed. It
// returns false when ctx ends.
func (p *Plugin) awaitDrift(ctx context.Context, v *version, events <-chan string) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-v.replaced:
			return true
		case name, open := <-events:
			if !open {
				events = nil
				continue
			}
			if name == specDir {
				return true
			}
			if uid, ours := p.claimOf(name); ours && v.reported && p.drifted(uid) {
				p.renew(uid)
			}
		}
	}
}

// claimOf returns the UID of the claim that a spec of this driver is for.
func (p *Plugin) claimOf(name string) (uid string, ours bool) {
	uid, ours = strings.CutPrefix(path.Base(name), specPrefix+p.driver+"-")
	uid, json := strings.CutSuffix(uid, ".json")
	return uid, ours && json
}

// ClaimSpec reports whether a file in a CDI spec directory is the spec of a prepared claim. These files come and go
// with pods, and this package maintains them.
func ClaimSpec(name string) bool { return strings.HasPrefix(path.Base(name), specPrefix) }

// writeSpec writes the spec of a claim and stores its digest.
func (p *Plugin) writeSpec(uid string, spec []byte) error {
	if spec == nil {
		return nil
	}
	p.written.Store(uid, sha256.Sum256(spec))
	return p.cfg.Ledger.WriteFile(p.specFile(uid), spec, 0o644)
}

// drifted reports whether the spec of a prepared claim differs from what was last written. The watch also reports
// our own writes, and to render all specs again after each of them would cost more than preparing the claims.
func (p *Plugin) drifted(uid string) bool {
	if _, prepared := p.book.get(uid); !prepared {
		return false
	}
	data, err := p.cfg.Host.ReadFile(p.specFile(uid))
	sum, known := p.written.Load(uid)
	return err != nil || !known || sum != sha256.Sum256(data)
}

// ready reports whether every device of a claim is in the use that the claim asks for, and every part is there.
func ready(r record, accs map[string]accel.Accelerator) bool {
	return !slices.ContainsFunc(r.Devices, func(g given) bool {
		a := accs[g.Device]
		return g.Use != "" && !a.ServesClaim(r.UID) || g.Use == "" && a.Profile == "" && a.Divided != nil || unmade(a)
	})
}

// renew writes the spec of a claim if it differs. If a device of the claim cannot be given out now, the spec stays
// as it is: the gate (package runtime/gate) keeps containers off the device.
func (p *Plugin) renew(uid string) {
	defer p.claims.lock(uid)()
	r, prepared := p.book.get(uid)
	if !prepared {
		return
	}
	accs, problem := p.usable(r)
	if problem != nil || !ready(r, accs) {
		return
	}
	if problem := (metadata{p}).write(r, accs); problem != nil {
		p.cfg.Log.Warn("metadata of a claim not renewed", "uid", uid, "reason", problem.Reason, "problem", problem.Message)
		return
	}
	spec, problem := p.spec(r, accs)
	if problem == nil {
		if err := p.writeSpec(uid, spec); err != nil {
			problem = accel.ProblemOf(err, "cannot write the CDI spec of %s", r)
		}
	}
	if problem != nil {
		p.cfg.Log.Warn("CDI spec of a claim not renewed", "uid", uid, "reason", problem.Reason, "problem",
			problem.Message)
	}
}
