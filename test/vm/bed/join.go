package bed

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/acceld/acceld/test/vm/seed"
)

// StartPair starts a node and another one of the same cluster, side by side. The second boots from power-on: a snapshot
// of it would remember a cluster of its own.
func (b *Bed) StartPair(ctx context.Context, o Options) (first, second *Node, err error) {
	leave, err := b.enter(ctx, 2)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	if first, err = b.startIn(ctx, seed.Node, o); err != nil {
		return nil, nil, err
	}
	if second, err = b.join(ctx, first, b.withDefaults(o)); err != nil {
		first.Stop()
		return nil, nil, err
	}
	first.leave = leave // it carries the cluster, and ends last
	return first, second, nil
}

// join boots the second node of a cluster.
func (b *Bed) join(ctx context.Context, first *Node, o Options) (_ *Node, err error) {
	if first.plane == nil {
		return nil, fmt.Errorf("cannot join a guest that has no cluster")
	}
	o.member, o.FreshBoot = 1, true
	g, err := b.newGuest(seed.Node, o)
	if err != nil {
		return nil, err
	}
	n := &Node{Guest: g, plane: first.plane, host: first}
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	if err := g.makeDisk(ctx, b.supply.Debian.Root(), "raw"); err != nil {
		return nil, err
	}
	first.joined.Lock()
	first.joined.nodes = append(first.joined.nodes, n)
	first.joined.Unlock()
	return n, b.log.Do("booting a second node", func() error {
		if err := g.boot(ctx, o); err != nil {
			return err
		}
		return n.waitUp(ctx, time.Time{})
	})
}

// dialCluster connects the API server to the kubelet or pod behind an address, on whichever node that is.
func (n *Node) dialCluster(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot read address %q: %w", address, err)
	}
	n.joined.Lock()
	nodes := append([]*Node{n}, n.joined.nodes...)
	n.joined.Unlock()
	for _, node := range nodes {
		if node.member.Owns(host) {
			return node.Dial(ctx, address)
		}
	}
	return n.Dial(ctx, address)
}
