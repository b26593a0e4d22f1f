package agent

import (
	"context"
	"log/slog"
	"os"
	"path"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/systemd"
)

const (
	// standby is in the environment of an agent that has been followed by another one.
	standby = "ACCELD_STANDBY"
	// settling is how long the previous agent still answers calls of the kubelet after the next one is registered: a
	// pod that the kubelet is admitting stays with the plugin that it began with.
	settling = 2 * time.Second
	// followTime is how long the next agent may take to be registered, after which the previous one leaves anyway.
	followTime = 2 * time.Minute
	// leavingTime is how long an agent still answers for the next one when its own pod is deleted. A container of the
	// DaemonSet has 20 s to end.
	leavingTime = 15 * time.Second
)

// hotRestart lets one agent follow another on a host without a moment in which the kubelet has no plugin. A DaemonSet
// that surges starts the next agent while the previous one runs. The next one asks the previous one to end. That one
// ends except for its connections to the kubelet, which it answers until the next one is registered. Then it is on
// standby: it starts afresh if the next one ends, and does nothing else until its pod is deleted.
//
// It uses locks alone (package lock), so that no agent waits for one that has died.
type hotRestart struct {
	host *host.Host
	// group names the agents that may follow one another: those of a DaemonSet, by their namespace. Any other agent is
	// followed by none: a systemd unit beside a DaemonSet is a mistake, which AlreadyRunning tells.
	group string
	log   *slog.Logger
	// changes are the changes of the files in the directory of locks.
	changes <-chan string
	// done tells the previous agent that the kubelet has this one; nil if there is none, or it was told.
	done func()
}

func newHotRestart(h *host.Host, log *slog.Logger) *hotRestart {
	return &hotRestart{host: h, group: os.Getenv("POD_NAMESPACE"), log: log}
}

// begin makes this agent the only one on its host, until release is called. Release is nil if ctx has ended before.
func (r *hotRestart) begin(ctx context.Context) (release func(), problem *accel.Problem) {
	defer func() {
		if ctx.Err() != nil && release == nil {
			problem = nil
		}
	}()
	if os.Getenv(standby) != "" {
		if err := os.Unsetenv(standby); err != nil {
			return nil, accel.ProblemOf(err, "cannot be on standby")
		}
		r.log.Info("another agent of this host has followed: on standby in case that it ends")
		return lock.Resume(ctx, r.host, r.group)
	}
	release, problem = lock.Agent(r.host, r.group)
	if problem == nil || problem.Reason != accel.AlreadyRunning {
		return release, problem
	}
	r.log.Info("another agent runs", "message", problem.Message)
	release, r.done, problem = lock.Follow(ctx, r.host, r.group)
	return release, problem
}

// followed reports whether another agent follows.
func (r *hotRestart) followed() bool { return lock.Followed(r.host, r.group) }

// watch starts to watch for an agent that follows.
func (r *hotRestart) watch(ctx context.Context) (err error) {
	if r.group != "" {
		r.changes, err = r.host.Watch(ctx, path.Dir(lock.NextFile()))
	}
	return err
}

// run tells the previous agent when this one is registered, and calls end, at most once, when another one follows. It
// does not while a driver is replaced.
func (r *hotRestart) run(ctx context.Context, follow func() (m accel.Machine, replaced <-chan struct{}),
	end func(),
) error {
	defer r.tell() // whoever is asked to end before it is registered has nothing to hand on
	var settled, late <-chan time.Time
	if r.done != nil {
		late = time.After(followTime)
	}
	for {
		m, replaced := follow()
		if r.done != nil && settled == nil && registered(m) {
			settled = time.After(settling)
		}
		if r.done == nil && end != nil && r.followed() && !replacing(m) {
			r.log.Info("another agent follows this one")
			end()
			end = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-replaced:
		case <-settled:
			r.tell()
		case <-late:
			r.tell()
		case <-r.changes:
		}
	}
}

// tell tells the previous agent that it is no longer needed.
func (r *hotRestart) tell() {
	if r.done != nil {
		r.done()
		r.done = nil
	}
}

// registered reports whether the kubelet has all kinds that it can have now. A kind whose driver does not come is not
// waited for. A problem of the registration is: while it lasts, the previous agent still has the devices.
func registered(m accel.Machine) bool {
	if m.Taken.IsZero() { // nothing has been looked at
		return false
	}
	if !m.Want.Kubernetes {
		return true
	}
	for kind := range m.Want.Kinds {
		status, known := m.Status[kind]
		switch status.Next {
		case accel.StepDriver, accel.StepUpgrade, accel.StepProve, accel.StepRuntime:
			if status.Blocked == nil {
				return false
			}
		case accel.StepRegister:
			return false
		default:
			if !known {
				return false
			}
		}
	}
	return true
}

// finish is for an agent that has ended: if another one follows, it answers the kubelet until that one is registered,
// and starts this program again as standby unless ctx has ended.
func (r *hotRestart) finish(ctx context.Context) error {
	if !r.followed() {
		return nil
	}
	wait, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leavingTime, cancel) })()
	lock.AwaitFollower(wait, r.host)
	if ctx.Err() != nil {
		return nil
	}
	return host.Again(standby + "=1")
}

// left are connections to the kubelet that the next process of the agent gets, or that this one answers until the next
// is registered.
type left struct {
	*systemd.Sockets
	leaving func() bool
}

// Leaving implements [deviceplugin.Connections].
func (l left) Leaving() bool { return l.Sockets.Leaving() || l.leaving() }
