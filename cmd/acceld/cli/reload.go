package cli

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
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
			case <-quiet.C:
				want = a.reread(ctx, c, want)
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
	before, after := a.config, p.config
	before.Kinds, after.Kinds = nil, nil
	if !reflect.DeepEqual(before, after) {
		a.log.Warn("the configuration has changes that need a restart of the agent")
	}
	want.Problem = nil
	if !reflect.DeepEqual(want.Kinds, p.defs) {
		want.Kinds = p.defs
		a.log.Info("configuration taken over", "kinds", len(p.defs))
		if err := a.followSteps(ctx, p.defs, a.loop.Machine().Facts); err != nil {
			a.log.Warn("changes of a driver's source will be seen late", "error", err)
		}
	}
	a.loop.Configure(want)
	return want
}
