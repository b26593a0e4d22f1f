package dra

import (
	"context"
	"path"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
)

// register keeps the plugin registered until ctx ends. The kubelet discovers the plugin itself: at its start, and
// when a socket appears in its directory. So a restarted kubelet needs no action; register only makes sure that
// nothing stays stuck.
func (p *Plugin) register(ctx context.Context) {
	events, err := p.cfg.Host.Watch(ctx, p.registry)
	if err != nil {
		p.cfg.Log.Warn("cannot watch the kubelet's directory, looking at it from time to time", "error", err)
	}
	patience := p.timing.unheard
	for failures := 1; ctx.Err() == nil; failures++ {
		if !p.cfg.Host.Exists(p.registry) {
			p.disconnected(accel.Problemf(accel.KubeletAbsent, "there is no %q: no kubelet has run on this host",
				p.registry))
			pause(ctx, events, p.timing.retry.Max)
			failures = 0
			continue
		}
		p.removeLeftovers(time.Now())
		s, problem := p.serve()
		if problem == nil {
			var heard bool
			heard, problem = p.attend(ctx, s, events, patience)
			s.stop()
			if heard {
				failures, patience = 1, p.timing.unheard
			} else {
				patience = min(2*patience, p.timing.unheardMax)
			}
		}
		if ctx.Err() != nil {
			break
		}
		p.disconnected(problem)
		_ = pace.Sleep(ctx, p.timing.retry.After(failures))
	}
	p.disconnected(nil)
}

// pause waits for an event, the time d or the end of ctx.
func pause(ctx context.Context, events <-chan string, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-events:
	case <-time.After(d):
	}
}

// disconnected records that the kubelet is not connected, and why.
func (p *Plugin) disconnected(problem *accel.Problem) {
	other := p.pluginState.setRegistration(problem, func(h *accel.PluginHave) { h.Registered = false })
	if other && problem != nil {
		p.cfg.Log.Warn("not registered with the kubelet", "reason", problem.Reason, "problem", problem.Message)
	}
	p.poke()
}

// attend follows one registration until it must be made again: the kubelet refuses it, does not come or has long
// been gone, or the socket that it discovers was removed. Heard is true if the kubelet has accepted the registration
// once.
func (p *Plugin) attend(ctx context.Context, s *service, events <-chan string, patience time.Duration) (heard bool,
	problem *accel.Problem,
) {
	waiting := time.NewTimer(patience)
	defer waiting.Stop()
	for {
		select {
		case <-ctx.Done():
			return heard, nil
		case text := <-s.verdicts:
			if text != "" {
				return heard, accel.Problemf(accel.RegistrationFailed, "the kubelet refused to register %q: %s",
					p.driver, text)
			}
			heard = true
			p.pluginState.setRegistration(nil, func(h *accel.PluginHave) { h.Registrations++ })
			p.cfg.Log.Info("registered with the kubelet")
			p.connection(s, heard, waiting)
			p.poke() // a kubelet that starts deletes every slice of the node
		case <-s.reported:
			p.connection(s, heard, waiting)
		case name := <-events:
			if (name == s.announced || name == p.registry) && !p.cfg.Host.Exists(s.announced) {
				p.cfg.Log.Info("the registration socket was removed", "socket", path.Base(s.announced))
				return heard, nil
			}
		case <-waiting.C:
			if p.State().Registered {
				continue
			}
			if heard {
				return heard, accel.Problemf(accel.KubeletAbsent, "the kubelet has left the socket of %q", p.driver)
			}
			return heard, accel.Problemf(accel.KubeletAbsent, "no kubelet has come for the registration of %q in %s",
				p.driver, patience)
		}
	}
}

// connection records whether the kubelet is connected: it counts as registered once it has accepted and can call.
func (p *Plugin) connection(s *service, heard bool, waiting *time.Timer) {
	connected := heard && s.connections.Load() > 0
	if connected == p.State().Registered {
		return
	}
	if connected {
		waiting.Stop()
		p.pluginState.setRegistration(nil, func(h *accel.PluginHave) { h.Registered = true })
		p.poke()
		return
	}
	waiting.Reset(p.timing.lost)
	p.disconnected(accel.Problemf(accel.KubeletAbsent, "the kubelet has closed its connection to %q", p.driver))
}
