package cli

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host"
)

// editing is how long after a change of the configuration it is read: editors and config maps make several at once.
const editing = 100 * time.Millisecond

// reload follows the configuration: its file, in this process's own file system, the definitions and the requests of
// `acceld driver upgrade`, in the host's, and SIGHUP. What cannot be used is shown and changes nothing.
func (a *running) reload(ctx context.Context, c *common, want accel.Want) error {
	file, err := filepath.Abs(c.config)
	if err != nil {
		return err
	}
	self, err := host.New("/")
	if err != nil {
		return err
	}
	own, err := self.Watch(ctx, filepath.Dir(file))
	if err != nil {
		return err
	}
	theirs, err := a.host.Watch(ctx, a.config.Definitions, driver.RequestDir(a.config.StateDir))
	if err != nil {
		return err
	}
	var policies chan struct{}
	if c.followed != nil {
		policies = c.followed.news
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	a.group.Go(func() {
		defer signal.Stop(hangup)
		quiet := time.NewTimer(0)
		<-quiet.C
		for {
			select {
			case <-ctx.Done():
				return
			case <-own:
				quiet.Reset(editing)
			case <-theirs:
				quiet.Reset(editing)
			case <-hangup:
				quiet.Reset(0)
			case <-policies:
				quiet.Reset(0)
			case <-quiet.C:
				want = a.reread(ctx, c, want)
			case <-a.moved:
				a.refollow(ctx, want.Kinds)
			}
		}
	})
	return nil
}

// reread takes over the configuration as it is on the disk now.
func (a *running) reread(ctx context.Context, c *common, want accel.Want) accel.Want {
	p, problem := c.open()
	if problem == nil && len(p.skipped) > 0 {
		problem = p.skipped[0] // its kind would be missing: an error in an editor must not end what serves
	}
	if problem != nil {
		if want.Problem == nil || want.Problem.Message != problem.Message {
			a.log.Warn("configuration not taken over", "reason", problem.Reason, "message", problem.Message)
		}
		want.Problem = problem
		a.loop.Configure(want)
		return want
	}
	shown, pending := want.Problem, pendingChanges(a.config, p.config)
	if pending != nil && (want.Problem == nil || want.Problem.Message != pending.Message) {
		a.log.Warn("configuration not taken over yet", "reason", pending.Reason, "message", pending.Message)
	}
	want.Problem, want.Unsure = cmp.Or(pending, firstProblem(p.unfit)), p.unsure
	if pending == nil && want.Problem != nil && (shown == nil || shown.Message != want.Problem.Message) {
		a.log.Warn("policy left out", "reason", want.Problem.Reason, "message", want.Problem.Message)
	}
	if !reflect.DeepEqual(want.Kinds, p.defs) {
		want.Kinds = p.defs
		a.log.Info("configuration taken over", "kinds", len(p.defs), "policies", governed(p.policies))
		a.refollow(ctx, p.defs)
	}
	a.loop.Configure(want)
	return want
}

// pendingChanges names the options that are read at the start alone and that are not as they were then; nil when there is
// none.
func pendingChanges(before, after agent.Config) *accel.Problem {
	var names []string
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		if name == "Kinds" || name == "Allocation" { // they are in the definitions, which are taken over
			continue
		}
		if !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			names = append(names, strings.ToLower(name[:1])+name[1:])
		}
	}
	if len(names) == 0 {
		return nil
	}
	return accel.Problemf(accel.ConfigPending, "changed options wait for the next start of the agent: %s", strings.Join(names, ", "))
}
