package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// Bound is a container of a pod that is bound to this node and has not ended.
type Bound struct {
	PodRef
	// UID is that of the pod.
	UID string
	// Count is how many devices it asks for.
	Count int
	// Cards are the devices that were chosen for it, see [accel.CardName]; nil when nobody chose.
	Cards []string
	// Taken: the kubelet has given the pod its devices.
	Taken bool
	// Passing is an init container that ends before others begin: the kubelet never says what it has.
	Passing bool
}

// Patience of a call of the kubelet: for the API server's watch, which may be later here than at the kubelet, and for
// the answer who holds devices. Both together are less than callDeadline.
const (
	watchLag  = 300 * time.Millisecond
	askHolder = 500 * time.Millisecond
	askAgain  = 25 * time.Millisecond
)

// chooser finds out for which container the kubelet asks, as far as that can be told, and which devices were chosen for
// it. The kubelet says neither: it is one of those that have no device yet, of each pod the first one.
type chooser struct {
	resource string
	bound    func(resource string) (all []Bound, changed <-chan struct{}, known bool)
	holders  func(context.Context) (heldRefs, error)
	log      *slog.Logger

	mu sync.Mutex
	// given are the passing containers that were given theirs.
	given map[containerKey]bool
}

type containerKey struct{ uid, container string }

func (b Bound) key() containerKey { return containerKey{b.UID, b.Container} }

func newChooser(cfg Config, k *kubelet) *chooser {
	return &chooser{
		resource: cfg.Resource, bound: cfg.Bound, holders: k.holders, log: cfg.Log,
		given: map[containerKey]bool{},
	}
}

// next returns the containers that the kubelet may ask for when it asks for so many devices, in the order in which
// devices were chosen for them. There are none when nobody can tell.
func (c *chooser) next(ctx context.Context, count int) []Bound {
	if c == nil || c.bound == nil {
		return nil
	}
	late := time.NewTimer(watchLag)
	defer late.Stop()
	for {
		all, changed, known := c.bound(c.resource)
		if !known && changed == nil {
			return nil
		}
		if known {
			if heads := c.heads(ctx, all); len(heads) > 0 {
				return slices.DeleteFunc(heads, func(b Bound) bool { return b.Count != count })
			}
		}
		select {
		case <-changed:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// heads returns of each pod that the kubelet has not taken yet the first container without a device.
func (c *chooser) heads(ctx context.Context, all []Bound) []Bound {
	if !slices.ContainsFunc(all, func(b Bound) bool { return !b.Taken }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askHolder)
	defer cancel()
	held := c.held(ctx)
	has := map[PodRef]bool{}
	for _, refs := range []map[string]PodRef{held.now, held.before} {
		for _, ref := range refs {
			has[ref] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there, last := map[containerKey]bool{}, map[string]int{} // the last container of a pod with a device
	for i, b := range all {
		there[b.key()] = true
		if has[b.PodRef] {
			last[b.UID] = i + 1
		}
	}
	for key := range c.given {
		if !there[key] {
			delete(c.given, key)
		}
	}
	var heads []Bound
	seen := map[string]bool{}
	for i, b := range all {
		if b.Taken || seen[b.UID] || has[b.PodRef] || b.Passing && (c.given[b.key()] || i < last[b.UID]) {
			continue
		}
		seen[b.UID] = true
		heads = append(heads, b)
	}
	return heads
}

// held asks who holds devices until there is an answer: the kubelet answers everybody together so many questions a
// second. When the patience is over its last answer counts.
func (c *chooser) held(ctx context.Context) heldRefs {
	for {
		held, err := c.holders(ctx)
		if err == nil {
			return held
		}
		again := time.NewTimer(askAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			c.log.Debug("the kubelet does not say who holds devices; its last answer counts", "error", err)
			return held
		}
	}
}

// prefer returns the ids of the devices that were chosen, nil when there are none or they are not to be had.
func (c *chooser) prefer(ctx context.Context, devices map[string]device, available, must []string, size int) []string {
	heads := c.next(ctx, size)
	i := slices.IndexFunc(heads, func(b Bound) bool { return b.Cards != nil })
	if i < 0 {
		return nil
	}
	free := slices.Concat(slices.Sorted(slices.Values(must)), slices.Sorted(slices.Values(available)))
	var ids []string
	for _, card := range heads[i].Cards {
		at := slices.IndexFunc(free, func(id string) bool {
			return accel.CardName(devices[id].of) == card && devices[id].offered()
		})
		if at < 0 {
			return nil
		}
		ids = append(ids, free[at])
	}
	if len(ids) != size || slices.ContainsFunc(must, func(id string) bool { return !slices.Contains(ids, id) }) {
		return nil
	}
	return ids
}

// check says why nobody must get these devices: each container that may be asking has others by the choice of the
// scheduler's extender. Refused here, the pod fails with this reason and its owner makes another one; given, it would
// run on a device that the books have for somebody else.
func (c *chooser) check(ctx context.Context, devices map[string]device, names []string, count int) error {
	known := map[string]bool{}
	for _, d := range devices {
		known[accel.CardName(d.of)] = true
	}
	// Of a container that asks for several resources the cards may be those of another one.
	free := func(b Bound) bool {
		return b.Cards == nil || slices.ContainsFunc(b.Cards, func(card string) bool { return !known[card] })
	}
	heads := c.next(ctx, count)
	if len(heads) == 0 || slices.ContainsFunc(heads, free) {
		return nil
	}
	var cards []string
	for _, name := range names {
		cards = append(cards, accel.CardName(name))
	}
	slices.Sort(cards)
	for _, b := range heads {
		if !slices.Equal(slices.Sorted(slices.Values(b.Cards)), cards) {
			continue
		}
		if b.Passing {
			c.mu.Lock()
			c.given[b.key()] = true
			c.mu.Unlock()
		}
		return nil
	}
	b := heads[0]
	c.log.Warn("the kubelet chose other devices than the scheduler", "namespace", b.Namespace, "pod", b.Pod,
		"container", b.Container, "kubelet", cards, "scheduler", b.Cards)
	return fmt.Errorf("the scheduler chose %s for container %q of pod %s/%s", strings.Join(b.Cards, ","), b.Container,
		b.Namespace, b.Pod)
}
