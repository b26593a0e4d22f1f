package handover

import (
	"context"
	"slices"
	"time"
)

// Run cleans devices as soon as their tenants have ended, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.load()
	k.mu.Lock()
	k.ctx = ctx
	k.tell()
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.ctx = nil
		k.tell()
		k.mu.Unlock()
		k.group.Wait()
	}()
	w := watch{host: k.o.Host}
	defer w.end()
	for {
		k.mu.Lock()
		groups, due := k.look(time.Now())
		news := k.news
		k.mu.Unlock()
		if changed, err := w.of(ctx, groups); err != nil {
			return err
		} else if changed {
			continue // what has happened before they were watched
		}
		var retry <-chan time.Time
		if !due.IsZero() {
			retry = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		case <-k.poked:
			k.mu.Lock()
			k.tell()
			k.mu.Unlock()
		case <-w.events:
		case <-retry:
		}
	}
}

// look begins to clean what can be cleaned. It returns the control groups of the tenants that have not ended, and when
// it has to look again; zero if only news changes anything. The keeper is locked.
func (k *Keeper) look(now time.Time) (groups []string, due time.Time) {
	m := k.o.Machine()
	for kind, have := range m.Have {
		def := m.Want.Kinds[kind]
		if def == nil || def.Handover == nil || !have.Driver.Serves {
			continue
		}
		for _, a := range have.Accelerators {
			if !a.Health.Usable() || len(a.Nodes) == 0 && len(def.Nodes) > 0 || a.InOtherUse() {
				continue
			}
			d := k.device(a.ID)
			if a.Partitioned() {
				d.tenancy, d.problem = nil, nil // who has its partitions is not written down
				continue
			}
			k.learn(d, def, a)
			former := k.remaining(d, false)
			switch {
			case d.cleaning != nil, d.tenancy != nil && len(d.tenancy.Tenants) == 0:
			case former != nil:
				before := len(groups)
				for _, t := range d.tenancy.Tenants {
					for _, g := range slices.DeleteFunc(t.groups(), k.ended) {
						groups = append(groups, g.Dir)
					}
				}
				if len(groups) == before && former.Claim == "" {
					due = now // it has ended since, and nothing would tell
				}
			case d.problem != nil && d.retry.After(now):
				if due.IsZero() || d.retry.Before(due) {
					due = d.retry
				}
			default:
				k.clean(a.ID, d, def, a)
			}
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), due
}

// watch watches directories, which change.
type watch struct {
	host   directories
	dirs   []string
	events <-chan string
	cancel context.CancelFunc
}

// directories is the part of the host that a watch needs.
type directories interface {
	Watch(ctx context.Context, names ...string) (<-chan string, error)
}

// of watches other directories, if they are others, and reports whether they are.
func (w *watch) of(ctx context.Context, dirs []string) (changed bool, err error) {
	if slices.Equal(w.dirs, dirs) {
		return false, nil
	}
	w.end()
	w.dirs, w.events = dirs, nil
	if len(dirs) == 0 {
		return true, nil
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.events, err = w.host.Watch(ctx, dirs...)
	return true, err
}

// end ends the watch.
func (w *watch) end() {
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}
