package dra

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// Conditions of the devices in a claim's status (KEP-5007). The scheduler binds a pod once the first is true, and
// chooses again if the second is.
const (
	ConditionMade   = "acceld.dev/Made"
	ConditionFailed = "acceld.dev/CannotBeMade"
)

// refusedFor is how long nobody else is given a part of a device that could not be divided.
const refusedFor = time.Minute

// ahead makes parts before pods are bound: it follows the claims of the cluster, and prepares those that were allocated
// parts of this node and wait for a condition. The kubelet prepares them again, after the pod is bound.
type ahead struct {
	*Plugin
	reflector *kube.Reflector[claim, *claim]
	news      chan struct{}
	group     guard.Group

	mu      sync.Mutex
	working map[string]bool // by UID
}

// bindsLater reports whether parts of a kind are made before pods are bound.
func bindsLater(def *accel.Definition) bool { return def.Makes() && def.Partitions.Make.BeforeBinding }

// newAhead returns what prepares the claims of a plugin ahead.
func newAhead(p *Plugin) *ahead {
	a := &ahead{Plugin: p, news: make(chan struct{}, 1), working: map[string]bool{}}
	a.reflector = &kube.Reflector[claim, *claim]{
		API: p.cfg.API, Path: apiRoot + "resourceclaims", Retry: p.timing.remote, Changed: func() { signal(a.news) },
	}
	return a
}

