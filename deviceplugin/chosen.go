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
	"github.com/acceld/acceld/pace"
)

// Bound is a container of a pod that is bound to this node and has not ended.
type Bound struct {
	PodRef
	// UID is the pod's UID.
	UID string
	// Count is how many devices it requests.
	Count int
	// Cards are the devices that were chosen for it, see [accel.CardName]; nil if nobody chose.
	Cards []string
	// Taken is true if the kubelet has given the pod its devices.
	Taken bool
	// Passing marks an init container that ends before others start. The kubelet never reports its devices.
	Passing bool
}

// Time limits within a call of the kubelet: for the API server's watch, which may be later here than at the kubelet,
// and for the answer to who holds devices. Both together are less than callDeadline.
const (
	watchLag  = 300 * time.Millisecond
	askHolder = 500 * time.Millisecond
	askAgain  = 25 * time.Millisecond
)

// chooser finds out which container the kubelet is asking for, as far as possible, and which devices were chosen for
// it. The kubelet does not name the container: it is one of those without a device yet, and the first such container
// of its pod.
type chooser struct {
	resource string
	bound    func(resource string) (all []Bound, changed <-chan struct{}, known bool)
	holders  func(context.Context) (heldRefs, error)
	log      *slog.Logger

	mu sync.Mutex
	// given has the passing containers that already got their devices.
	given map[containerKey]bool
}

type containerKey struct{ uid, container string }

func (b Bound) key() containerKey { return containerKey{b.UID, b.Container} }

// next returns the containers that the kubelet may be asking for when it wants count devices, in the order in which
// devices were chosen for them. There are none if that cannot be found out.
func (c *chooser) next(ctx context.Context, count int) []Bound {
	if c == nil || c.bound == nil {
		return nil
	}
	late := time.After(watchLag)
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
		case <-late:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// heads returns, for each pod that the kubelet has not taken yet, the first container without a device.
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
	there, last := map[containerKey]bool{}, map[string]int{} // by pod: one past its last container with a device
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

// held asks who holds devices until there is an answer, because the kubelet limits the rate of such calls over all
// its clients. When ctx ends, its last answer is used.
func (c *chooser) held(ctx context.Context) heldRefs {
	for {
		held, err := c.holders(ctx)
		if err == nil {
			return held
		}
		if pace.Sleep(ctx, askAgain) != nil {
			c.log.Debug("the kubelet does not say who holds devices; its last answer counts", "error", err)
			return held
		}
	}
}

// prefer returns the ids of the chosen devices. It returns nil if none were chosen or one of them is not available.
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

// check returns an error if no container may get these devices: the scheduler's extender has chosen others for each
// container that may be asking. If the call is refused here, the pod fails with this reason and its owner creates
// another one. Otherwise the pod would run on a device that the extender has assigned to somebody else.
func (c *chooser) check(ctx context.Context, devices map[string]device, names []string, count int) error {
	known := map[string]bool{}
	for _, d := range devices {
		known[accel.CardName(d.of)] = true
	}
	// If a container requests several resources, its cards may belong to another one.
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
