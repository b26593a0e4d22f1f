package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/pace"
	"github.com/acceld/acceld/runtime/engine"
)

// Restart says when the container runtime may be restarted.
type Restart string

// The restart policies.
const (
	// RestartNever leaves the restart to the operator. It is the default.
	RestartNever Restart = "never"
	// RestartIdle restarts if nothing is being created: five seconds apart, the runtime lists the same running pods
	// twice, and no container that is created but not started. If a pod arrives between the second look and the
	// restart, the kubelet tries it again.
	RestartIdle Restart = "idle"
	// RestartNow restarts without looking.
	RestartNow Restart = "now"
)

// patience has the durations of a restart.
type patience struct {
	// comeback is how long the runtime may take to answer.
	comeback time.Duration
	// settle is how long nothing may change before the runtime counts as idle.
	settle time.Duration
	// again is the time between two attempts while it does not answer.
	again time.Duration
}

// Units control the container runtime's unit. Without them nothing is reloaded or restarted.
type Units struct {
	// Reload and Restart return when the service manager has finished.
	Reload, Restart func(ctx context.Context, unit string) error
	// FirstError returns the unit's first line at level error in the journal since the given time; empty if there is
	// none.
	FirstError func(ctx context.Context, unit string, since time.Time) string
}

// restartFile records that a change waits for a restart. A boot removes it, and ends the daemon that it is about.
const restartFile = "/run/acceld/runtime-restart.json"

// pending is the content of restartFile.
type pending struct {
	Engine string `json:"engine"`
	// PID and AfterBoot, the time from the boot to its start, identify the daemon that has not read the files. Started
	// takes the place of an AfterBoot that is not known, but it moves when somebody sets the clock.
	PID       int           `json:"pid"`
	AfterBoot time.Duration `json:"afterBoot,omitempty"` // in nanoseconds
	Started   time.Time     `json:"started"`
	// Reload is true if a reload is enough.
	Reload bool `json:"reload,omitempty"`
	// Itself is true if the distribution restarts the daemon as soon as it sees the files.
	Itself bool     `json:"itself,omitempty"`
	Files  []string `json:"files"`
	// Back is true if a purge restored the files: the daemon has read what acceld wrote, but not the current
	// content.
	Back bool `json:"back,omitempty"`
	// Trying is the daemon as it was when acceld began to restart or reload it; nil before that.
	Trying *accel.ContainerEngine `json:"trying,omitempty"`
	Since  time.Time              `json:"since,omitzero"` // when it began
}

// restarter makes the running daemon read its changed files.
type restarter struct {
	*files
	client *client
	look   func() accel.ContainerEngine // nil if the container runtime does not change
	policy Restart
	units  Units
	edit   engine.Edit // to plan the change of an earlier call again
	retry  bool        // a person asked to try a change again
	patience
}

// noteChange records that e must read a change; back is pending's Back.
func (r *restarter) noteChange(e accel.ContainerEngine, c engine.Change, back bool) *accel.Problem {
	after, _ := r.host.Processes().StartedAfterBoot(strconv.Itoa(e.PID)) // 0 if it is not known
	n := pending{
		Engine: e.Name, PID: e.PID, AfterBoot: after, Started: e.Started, Reload: c.Reload, Itself: c.Restarts,
		Back: back,
	}
	for _, f := range c.Files {
		n.Files = append(n.Files, f.Path)
	}
	return r.note(n)
}

func (r *restarter) note(n pending) *accel.Problem {
	b, err := json.Marshal(n)
	if err != nil {
		return accel.Problemf(accel.InternalError, "cannot render %q: %v", restartFile, err)
	}
	return r.write(restartFile, append(b, '\n'), 0o644)
}

// forget is best effort: a file that remains names a daemon that no longer runs, or is looked into again.
func (r *restarter) forget() { _ = r.remove(restartFile) }

// noted returns the change that waits for a restart, and whether it waits for the daemon that runs now: e, or the one
// that has been started since.
func (r *restarter) noted(e accel.ContainerEngine) (pending, bool) {
	var n pending
	b, err := r.host.ReadAttribute(restartFile)
	if err != nil || json.Unmarshal([]byte(b), &n) != nil {
		return pending{}, false
	}
	if r.look != nil {
		e = r.look() // it may have been restarted since
	}
	same := n.Started.Sub(e.Started).Abs() < time.Second
	if after, err := r.host.Processes().StartedAfterBoot(strconv.Itoa(e.PID)); err == nil && n.AfterBoot > 0 {
		same = n.AfterBoot == after
	}
	return n, n.Engine == e.Name && n.PID == e.PID && same
}

