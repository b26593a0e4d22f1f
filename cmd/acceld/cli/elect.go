package cli

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// spread keeps the nodes that waited for one build from asking the registry at the same moment.
const spread = 2 * time.Second

// electing is how this node stands for building a driver. Where another one builds, the loop is told when that has ended.
func (a *running) electing(e *kube.Election, follow kube.LeaseWatch) func(context.Context, string) (func(), bool, string, error) {
	return func(ctx context.Context, key string) (release func(), elected bool, holder string, err error) {
		release, elected, holder, err = e.Elect(ctx, key)
		if err == nil && !elected {
			a.awaitBuild(e, follow, key)
		}
		return release, elected, holder, err
	}
}

// awaitBuild tells the loop when another node's build of key has ended. Without an API server that says so the driver is
// looked for again by itself, at growing distances.
func (a *running) awaitBuild(e *kube.Election, follow kube.LeaseWatch, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.awaited[key] {
		return
	}
	a.awaited[key] = true
	a.group.Go(func() {
		err := e.Await(a.ctx, follow, key)
		a.mu.Lock()
		delete(a.awaited, key)
		a.mu.Unlock()
		if err != nil {
			if a.ctx.Err() == nil {
				a.log.Warn("cannot follow the build of another node", "key", key, "problem", err)
			}
			return
		}
		if pace.Sleep(a.ctx, rand.N(spread)) == nil {
			a.loop.Wake(true)
		}
	})
}
