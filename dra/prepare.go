package dra

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

// callDeadline is this plugin's own deadline for the claims of one call; the kubelet's is 45 s
// (pkg/kubelet/cm/dra/plugin).
const callDeadline = 30 * time.Second

// claims implements the kubelet's DRAPlugin service.
type claims struct {
	drapb.UnsafeDRAPluginServer
	*Plugin
}

// NodePrepareResources prepares claims, all at once and independently of each other. The kubelet asks again for a
// claim that is already prepared: after its own restart, and after a reboot, when the CDI specs are gone.
func (p claims) NodePrepareResources(ctx context.Context,
	req *drapb.NodePrepareResourcesRequest,
) (*drapb.NodePrepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	resp := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	var mu sync.Mutex
	each(req.GetClaims(), func(c *drapb.Claim) {
		answer := &drapb.NodePrepareResourceResponse{}
		r, problem := p.prepare(ctx, c)
		if problem != nil {
			answer.Error = problem.Error()
			p.cfg.Log.Warn("claim not prepared", "namespace", c.GetNamespace(), "claim", c.GetName(), "uid", c.GetUid(),
				"reason", problem.Reason, "problem", problem.Message)
		}
		for _, g := range r.Devices {
			request, _, _ := strings.Cut(g.Request, "/") // the kubelet knows requests, not the chosen alternative
			d := &drapb.Device{RequestNames: []string{request}, PoolName: g.Pool, DeviceName: g.Device}
			if a, _ := p.list.load().find(g.Device); !p.bare(r, a, g) {
				d.CdiDeviceIds = []string{p.cdiID(r.UID, g)}
			}
			if g.Share != "" {
				d.ShareId = &g.Share
			}
			answer.Devices = append(answer.Devices, d)
		}
		mu.Lock()
		defer mu.Unlock()
		resp.Claims[c.GetUid()] = answer
	})
	return resp, nil
}

// NodeUnprepareResources unprepares claims. It needs neither driver nor device nor API server. A claim that is not
// known counts as unprepared.
func (p claims) NodeUnprepareResources(_ context.Context,
	req *drapb.NodeUnprepareResourcesRequest,
) (*drapb.NodeUnprepareResourcesResponse, error) {
	resp := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	var mu sync.Mutex
	each(req.GetClaims(), func(c *drapb.Claim) {
		answer := &drapb.NodeUnprepareResourceResponse{}
		if problem := p.unprepare(c.GetUid()); problem != nil {
			answer.Error = problem.Error()
			p.cfg.Log.Warn("claim not taken back", "namespace", c.GetNamespace(), "claim", c.GetName(), "uid",
				c.GetUid(), "reason", problem.Reason, "problem", problem.Message)
		}
		mu.Lock()
		defer mu.Unlock()
		resp.Claims[c.GetUid()] = answer
	})
	return resp, nil
}

// each calls do for all claims concurrently and waits.
func each(all []*drapb.Claim, do func(*drapb.Claim)) {
	var wg guard.Group
	for _, c := range all {
		wg.Go(func() { do(c) })
	}
	wg.Wait()
}

// prepare does everything that a container needs to be given the devices of one claim. The record comes first: if
// the agent is killed after that, the claim holds its devices, and the rest is done when the kubelet asks again.
func (p claims) prepare(ctx context.Context, ref *drapb.Claim) (record, *accel.Problem) {
	uid := ref.GetUid()
	if !uidForm.MatchString(uid) {
		return record{}, accel.Problemf(accel.ClaimUnusable, "cannot prepare claim %s/%s: %q is not a UID",
			ref.GetNamespace(), ref.GetName(), uid)
	}
	defer p.claims.lock(uid)()
	known, prepared := p.book.get(uid)
	r, problem := p.read(ctx, ref)
	switch {
	case problem != nil && prepared && (problem.Reason == accel.APIUnreachable || problem.Reason == accel.APIForbidden):
		r = known // its pods continue without the API server
	case problem != nil:
		return record{}, problem
	case p.retired.Load() && !prepared:
		return record{}, accel.Problemf(accel.ClaimUnusable,
			"cannot prepare %s: %q is not given out by claims on this node any more", r, p.cfg.Definition.Kind)
	case len(r.Devices) == 0:
		return r, nil // all devices are another driver's
	}
	accs, problem := p.usable(r)
	if problem != nil {
		p.strand(r)
		return record{}, problem
	}
	p.unstrand(uid)
	r.ofParts(p.list.load().def, accs)
	if prepared && known.same(r) {
		r.Checked = known.Checked
	} else if problem := p.keep(ctx, r); problem != nil {
		return record{}, problem
	}
	if !prepared {
		p.cfg.OnClaims()
	}
	if problem := p.shape(ctx, r, accs); problem != nil {
		return record{}, problem
	}
	if problem := p.check(ctx, &r, accs); problem != nil {
		return record{}, problem
	}
	if problem := p.give(ctx, r, accs); problem != nil {
		return record{}, problem
	}
	if problem := (metadata{p.Plugin}).write(r, accs); problem != nil {
		return record{}, problem
	}
	spec, problem := p.spec(r, accs)
	if problem != nil {
		return record{}, problem
	}
	if err := p.writeSpec(uid, spec); err != nil {
		return record{}, accel.ProblemOf(err, "cannot write the CDI spec of %s", r)
	}
	if !prepared {
		p.cfg.Log.Info("claim prepared", "namespace", r.Namespace, "claim", r.Name, "uid", r.UID, "devices",
			len(r.Devices))
	}
	return r, nil
}