// waiting is the problem of a change that the daemon has not read; nil if there is none.
func (r *restarter) waiting(e accel.ContainerEngine) *accel.Problem {
	n, ok := r.noted(e)
	if n.Trying != nil { // nobody knows yet whether it came back
		e = *n.Trying
	} else if !ok {
		return nil
	}
	return accel.Problemf(accel.RuntimeRestartNeeded, "%s must be restarted to read %s", unitOf(e),
		strings.Join(n.Files, " and "))
}

// unitOf names what people restart.
func unitOf(e accel.ContainerEngine) string { return cmp.Or(e.Unit, e.Name) }

// takeOver makes the running daemon read its files, as far as the policy allows. While it is down, a Check finds
// another runtime or none, so all of it is about e, the one that was there at the start.
func (r *restarter) takeOver(ctx context.Context, e accel.ContainerEngine, c engine.Change) *accel.Problem {
	n, ok := r.noted(e)
	switch {
	case n.Trying != nil && !ok: // acceld was killed in the middle
		return r.finish(ctx, c, n)
	case !r.client.running(e):
		return nil
	case !ok: // the daemon was restarted meanwhile
		r.forget()
		return nil
	}
	if n.Itself {
		return r.itself(ctx, e, c, n)
	}
	if r.units.Restart == nil || e.Unit == "" {
		return r.waiting(e)
	}
	before, asked := r.client.pods(ctx, e)
	act := r.units.Restart
	switch {
	case n.Reload && r.units.Reload != nil && r.reloadable(e, n.Files):
		act = r.units.Reload
	case r.policy == RestartNow:
	case r.policy == RestartIdle:
		if asked != nil || !r.idle(ctx, e, before) {
			p := r.waiting(e)
			p.Message += "; it is creating pods, so the restart is tried again later"
			return p
		}
	default:
		return r.waiting(e)
	}
	n.Trying, n.Since = &e, time.Now()
	if p := r.note(n); p != nil {
		return p
	}
	failed := act(ctx, e.Unit)
	if failed == nil {
		failed = r.back(ctx, e, before)
	}
	return r.done(ctx, e, c, n, before, failed)
}

// done ends a restart: failed says why the daemon did not come back; nil if it did.
func (r *restarter) done(ctx context.Context, e accel.ContainerEngine, c engine.Change, n pending, before []string,
	failed error,
) *accel.Problem {
	if failed != nil {
		return r.rollBack(ctx, e, c, n, before, failed)
	}
	r.log.Info("container runtime has read its configuration", "unit", e.Unit)
	r.forget()
	return nil
}

// itself waits until the distribution has replaced the daemon. A distribution that does not watch its files leaves it
// running: then the change waits for a restart like any other.
func (r *restarter) itself(ctx context.Context, e accel.ContainerEngine, c engine.Change, n pending) *accel.Problem {
	before, _ := r.client.pods(ctx, e) // unknown ones cannot be lost
	n.Trying, n.Since = &e, time.Now()
	if p := r.note(n); p != nil {
		return p
	}
	if !r.replaced(ctx, e) {
		n.Trying, n.Itself = nil, false
		if p := r.note(n); p != nil {
			return p
		}
		return r.waiting(e)
	}
	return r.done(ctx, e, c, n, before, r.back(ctx, e, before))
}

// replaced waits until the noted daemon no longer runs, and reports whether that has happened.
func (r *restarter) replaced(ctx context.Context, e accel.ContainerEngine) bool {
	ctx, cancel := context.WithTimeout(ctx, r.patience.comeback)
	defer cancel()
	for {
		if _, same := r.noted(e); !same {
			return true
		}
		if pace.Sleep(ctx, r.patience.again) != nil {
			return false
		}
	}
}

