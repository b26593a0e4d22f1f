package extender

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/pace"
)

// BoundPods selects the pods that may hold cards: bound, and not over. A watch with this selector shows the end of a
// pod as its deletion.
const BoundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

// feed is a store of client-go that keeps nothing itself: it turns the events of a watch into changes of the cache.
// Objects are trimmed as they arrive, one at a time, so that a large cluster is never in memory as a whole.
type feed struct {
	cache  *Cache
	trim   func(any) any // accepts received objects and its own results
	set    func(any)
	drop   func(any)
	listed func([]any)
}

func (f *feed) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return f.trim(o), nil }
}

func (f *feed) Add(o any) error {
	if o = f.trim(o); o != nothing {
		f.set(o)
	}
	return nil
}

func (f *feed) Update(o any) error { return f.Add(o) }

func (f *feed) Delete(o any) error {
	if o = f.trim(o); o != nothing {
		f.drop(o)
	}
	return nil
}

func (f *feed) Replace(all []any, _ string) error {
	kept := make([]any, 0, len(all))
	for _, o := range all {
		if o = f.trim(o); o != nothing {
			kept = append(kept, o)
		}
	}
	f.listed(kept)
	return nil
}

func (f *feed) Resync() error { return nil }

// Bookmark is called when a watch has no changes to report.
func (f *feed) Bookmark(string) error {
	f.cache.contacted()
	return nil
}

// nodeFeed feeds nodes.
func (b *Cache) nodeFeed() *feed {
	last := &Facts{}
	return &feed{
		cache: b,
		trim: func(o any) any {
			if n, ok := o.(*corev1.Node); ok {
				f := TrimNode(b.rules, n)
				f.share(last) // a list has thousands, and most are like the one before
				last = f
				return f
			}
			return o
		},
		set:  func(o any) { b.SetNode(o.(*Facts)) },
		drop: func(o any) { b.DropNode(o.(*Facts).Name) },
		listed: func(all []any) {
			list := make([]*Facts, len(all))
			for i, o := range all {
				list[i] = o.(*Facts)
			}
			b.ListNodes(list)
		},
	}
}

// podFeed feeds pods.
func (b *Cache) podFeed() *feed {
	return &feed{
		cache: b,
		trim: func(o any) any {
			p, ok := o.(*corev1.Pod)
			if !ok {
				return o
			}
			if trimmed := b.Trim(p); trimmed != nil {
				return trimmed
			}
			return nothing
		},
		set:  func(o any) { b.SetPod(o.(*Pod)) },
		drop: func(o any) { b.DropPod(o.(*Pod).UID) },
		listed: func(all []any) {
			list := make([]*Pod, len(all))
			for i, o := range all {
				list[i] = o.(*Pod)
			}
			b.ListPods(list)
		},
	}
}

// Sources are the sources of nodes and pods: all nodes, and the pods of [BoundPods] in all namespaces.
type Sources struct{ Nodes, Pods cache.ListerWatcher }

// reflectors keep the cache up to date while they run.
func (b *Cache) reflectors(from Sources) (nodes, pods *cache.Reflector) {
	return cache.NewReflectorWithOptions(from.Nodes, &corev1.Node{}, b.nodeFeed(), cache.ReflectorOptions{Name: "nodes"}),
		cache.NewReflectorWithOptions(from.Pods, &corev1.Pod{}, b.podFeed(), cache.ReflectorOptions{Name: "pods"})
}

// Unconfirmed pods are checked this often, once the API server has not shown a pod for this long after its binding.
const (
	checkEvery       = 5 * time.Second
	unconfirmedAfter = 20 * time.Second
)

// check asks the API server for pods that it should have shown by now, until ctx ends. Either the answer to a binding
// was lost, or the pod was gone before the watch saw it.
func (b *Cache) check(ctx context.Context, api API, failed func(error)) {
	for pace.Sleep(ctx, checkEvery) == nil {
		for id, name := range b.Unconfirmed(unconfirmedAfter) {
			p, err := api.pod(ctx, name)
			if err != nil {
				failed(fmt.Errorf("cannot look at pod %s: %w", name, err))
				continue
			}
			if p == nil || fit.NewUID(string(p.UID)) != id || p.Spec.NodeName == "" {
				b.corrections.Add(1)
				b.DropPod(id)
			} else if trimmed := b.Trim(p); trimmed != nil {
				b.SetPod(trimmed)
			}
		}
	}
}
