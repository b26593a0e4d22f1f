package deviceplugin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

// outcome is how a registration ended.
type outcome struct {
	problem *accel.Problem // why there was no stream; nil when there was one
	held    bool           // the kubelet's view was right once, or the stream lasted long
	fresh   bool           // the kubelet has been replaced
}

// register registers again and again until ctx ends. A registration lasts as long as the kubelet's stream, and the
// kubelet never dials again by itself. No two registrations of this plugin are ever open at the same time.
func (p *Plugin) register(ctx context.Context, dir *directory) {
	defer p.disconnected(nil)
	select {
	case <-p.list.given:
	case <-ctx.Done():
		return
	}
	failures := 0
	for recalled, fresh := false, false; ; {
		waited := p.awaitKubelet(ctx, dir)
		if ctx.Err() != nil {
			return
		}
		// A kubelet that has just started admits its pods in a moment, and permanently refuses those whose devices
		// are not offered by then (kubernetes/kubernetes#125579). So it gets the first list first, and is asked who
		// holds what right after.
		recalled = recalled || fresh || waited || p.recall(ctx)
		out := p.serveOnce(ctx, dir)
		if ctx.Err() != nil {
			return
		}
		p.disconnected(out.problem)
		if out.held || out.fresh {
			failures = 0
		}
		if fresh = out.fresh; fresh {
			continue
		}
		limit := p.timing.retryMax
		if out.problem != nil && out.problem.Reason == accel.KubeletAbsent {
			limit = p.timing.resync // a dead kubelet's socket; the next kubelet creates a new one
		}
		failures++
		if fresh = p.pause(ctx, dir, pace.Backoff{First: p.timing.retry, Max: limit}.After(failures)); fresh {
			failures = 0
		}
	}
}

// recall asks who holds devices before they are offered for the first time, so that the first list includes what
// pods hold under previous names or replicas. Without an answer the devices are offered anyway, and the question is
// repeated.
func (p *Plugin) recall(ctx context.Context) bool {
	if p.cfg.PodResources == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, p.timing.ask)
	defer cancel()
	held, err := p.kubelet.holders(ctx)
	if err == nil {
		p.list.adopt(held, p.cfg.Now())
	}
	return err == nil
}

// awaitKubelet waits for kubelet.sock or the end of ctx, and reports whether it had to wait.
func (p *Plugin) awaitKubelet(ctx context.Context, dir *directory) (waited bool) {
	for {
		if there, _ := dir.look(); there {
			return waited
		}
		waited = true
		p.disconnected(accel.Problemf(accel.KubeletAbsent, "cannot find the kubelet's socket %q",
			filepath.Join(p.cfg.Dir, kubeletSocket)))
		select {
		case <-dir.changed:
		case <-time.After(pace.Jitter(p.timing.resync)): // a mount over the directory causes no event
		case <-ctx.Done():
			return waited
		}
	}
}

// pause waits before the next attempt. It returns true if the kubelet's socket was replaced meanwhile.
func (p *Plugin) pause(ctx context.Context, dir *directory, d time.Duration) bool {
	over := time.After(d)
	for {
		select {
		case <-over:
			return false
		case <-ctx.Done():
			return false
		case <-dir.changed:
			if _, other := dir.look(); other {
				return true
			}
		}
	}
}

// serveOnce handles one registration, from its socket to the end of its stream.
func (p *Plugin) serveOnce(ctx context.Context, dir *directory) outcome {
	s, problem := p.serve()
	if problem != nil {
		return outcome{problem: problem}
	}
	defer s.stop(p.timing.stop)
	defer p.cfg.Connections.End(p.cfg.Resource)

	problem, wiped := p.introduce(ctx, dir, s)
	if problem != nil || wiped {
		return outcome{problem: problem, fresh: wiped}
	}
	select {
	case <-s.opened:
	case <-s.ended:
		return outcome{problem: accel.Problemf(accel.RegistrationFailed,
			"cannot register %q: the kubelet ended its stream before the first list", p.cfg.Resource)}
	case <-time.After(p.timing.open):
		return outcome{problem: accel.Problemf(accel.RegistrationFailed,
			"cannot register %q: the kubelet agreed and did not open its stream", p.cfg.Resource)}
	case <-ctx.Done():
		return outcome{}
	}
	// For a while the kubelet has two plugins for the resource, the previous one for pods that it was admitting. Since
	// 1.37 it continues with the one that is left. An older kubelet ends both, and this plugin registers again as after
	// any other end.
	s.inherit()
	alone := time.AfterFunc(p.timing.overlap, func() {
		p.cfg.Connections.End(p.cfg.Resource)
		s.disinherit()
	})
	defer alone.Stop()
	p.pluginState.set(nil, func(h *accel.PluginHave) {
		h.Registered, h.Allocatable = true, accel.Answer[int]{}
		h.Registrations++
	})
	p.cfg.Log.Info("registered with the kubelet", "socket", filepath.Base(s.path), "registrations",
		p.State().Registrations)
	removeLeftovers(p.cfg.Dir, p.cfg.Definition.Kind, time.Now())
	return p.attend(ctx, dir, s)
}

// introduce registers s. A kubelet that starts wipes the directory. If that happens between listening and
// registering, the kubelet dials the missing socket for 10 s (measured); introduce returns wiped at once instead of
// waiting for that.
func (p *Plugin) introduce(ctx context.Context, dir *directory, s *service) (problem *accel.Problem, wiped bool) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.register)
	defer cancel()
	answer := make(chan *accel.Problem, 1)
	guard.Go(func() {
		answer <- attempt(func() *accel.Problem {
			return register(ctx, p.cfg.Dir, filepath.Base(s.path), p.cfg.Resource)
		})
	})
	for {
		select {
		case problem := <-answer:
			return problem, false
		case <-dir.changed:
			if _, err := os.Lstat(s.path); errors.Is(err, fs.ErrNotExist) {
				cancel()
				<-answer //nolint:errcheck // it was cancelled, that is what it says
				return nil, true
			}
		}
	}
}