// finish ends a restart in the middle of which acceld was killed: the runtime may be down with the change. Pods may
// have ended since, so they do not count.
func (r *restarter) finish(ctx context.Context, c engine.Change, n pending) *accel.Problem {
	if r.units.Restart == nil || r.units.Reload == nil {
		return r.waiting(*n.Trying)
	}
	if failed := r.back(ctx, *n.Trying, nil); failed != nil {
		return r.rollBack(ctx, *n.Trying, c, n, nil, failed)
	}
	r.forget()
	return nil
}

// rollBack gives the files their previous bytes and makes the runtime read them: by a restart, unless the policy
// allows none. If the change is from an earlier call, only its paths are known, and the ledger undoes it.
func (r *restarter) rollBack(ctx context.Context, e accel.ContainerEngine, c engine.Change, n pending,
	before []string, failed error,
) *accel.Problem {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartLimit) // its end may be what failed
	defer cancel()
	p := accel.Problemf(accel.RuntimeDown, "%s did not come back after a change of its configuration: %v",
		e.Unit, failed)
	if r.units.FirstError != nil {
		if line := r.units.FirstError(ctx, e.Unit, n.Since); line != "" {
			p.Tried = append(p.Tried, "its first error: "+line)
		}
	}
	back := r.revert(c)
	if len(c.Files) == 0 {
		back = r.undo(n.Files)
	}
	if back != nil {
		p.Tried = append(p.Tried, back.Message)
		return p
	}
	again, verb := r.units.Restart, "restart"
	switch {
	case n.Itself: // the files that are there again make the distribution restart it once more
		again = func(context.Context, string) error { return nil }
	case r.policy == RestartNever: // then it was a reload
		again, verb = r.units.Reload, "reload"
	}
	err := again(ctx, e.Unit)
	if err == nil {
		err = r.back(ctx, e, before)
	}
	if err != nil {
		p.Tried = append(p.Tried, verb+" with what was there before: "+err.Error())
	} else {
		p.Tried = append(p.Tried, "every file was given its bytes back, and it runs again")
	}
	r.forget()
	r.giveUp(e, c, p)
	return p
}

// undo undoes, through the ledger, what acceld did to files.
func (r *restarter) undo(files []string) *accel.Problem {
	var keys []string
	for _, f := range files {
		name, p := r.real(f)
		if p != nil {
			return p
		}
		key, err := r.ledger.Key(name)
		if err != nil {
			return r.problem("resolve", name, err)
		}
		keys = append(keys, key)
	}
	all, err := r.ledger.Undo(ledger.UndoOptions{Only: func(path string) bool { return slices.Contains(keys, path) }})
	if err != nil {
		return accel.AsProblem(err)
	}
	for _, o := range all {
		if o.Action == ledger.Left {
			return accel.Problemf(o.Reason, "%q still has the change: %s", o.Path, o.Detail)
		}
	}
	return nil
}

// reloadable reports whether a reload is safe. At SIGHUP CRI-O forgets command-line options that override the files
// (cri-o#7586), so a reload is safe only if it has no options. Also, at SIGHUP it reads drop-ins only from a
// directory that existed when it started (seen with 1.34.0: pkg/config/config.go, UpdateFromPath).
func (r *restarter) reloadable(e accel.ContainerEngine, files []string) bool {
	for _, f := range files {
		if made := r.host.Born(path.Dir(f)); made.IsZero() || made.After(e.Started) {
			return false
		}
	}
	b, err := r.host.ReadBinary(path.Join("/proc", strconv.Itoa(e.PID), "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	return !slices.ContainsFunc(args[1:], func(a string) bool { return strings.HasPrefix(a, "-") })
}

// idle looks twice, settle apart, whether nothing is being created and the pods are the same.
func (r *restarter) idle(ctx context.Context, e accel.ContainerEngine, before []string) bool {
	if r.client.creating(ctx, e) {
		return false
	}
	if pace.Sleep(ctx, r.patience.settle) != nil {
		return false
	}
	after, err := r.client.pods(ctx, e)
	return err == nil && slices.Equal(before, after) && !r.client.creating(ctx, e)
}

// back waits until the runtime answers and has the pods that it had before.
func (r *restarter) back(ctx context.Context, e accel.ContainerEngine, before []string) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience.comeback)
	defer cancel()
	var err error
	for {
		if err = r.client.alive(ctx, e, before); err == nil {
			return nil
		}
		if pace.Sleep(ctx, r.patience.again) != nil {
			return err
		}
	}
}
