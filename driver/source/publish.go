package source

import (
	"context"
	"fmt"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/trust"
)

// publishTimeout bounds how long a node tries to publish what it built. Nothing on this node waits for it.
const publishTimeout = 10 * time.Minute

// sharing returns the sources to which drivers that are built here are published. Where signatures are required there
// is none: a host has no key, so every other host would refuse what it publishes.
func (q *search) sharing() []accel.Source {
	var out []accel.Source
	for _, s := range q.def.Driver.Sources {
		if q.o.Trust.Require {
			break
		}
		if s.Type == accel.SourceOCI && s.Push {
			out = append(out, s)
		}
	}
	return out
}

// election decides which host builds a driver that will be published. There is a new one each time a build source is
// asked.
type election struct {
	*search
	key     string
	release func() // set while this host is the builder, elected or not
}

// elect makes this host the builder of key, or says which host is. Without a cluster, or if the API server does not
// answer, every host builds: waiting for an unreachable host would be worse.
func (e *election) elect(ctx context.Context, key string) *Answer {
	if e.release != nil {
		if e.key == key {
			return nil
		}
		e.end()
	}
	e.key, e.release = key, func() {}
	if e.o.Elect == nil {
		return nil
	}
	release, elected, holder, err := e.o.Elect(ctx, key)
	switch {
	case err != nil:
		e.log.Warn("nobody elects the builder: building here", "kind", e.def.Kind, "error", err)
	case !elected:
		e.release = nil
		return &Answer{Verdict: Waiting, Problem: accel.Problemf(accel.BuildElsewhere,
			"node %q builds the driver of %q for kernel %q", holder, e.def.Kind, e.facts.Kernel.Release)}
	default:
		e.release = release
	}
	return nil
}

// end releases the lease.
func (e *election) end() {
	if e.release != nil {
		e.release()
		e.release = nil
	}
}

// gate runs before the compiler. It returns nil if this host must compile, or else the answer.
func (e *election) gate(ctx context.Context, key string) *Answer {
	if a := e.elect(ctx, key); a != nil {
		e.await(key)
		return a
	}
	e.await("")
	// The previous builder may have published between our lookup in the registry and our election.
	if e.o.Elect != nil {
		for _, s := range e.sharing() {
			if a := e.askOCI(ctx, s); a.Verdict == Satisfied {
				e.end()
				return &a
			}
		}
	}
	return nil
}

// await remembers the key of a driver that another host builds, so that the next lookup need not read the whole
// source again. An empty key forgets it.
func (q *search) await(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.awaited[q.def.Kind] = key
}

// elsewhere checks whether another host is still building the driver that this host waits for.
func (e *election) elsewhere(ctx context.Context) *Answer {
	e.mu.Lock()
	key := e.awaited[e.def.Kind]
	e.mu.Unlock()
	if key == "" {
		return nil
	}
	return e.elect(ctx, key)
}

// share publishes, in the background, what was built here. A failure affects nothing else: the result is logged and
// shown with the driver.
func (q *search) share(e store.Entry, release func()) {
	q.background.Go(func() {
		defer release()
		ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
		defer cancel()
		text := ""
		for _, s := range q.sharing() {
			pushed, problem := q.push(ctx, s, e, artifact.PushOptions{Keep: true})
			if problem != nil {
				text = "not published: " + problem.Message
				q.log.Warn("driver not published", "kind", q.def.Kind, "key", e.Key, "reason", problem.Reason, "message",
					problem.Message)
				continue
			}
			text = pushed.Reference
			q.log.Info("driver published", "kind", q.def.Kind, "key", e.Key, "reference", pushed.Reference)
		}
		q.mu.Lock()
		q.published[e.Key] = text
		q.mu.Unlock()
	})
}

// Wait waits until publishing has succeeded or failed.
func (x *Sources) Wait() { x.background.Wait() }

// Published is the result of publishing an entry; empty if it was not built here.
func (x *Sources) Published(key string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.published[key]
}

// Push publishes an entry of the store to every source of type oci of def, even to those without push. It returns
// what was pushed, even if there is a problem.
func (x *Sources) Push(ctx context.Context, def *accel.Definition, facts accel.Facts, e store.Entry,
	key *trust.Key,
) ([]artifact.Pushed, *accel.Problem) {
	q := &search{x, def, facts, Options{}}
	var out []artifact.Pushed
	for _, s := range def.Driver.Sources {
		if s.Type != accel.SourceOCI {
			continue
		}
		pushed, problem := q.push(ctx, s, e, artifact.PushOptions{Key: key})
		if problem != nil {
			return out, problem
		}
		out = append(out, pushed)
	}
	if len(out) == 0 {
		return nil, accel.Problemf(accel.ConfigInvalid, "%q has no source of type oci to push to", def.Kind)
	}
	return out, nil
}

// push publishes an entry to one source.
func (q *search) push(ctx context.Context, s accel.Source, e store.Entry, o artifact.PushOptions) (artifact.Pushed,
	*accel.Problem,
) {
	s, problem := q.filled(s)
	if problem != nil {
		return artifact.Pushed{}, problem
	}
	describe := contentOf
	if !o.Keep { // a person publishes all that the store has; a host that shares a build shares what it built
		describe = q.wholeContentOf
	}
	content, problem := describe(e, q.facts)
	if problem != nil {
		return artifact.Pushed{}, problem
	}
	w, done, problem := q.store.Workspace("")
	if problem != nil {
		return artifact.Pushed{}, problem
	}
	defer done()
	pushed, problem := q.artifacts(q.def.Kind, nil).Push(ctx, s, q.wanted(), content, w.Work, o)
	if problem != nil {
		problem.Message = fmt.Sprintf("cannot publish the driver of %q: %s", q.def.Kind, problem.Message)
	}
	return pushed, problem
}