// attempt calls f; a panic in it is a problem.
func attempt(f func() *accel.Problem) (problem *accel.Problem) {
	if err := guard.Try(func() error { problem = f(); return nil }); err != nil {
		return accel.Problemf(accel.PartFailed, "%v", err)
	}
	return problem
}

// attend watches an open stream, compares the kubelet's view with the list, and returns when a new registration is
// needed.
func (p *Plugin) attend(ctx context.Context, dir *directory, s *service) outcome {
	ctx, cancel := context.WithCancel(ctx) // ends a call that is in flight
	defer cancel()
	ask := time.NewTimer(p.timing.askFirst)
	defer ask.Stop()
	answers := make(chan view, 1)
	asking := false
	began := time.Now()
	look := &attention{answered: began}
	end := func(fresh bool) outcome {
		return outcome{held: look.settled || time.Since(began) > p.timing.open, fresh: fresh}
	}
	p.watchdog.begin()
	l := p.list.load()
	for {
		select {
		case <-ctx.Done():
			return outcome{}
		case <-s.ended:
			p.cfg.Log.Info("the kubelet ended its stream")
			return end(false)
		case <-dir.changed:
			// If the socket was only removed, wait: the end of the stream will tell.
			if there, other := dir.look(); there && other {
				p.cfg.Log.Info("the kubelet's socket is another one")
				return end(true)
			}
		case <-l.replaced:
			before := l
			if l = p.list.load(); l.revision != before.revision {
				ask.Reset(p.timing.askFirst)
			}
		case <-ask.C:
			if asking || p.cfg.PodResources == "" {
				continue
			}
			asking = true
			holders := !look.held || p.list.load().passing()
			guard.Go(func() {
				v := view{err: errors.New("asking the kubelet has failed")}
				defer func() { answers <- v }()
				v = p.ask(ctx, holders)
			})
		case v := <-answers:
			asking = false
			if there, other := dir.look(); there && other { // in case an event was lost
				return end(true)
			}
			next, renew := p.judge(look, v)
			if renew {
				return end(false)
			}
			ask.Reset(next)
		}
	}
}

// view is one answer from the kubelet.
type view struct {
	allocatable []string
	holders     *heldRefs // nil if not asked or not answered
	err         error
}

// attention is what the kubelet's answers have shown during one stream.
type attention struct {
	answered time.Time // time of the last answer
	held     bool      // the holders were answered at least once
	settled  bool      // the kubelet's view was right at least once
	failures int       // failed calls in a row
}

// ask asks the kubelet, in a goroutine of its own: a kubelet that hangs must not keep the loop from seeing the
// stream end.
func (p *Plugin) ask(ctx context.Context, holders bool) view {
	ctx, cancel := context.WithTimeout(ctx, p.timing.ask)
	defer cancel()
	var v view
	v.allocatable, v.err = p.kubelet.allocatable(ctx)
	if v.err == nil && holders {
		// Without an answer tombstones stay, which is safe.
		if held, err := p.kubelet.holders(ctx); err == nil {
			v.holders = &held
		}
	}
	return v
}

// judge evaluates one answer. It returns when to ask again, or that a new registration is needed.
func (p *Plugin) judge(look *attention, v view) (next time.Duration, renew bool) {
	now := time.Now()
	if v.err != nil {
		if !look.settled || now.Sub(look.answered) > p.timing.silent {
			_, before := p.pluginState.get()
			if p.pluginState.set(accel.AsProblem(v.err), nil) && before == nil {
				p.cfg.Log.Warn("the kubelet does not say what is allocatable", "error", v.err)
			}
		}
		look.failures++
		return pace.Backoff{First: p.timing.retry, Max: p.timing.resync}.After(look.failures), false
	}
	look.answered, look.failures = now, 0
	if v.holders != nil {
		look.held = true
		p.list.adopt(*v.holders, p.cfg.Now())
		p.list.sweep(v.holders.now, p.cfg.Now(), p.timing.grace)
	}
	l := p.list.load()
	verdict := p.watchdog.observe(now, l.revision, l.healthy, v.allocatable)
	var problem *accel.Problem
	if !verdict.settled {
		problem = accel.Problemf(accel.AllocatableDiffers,
			"the kubelet counts %d devices (replicas of shared ones included), %d are healthy", len(v.allocatable),
			len(l.healthy))
	}
	p.pluginState.set(problem, func(h *accel.PluginHave) { h.Allocatable = accel.Known(l.count(v.allocatable)) })
	if verdict.settled && !look.settled {
		p.cfg.Log.Info("the kubelet offers the devices", "allocatable", len(v.allocatable))
	}
	look.settled = look.settled || verdict.settled
	if verdict.renew {
		p.cfg.Log.Warn("the kubelet's view differs from the healthy devices, registering again", "allocatable",
			len(v.allocatable), "healthy", len(l.healthy))
	}
	if verdict.settled {
		return pace.Jitter(verdict.next), false
	}
	return verdict.next, verdict.renew
}

// disconnected records that there is no stream, and why.
func (p *Plugin) disconnected(problem *accel.Problem) {
	other := p.pluginState.set(problem, func(h *accel.PluginHave) {
		h.Registered, h.Allocatable = false, accel.Answer[int]{}
	})
	if other && problem != nil {
		p.cfg.Log.Warn("not registered with the kubelet", "reason", problem.Reason, "problem", problem.Message)
	}
}
