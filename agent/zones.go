package agent

import (
	"context"
	"time"

	"github.com/acceld/acceld/exporter/holders"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// zoneEvery is how often the kubelet is asked for what its NUMA nodes have left: it reports no changes. Node Feature
// Discovery's topology updater asks as often by default.
const zoneEvery = time.Minute

// zones writes the resource topology of the node.
type zones struct {
	*Agent
	holdings *holders.Follower
	writer   *kube.TopologyWriter
	poked    chan struct{}
	said     string // the last problem, which is logged once
}

func newZones(a *Agent, node string) *zones {
	return &zones{
		Agent: a, holdings: a.holdings, poked: make(chan struct{}, 1),
		writer: &kube.TopologyWriter{API: *a.documents, Node: node},
	}
}

// poke says that pods may have got devices, or given them back.
func (z *zones) poke() {
	if z == nil {
		return
	}
	select {
	case z.poked <- struct{}{}:
	default:
	}
}

// run keeps the topology as it is until ctx ends.
func (z *zones) run(ctx context.Context) error {
	failures := 0
	for {
		wait := zoneEvery
		if err := z.pass(ctx); err != nil {
			failures++
			wait = pace.Backoff{First: zoneEvery, Max: 10 * zoneEvery}.After(failures)
			if text := err.Error(); text != z.said && ctx.Err() == nil {
				z.said = text
				z.Log.Warn("the resource topology is not up to date", "error", err)
			}
		} else {
			failures, z.said = 0, ""
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-z.poked:
			_ = pace.Sleep(ctx, time.Second) // the kubelet's own answer follows its allocation
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass asks the kubelet and writes what has changed.
func (z *zones) pass(ctx context.Context) error {
	facts := z.machine().Facts
	if !facts.Kubelet.Present || len(facts.Inventory.Nodes) == 0 {
		return nil // not yet
	}
	allocatable, pods, err := z.holdings.Resources(ctx)
	if err != nil {
		return err
	}
	return z.writer.Write(ctx, kube.Topology(z.writer.Node, kube.ZoneFacts{
		Nodes: facts.Inventory.Nodes, Processors: host.ProcessorNodes(z.Host), Allocatable: allocatable, Pods: pods,
		Policy: facts.Kubelet.TopologyPolicy, Scope: facts.Kubelet.TopologyScope,
	}))
}
