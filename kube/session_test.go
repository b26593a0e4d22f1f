package kube

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// restarted is an API server that remembers no version from before its start, as its watch cache does after a restart.
type restarted struct{ Nodes }

func (r restarted) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.ResourceVersion == "" {
		return r.Nodes.Watch(ctx, o)
	}
	w := watch.NewFakeWithChanSize(1, false)
	status := apierrors.NewResourceExpired("too old resource version: 1 (223)").Status()
	w.Error(&status)
	return w, nil
}

// TestWatchOfAnOldNode: a node that has not changed for long is followed, although nothing is known of its version any
// more: a change is seen at once, not at the next read.
func TestWatchOfAnOldNode(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.after(10 * time.Minute)
		n := c.node().DeepCopy()
		n.ResourceVersion = "999"
		n.Labels = map[string]string{"asked": "now"}
		nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
		if err := c.api.Tracker().Update(nodes, n, ""); err != nil {
			t.Fatal(err)
		}
		c.after(time.Millisecond)
		if got := c.k.State().NodeLabels["asked"]; got != "now" {
			t.Errorf("the labels are %v", c.k.State().NodeLabels)
		}
	}, func(cfg *Config) { cfg.Client.Nodes = restarted{cfg.Client.Nodes} })
}