// give gives the devices of a claim to the use that it asks for, one after another, and puts them into accs as they are
// then. The claim is on disk by then: it says whose the devices are, until it is unprepared.
func (p claims) give(ctx context.Context, r record, accs map[string]accel.Accelerator) *accel.Problem {
	given := map[string]bool{}
	for _, g := range r.Devices {
		if g.Use == "" || given[g.Device] { // one device may serve two requests
			continue
		}
		given[g.Device] = true
		a, problem := p.cfg.Give(ctx, p.list.load().def, accs[g.Device], r.UID, r.Namespace+"/"+r.Name)
		if problem != nil {
			return accel.Problemf(problem.Reason, "cannot prepare %s: %s", r, problem.Message)
		}
		accs[g.Device] = a
	}
	return nil
}

// read asks the API server what was allocated to the claim.
func (p claims) read(ctx context.Context, ref *drapb.Claim) (record, *accel.Problem) {
	c, err := p.api.claim(ctx, ref.GetNamespace(), ref.GetName())
	if apierrors.IsNotFound(err) {
		return record{}, accel.Problemf(accel.ClaimUnusable, "cannot prepare claim %s/%s: there is none",
			ref.GetNamespace(), ref.GetName())
	}
	if err != nil {
		return record{}, problem("get claim "+ref.GetNamespace()+"/"+ref.GetName(), err)
	}
	return recordOf(c, ref.GetUid(), p.driver, p.cfg.Node, p.list.load().def)
}

// keep puts a record into the book. It takes a device from another claim only if, according to the API server, that
// claim no longer has it: the kubelet then forgot to unprepare it.
func (p claims) keep(ctx context.Context, r record) *accel.Problem {
	for range 2 * max(1, len(r.Devices)) {
		rival, problem := p.book.put(r)
		if rival == nil {
			return problem
		}
		over, err := p.over(ctx, *rival)
		if err != nil || !over {
			return accel.Problemf(accel.ClaimUnusable, "cannot prepare %s: %s holds one of its devices", r, rival)
		}
		p.cfg.Log.Warn("claim taken back that the kubelet has forgotten", "namespace", rival.Namespace, "claim",
			rival.Name, "uid", rival.UID)
		p.forget(rival.UID)
	}
	return accel.Problemf(accel.ClaimUnusable, "cannot prepare %s: others keep taking its devices", r)
}

// over reports whether the claim of a record is gone or no longer has its devices.
func (p *Plugin) over(ctx context.Context, r record) (bool, error) {
	c, err := p.api.claim(ctx, r.Namespace, r.Name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && !allocated(c, r), err
}

// unprepare unprepares a claim. An error of the disk or the ledger does not stop it, because the end of a pod waits
// for it.
func (p claims) unprepare(uid string) *accel.Problem {
	if !uidForm.MatchString(uid) {
		return accel.Problemf(accel.ClaimUnusable, "cannot take claim %q back: that is not a UID", uid)
	}
	defer p.claims.lock(uid)()
	_, prepared := p.book.get(uid)
	p.unstrand(uid)
	p.forget(uid)
	if prepared {
		p.cfg.Log.Info("claim taken back", "uid", uid)
	}
	return nil
}

// forget removes everything kept about a claim. The record goes last, so that an interrupted removal is repeated. A
// spec that cannot be removed does no harm: no container refers to it any more.
func (p *Plugin) forget(uid string) {
	if file := p.specFile(uid); p.cfg.Host.Exists(file) {
		err := p.cfg.Ledger.Remove(file)
		if err != nil {
			err = errors.Join(err, p.cfg.Host.Remove(file))
			p.cfg.Log.Warn("CDI spec of a claim not removed in order", "path", file, "error", err)
		}
	}
	p.written.Delete(uid)
	metadata{p}.drop(uid)
	p.book.drop(uid)
	p.release()
}

// tidy unprepares, once after a start, the claims that ended while no agent was running.
func (p *Plugin) tidy(ctx context.Context) {
	left := p.book.all()
	for failures := 1; ; failures++ {
		left = slices.DeleteFunc(left, func(r record) bool { return p.settle(ctx, r) })
		if len(left) == 0 {
			return
		}
		if pace.Sleep(ctx, p.timing.remote.After(failures)) != nil {
			return
		}
	}
}

// settle unprepares a claim if it is over. It returns true if nothing is left to find out about the claim.
func (p *Plugin) settle(ctx context.Context, r record) bool {
	defer p.claims.lock(r.UID)()
	if now, there := p.book.get(r.UID); !there || !now.same(r) { // the kubelet has unprepared or prepared it since
		return true
	}
	over, err := p.over(ctx, r)
	if err != nil || !over {
		return err == nil
	}
	p.forget(r.UID)
	p.cfg.Log.Info("claim taken back that is over", "namespace", r.Namespace, "claim", r.Name, "uid", r.UID)
	return true
}
