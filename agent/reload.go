package agent

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host"
)

// editing is how long the agent waits after a change of the configuration before it reads it: editors and config maps
// make several changes at once.
const editing = 100 * time.Millisecond

// reloader follows the configuration: its file in this process's own file system, the definitions and the requests of
// `acceld driver upgrade` in the host's file system, and SIGHUP. A configuration that cannot be used is reported and
// changes nothing.
type reloader struct {
	*Setup
	options SetupOptions
	// want is the desired state that the configuration asks for now.
	want      accel.Want
	machine   func() accel.Machine
	configure func(accel.Want)
	// wanted is told which kinds are in force, before the loop is.
	wanted  func(map[string]*accel.Definition)
	watcher *watcher
	// own are changes in the directory of the configuration file; theirs are changes of definitions and requests.
	own, theirs <-chan string
	hangup      chan os.Signal
}

// watch starts to watch the configuration.
func (r *reloader) watch(ctx context.Context) error {
	file, err := filepath.Abs(r.options.ConfigFile)
	if err != nil {
		return err
	}
	self, err := host.New("/")
	if err != nil {
		return err
	}
	if r.own, err = self.Watch(ctx, filepath.Dir(file)); err != nil {
		return err
	}
	if r.theirs, err = r.Host.Watch(ctx, r.Config.Definitions, driver.RequestDir(r.Config.StateDir)); err != nil {
		return err
	}
	r.hangup = make(chan os.Signal, 1)
	signal.Notify(r.hangup, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(r.hangup) })
	return nil
}

// run takes over changes of the configuration until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	var policies chan struct{}
	if r.options.Policies != nil {
		policies = r.options.Policies.news
	}
	quiet := time.NewTimer(0)
	<-quiet.C
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.own:
			quiet.Reset(editing)
		case <-r.theirs:
			quiet.Reset(editing)
		case <-r.hangup:
			quiet.Reset(0)
		case <-policies:
			quiet.Reset(0)
		case <-quiet.C:
			r.reread(ctx)
			r.configure(r.want)
		case <-r.watcher.moved:
			r.watcher.refollow(ctx, r.want.Kinds, r.machine().Facts)
		}
	}
}

// reread takes over the configuration as it is on the disk now.
func (r *reloader) reread(ctx context.Context) {
	s, problem := Open(r.options)
	if problem == nil && len(s.Skipped) > 0 {
		problem = s.Skipped[0] // its kind would be missing: a typo must not end what serves
	}
	shown := r.want.Problem
	if problem != nil {
		if differs(shown, problem) {
			r.Log.Warn("configuration not taken over", "reason", problem.Reason, "message", problem.Message)
		}
		r.want.Problem = problem
		return
	}
	pending := pendingChanges(r.Config, s.Config)
	if pending != nil && differs(shown, pending) {
		r.Log.Warn("configuration not taken over yet", "reason", pending.Reason, "message", pending.Message)
	}
	r.want.Problem, r.want.PoliciesUnknown = cmp.Or(pending, firstProblem(s.Unfit)), s.PoliciesUnknown
	r.want.InCluster = s.Policies.InCluster()
	if p := r.want.Problem; pending == nil && p != nil && differs(shown, p) {
		r.Log.Warn("policy left out", "reason", p.Reason, "message", p.Message)
	}
	if !reflect.DeepEqual(r.want.Kinds, s.Kinds) {
		r.want.Kinds = s.Kinds
		r.wanted(s.Kinds)
		r.Log.Info("configuration taken over", "kinds", len(s.Kinds), "policies", governing(s.Policies))
		r.watcher.refollow(ctx, s.Kinds, r.machine().Facts)
	}
}

// differs reports whether a problem differs from the one that is shown.
func differs(shown, p *accel.Problem) bool { return shown == nil || shown.Message != p.Message }

// pendingChanges names the changed options that are read only when the agent starts; nil if there are none.
func pendingChanges(before, after Config) *accel.Problem {
	var names []string
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		if slices.Contains([]string{"Kinds", "Allocation", "PolicyTrust", "Places"}, name) {
			continue // they are part of the definitions, which are taken over; lines mean nothing
		}
		if !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			names = append(names, strings.ToLower(name[:1])+name[1:])
		}
	}
	if len(names) == 0 {
		return nil
	}
	return accel.Problemf(accel.ConfigPending, "changed options wait for the next start of the agent: %s",
		strings.Join(names, ", "))
}
