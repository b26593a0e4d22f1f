package dra

import (
	"context"
	"path"
	"strings"
)

// refresh keeps the CDI specs of prepared claims as they should be: a container that starts again in a living pod is given
// what its spec says then, and nobody prepares before. Nodes and libraries may have changed with the driver, the gate's
// program with the agent, and somebody may have removed the file.
func (p *Plugin) refresh(ctx context.Context) {
	events, err := p.cfg.Host.Watch(ctx, specDir)
	if err != nil {
		p.cfg.Log.Warn("cannot watch the directory of CDI specs", "path", specDir, "error", err)
	}
	for {
		v := p.list.load()
		if v.told {
			for _, r := range p.book.all() {
				p.renew(r.UID)
			}
		}
		if !p.awaitDrift(ctx, v, events) {
			return
		}
	}
}

// awaitDrift waits until specs may not be right any more; false when ctx ended.
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
			if name == specDir || strings.HasPrefix(path.Base(name), specPrefix+p.driver) {
				return true
			}
		}
	}
}

// renew writes the spec of a claim where it differs. One whose device cannot be given now is left as it is: the gate stands
// before the device.
func (p *Plugin) renew(uid string) {
	defer p.claims.lock(uid)()
	r, prepared := p.book.get(uid)
	if !prepared {
		return
	}
	accs, problem := p.usable(r)
	if problem != nil {
		return
	}
	spec, problem := p.spec(r, accs)
	if problem == nil {
		if err := p.cfg.Ledger.WriteFile(p.specFile(uid), spec, 0o644); err != nil {
			problem = fileProblem("cannot write the CDI spec of "+r.String(), err)
		}
	}
	if problem != nil {
		p.cfg.Log.Warn("CDI spec of a claim not renewed", "uid", uid, "reason", problem.Reason, "problem", problem.Message)
	}
}
