package policy

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// nodeWatch looks at every version of every node.
type nodeWatch struct {
	client *kubernetes.Clientset
	// all is called with all nodes, each time the watch begins, and one with every version after that.
	all  func(ctx context.Context, nodes []corev1.Node)
	one  func(ctx context.Context, node *corev1.Node)
	gaps atomic.Int32 // watches that had to begin again
}

// follow looks until ctx ends.
func (w *nodeWatch) follow(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			time.Sleep(time.Second) // the API server is away
			continue
		}
		w.all(ctx, list.Items)
		for at := list.ResourceVersion; at != ""; {
			at = w.watch(ctx, at)
		}
		w.gaps.Add(1)
	}
}

// watch follows from a version on, and returns from where to go on; empty when that is no more to be had.
func (w *nodeWatch) watch(ctx context.Context, from string) string {
	stream, err := w.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		ResourceVersion: from, AllowWatchBookmarks: true,
	})
	if err != nil {
		if ctx.Err() != nil || !strings.Contains(err.Error(), "refused") {
			return ""
		}
		time.Sleep(time.Second)
		return from
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		node, ok := e.Object.(*corev1.Node)
		if !ok {
			return ""
		}
		from = node.ResourceVersion
		if e.Type != watch.Bookmark {
			w.one(ctx, node)
		}
	}
	return from
}