// run prepares claims ahead until ctx ends. It follows the claims of the cluster from when the kind needs that.
func (a *ahead) run(ctx context.Context) error {
	for v := a.list.load(); !bindsLater(v.def); v = a.list.load() {
		select {
		case <-v.replaced:
		case <-ctx.Done():
			return nil
		}
	}
	defer a.group.Wait()
	return guard.Together(ctx, a.reflector.Run, func(ctx context.Context) error {
		for {
			forbidden := a.reflector.Err()
			if !apierrors.IsForbidden(forbidden) {
				forbidden = nil // it is not there at the moment, which is said elsewhere
			}
			if a.pluginState.setAhead(forbidden) && forbidden != nil {
				a.cfg.Log.Warn("cannot follow claims: parts are not made before pods are bound", "error", forbidden)
			}
			_, synced := a.reflector.All()
			if followed := synced && a.reflector.Err() == nil; a.followed.Swap(followed) != followed {
				a.poke()
			}
			v := a.list.load()
			if v.reported {
				a.pass(ctx)
			}
			select {
			case <-a.news:
			case <-v.replaced:
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// pass looks at all claims.
func (a *ahead) pass(ctx context.Context) {
	all, synced := a.reflector.All()
	if !synced {
		return
	}
	byUID := map[string]*claim{}
	for key, c := range all {
		byUID[c.Metadata.UID] = c
		if !a.retired.Load() && c.waits(a.driver, a.cfg.Node) {
			a.begin(ctx, c.Metadata.UID, func(ctx context.Context) bool {
				// What was just said about it is known by now.
				if all, _ := a.reflector.All(); all[key] != nil && all[key].waits(a.driver, a.cfg.Node) {
					return a.make(ctx, *all[key])
				}
				return true
			})
		}
	}
	for _, r := range a.book.all() {
		if c := byUID[r.UID]; r.Ahead && (c == nil || !allocated(*c, r)) {
			a.begin(ctx, r.UID, func(ctx context.Context) bool { return a.settle(ctx, r) })
		}
	}
}

// begin does something for a claim, again until it is done, unless that is in progress.
func (a *ahead) begin(ctx context.Context, uid string, do func(context.Context) (done bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.working[uid] {
		return
	}
	a.working[uid] = true
	a.group.Go(func() {
		defer signal(a.news)
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.working, uid)
		}()
		for failures := 1; !do(ctx); failures++ {
			if pace.Sleep(ctx, a.timing.remote.After(failures)) != nil {
				return
			}
		}
	})
}

// make makes the parts of a claim and says so in its status. It returns false if that has to be tried again.
func (a *ahead) make(ctx context.Context, c claim) (done bool) {
	limited, cancel := context.WithTimeout(ctx, 10*callDeadline) // the scheduler waits for 10 minutes
	defer cancel()
	r, problem := a.prepareAhead(limited, c)
	switch {
	case ctx.Err() != nil:
		return true
	case problem != nil && slices.Contains(soon(), problem.Reason):
		return false
	case problem != nil:
		a.cfg.Log.Warn("part not made", "namespace", r.Namespace, "claim", r.Name, "uid", r.UID, "reason", problem.Reason,
			"problem", problem.Message)
		a.refuse(r)
	}
	err := a.say(ctx, c, problem)
	if err != nil {
		a.cfg.Log.Warn("cannot say in a claim's status whether its part is made", "namespace", r.Namespace, "claim", r.Name,
			"error", err)
	}
	return err == nil || a.overNow(ctx, r)
}

// soon are reasons that usually pass by themselves before the scheduler stops waiting.
func soon() []accel.Reason {
	return []accel.Reason{accel.APIUnreachable, accel.ProbeUnanswered, accel.NotProven, accel.SpecPending}
}

// overNow reports whether a claim is over.
func (a *ahead) overNow(ctx context.Context, r record) bool {
	over, err := a.over(ctx, r)
	return err == nil && over
}

// prepareAhead takes the steps of preparing a claim until its parts are made. If they cannot be, nothing is left of it.
func (a *ahead) prepareAhead(ctx context.Context, c claim) (record, *accel.Problem) {
	p := claims{Plugin: a.Plugin}
	uid := c.Metadata.UID
	defer a.claims.lock(uid)()
	r, problem := recordOf(c, uid, a.driver, a.cfg.Node, a.list.load().def)
	if problem != nil {
		return record{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, UID: uid}, problem
	}
	if _, prepared := a.book.get(uid); !prepared {
		r.Ahead = true
	}
	accs, problem := a.usable(r)
	if problem != nil {
		return r, problem
	}
	r.ofParts(a.list.load().def, accs)
	if r.Ahead {
		if problem := p.keep(ctx, r); problem != nil {
			return r, problem
		}
		a.cfg.OnClaims()
	}
	if problem = p.shape(ctx, r, accs); problem != nil && r.Ahead && ctx.Err() == nil {
		a.forget(uid)
	}
	return r, problem
}

// refuse keeps the parts of a claim from others for a while: the scheduler would choose them again.
func (a *ahead) refuse(r record) {
	a.refused.mu.Lock()
	defer a.refused.mu.Unlock()
	if a.refused.until == nil {
		a.refused.until = map[string]time.Time{}
	}
	for _, g := range r.Devices {
		if v := a.list.load(); v.def.Makes() {
			x, _ := v.find(g.Device)
			a.refused.until[DeviceName(x.Address())] = time.Now().Add(refusedFor)
		}
	}
	a.poke()
}

// refused are the devices that could not be divided a short time ago, by their names at the API server.
type refused struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// now returns the devices, and when the first of them is one no more; 0 for never.
func (r *refused) now() (devices map[string]bool, again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	devices = map[string]bool{}
	for name, until := range r.until {
		left := time.Until(until)
		if left <= 0 {
			delete(r.until, name)
			continue
		}
		devices[name] = true
		if again == 0 || left < again {
			again = left
		}
	}
	return devices, again
}

// waits reports whether a claim has parts of a node for which a pod waits.
func (c *claim) waits(driver, node string) bool {
	if c.Status.Allocation == nil || c.Metadata.DeletionTimestamp != nil {
		return false
	}
	return slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(d result) bool {
		return d.awaits(driver, node) &&
			!slices.ContainsFunc(c.Status.Devices, func(s deviceStatus) bool {
				return s.Driver == driver && s.Pool == node && s.Device == d.Device && s.says()
			})
	})
}

// awaits reports whether a pod waits for a device of a node.
func (d result) awaits(driver, node string) bool {
	return d.Driver == driver && d.Pool == node && slices.Contains(d.BindingConditions, ConditionMade)
}

// says reports whether a condition tells the scheduler to go on.
func (s deviceStatus) says() bool {
	return slices.ContainsFunc(s.Conditions, func(c statusCondition) bool {
		return c.Status == "True" && (c.Type == ConditionMade || c.Type == ConditionFailed)
	})
}

// statusPatch is the body of a server-side apply of a claim's status: this driver's devices alone.
type statusPatch struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   kube.Identity `json:"metadata"`
	Status     struct {
		Devices []deviceStatus `json:"devices"`
	} `json:"status"`
}

// PatchType is the content type of the patch.
func (statusPatch) PatchType() string { return "application/apply-patch+yaml" }

// say writes into a claim's status whether its parts are made.
func (a *ahead) say(ctx context.Context, c claim, problem *accel.Problem) error {
	now := time.Now().UTC().Truncate(time.Second)
	is := statusCondition{
		Type: ConditionMade, Status: "True", Reason: "Made", Message: "the part is there", LastTransitionTime: now,
	}
	if problem != nil {
		is = statusCondition{
			Type: ConditionFailed, Status: "True", Reason: string(problem.Reason), LastTransitionTime: now,
			Message: shorten(problem.Message, maxMessage),
		}
	}
	body := statusPatch{
		APIVersion: apiVersion, Kind: "ResourceClaim",
		Metadata: kube.Identity{Name: c.Metadata.Name, Namespace: c.Metadata.Namespace, UID: c.Metadata.UID},
	}
	named := map[string]bool{}
	for _, d := range c.Status.Allocation.Devices.Results {
		if !named[d.Device] && d.awaits(a.driver, a.cfg.Node) {
			named[d.Device] = true
			body.Status.Devices = append(body.Status.Devices, deviceStatus{
				Driver: d.Driver, Pool: d.Pool, Device: d.Device, Conditions: []statusCondition{is},
			})
		}
	}
	query := url.Values{"fieldManager": {manager + "-" + a.driver}, "force": {"true"}}
	var said claim
	err := a.api.Do(ctx, http.MethodPatch, apiRoot+"namespaces/"+url.PathEscape(c.Metadata.Namespace)+
		"/resourceclaims/"+url.PathEscape(c.Metadata.Name)+"/status", query, body, &said)
	if err == nil {
		a.reflector.Put(&said) // else the claim would still wait until the watch shows what was written
	}
	return err
}
