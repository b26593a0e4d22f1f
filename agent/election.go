package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// spread keeps nodes that waited for the same build from querying the registry at the same moment.
const spread = 2 * time.Second

// election lets this node compete to build a driver for all nodes. When another node builds, election wakes the loop
// at the end of that build.
type election struct {
	election *kube.Election
	follow   kube.LeaseWatch
	ctx      context.Context //nolint:containedctx // the agent's own: a build for another node outlives its step
	group    *guard.Group
	wake     func(helps bool)
	log      *slog.Logger

	mu sync.Mutex
	// awaited are the keys of the drivers that other nodes build.
	awaited map[string]bool
}

// elect competes to build the driver of a key; see driver.Options.
func (e *election) elect(ctx context.Context, key string) (release func(), elected bool, holder string, err error) {
	release, elected, holder, err = e.election.Elect(ctx, key)
	if err == nil && !elected {
		e.await(key)
	}
	return release, elected, holder, err
}

// await wakes the loop when another node's build of key has ended. If the API server cannot report that, the loop
// looks for the driver by itself, at growing intervals.
func (e *election) await(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.awaited[key] {
		return
	}
	e.awaited[key] = true
	e.group.Keep(e.ctx, "build of another node", func(ctx context.Context) error {
		err := e.election.Await(ctx, e.follow, key)
		e.mu.Lock()
		delete(e.awaited, key)
		e.mu.Unlock()
		if err != nil {
			if ctx.Err() == nil {
				e.log.Warn("cannot follow the build of another node", "key", key, "problem", err)
			}
			return nil
		}
		if pace.Sleep(ctx, rand.N(spread)) == nil {
			e.wake(true)
		}
		return nil
	})
}
