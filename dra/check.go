package dra

import (
	"context"
	"time"

	"github.com/acceld/acceld/accel"
)

// check lets the devices of a claim pass the self-test that the claim asks for, once: pods that share the claim may be
// computing on them when the kubelet asks again. The claim is on disk by then, so that nobody else gets its devices
// meanwhile.
func (p claims) check(ctx context.Context, r *record, accs map[string]accel.Accelerator) *accel.Problem {
	var all []accel.Accelerator
	added := map[string]bool{}
	for _, g := range r.Devices {
		if g.Check && !added[g.Device] { // one device may serve two requests
			added[g.Device] = true
			all = append(all, accs[g.Device])
		}
	}
	if len(all) == 0 || !r.Checked.IsZero() {
		return nil
	}
	begin := time.Now()
	if problem := p.cfg.Check(ctx, p.list.load().def, all); problem != nil {
		return accel.Problemf(problem.Reason, "cannot prepare %s: %s", r, problem.Message)
	}
	r.Checked = time.Now().UTC().Truncate(time.Second)
	p.cfg.Log.Info("devices of a claim checked", "namespace", r.Namespace, "claim", r.Name, "uid", r.UID, "devices",
		len(all), "took", time.Since(begin).Round(time.Millisecond))
	return p.keep(ctx, *r)
}
