package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
)

// boundPod returns a pod of this node as the API server has it.
func boundPod(name string, version int, chosen, status string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%[1]q,"namespace":"team","uid":"u-%[1]s","resourceVersion":"%[2]d","creationTimestamp":"2026-03-04T12:00:00Z","labels":{"a":"b"},
		"annotations":{"gas-ts":%[3]q,"gas-container-cards":"card0","other":"x"}},
		"spec":{"containers":[{"name":"main","resources":{"limits":{"qemu.org/edu":"2","cpu":"1"}}}]},"status":{%[4]s}}`, name, version, chosen, status)
}

func names(pods []*BoundPod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Meta.Name)
	}
	return strings.Join(all, " ")
}

// inBubble runs f with a task that follows the pods of the node.
func inBubble(t *testing.T, api *shelf, f func(p *BoundPods, reported func() int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		p := NewBoundPods(api, "node-a", slog.New(slog.DiscardHandler), func() { reported++ })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		f(p, func() int { synctest.Wait(); return reported })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestBoundPods(t *testing.T) {
	api := &shelf{version: 5, items: []string{
		boundPod("late", 3, "200", `"phase":"Pending"`),
		boundPod("early", 2, "100", `"phase":"Running","startTime":"2026-03-04T12:00:00Z"`),
		boundPod("over", 4, "1", `"phase":"Failed"`),
	}}
	inBubble(t, api, func(p *BoundPods, reported func() int) {
		if _, changed, known := p.Now(); known || changed != nil || len(api.asked) > 0 {
			t.Fatalf("asked before anybody needs it: %v", api.asked)
		}
		p.Need()
		p.Need()
		if n := reported(); n != 1 {
			t.Errorf("told %d times", n)
		}
		pods, changed, known := p.Now()
		if !known || names(pods) != "early late" || !pods[0].Taken() || pods[1].Taken() {
			t.Fatalf("%v %s", known, names(pods))
		}
		c := pods[0].Spec.Containers[0]
		if c.Asks("qemu.org/edu") != 2 || c.Asks("cpu") != 0 || len(pods[0].Meta.Annotations) != 2 ||
			pods[0].Meta.Labels != nil {
			t.Errorf("%+v", pods[0])
		}
		api.event(t, "MODIFIED", strings.Replace(boundPod("late", 6, "200", `"phase":"Pending"`), `"a":"b"`, `"a":"c"`,
			1))
		if n := reported(); n != 1 {
			t.Errorf("told of what matters to nobody")
		}
		api.event(t, "ADDED", boundPod("next", 7, "300", `"phase":"Pending"`))
		select {
		case <-changed:
		default:
			t.Error("nobody is told of a pod")
		}
		api.event(t, "MODIFIED", boundPod("late", 8, "200", `"phase":"Succeeded"`))
		api.event(t, "DELETED", boundPod("early", 9, "100", `"phase":"Running"`))
		if pods, _, _ := p.Now(); names(pods) != "next" || reported() < 3 {
			t.Errorf("%s, told %d times", names(pods), reported())
		}
		if api.asked[len(api.asked)-1] != "WATCH /api/v1/pods from 5" {
			t.Errorf("%v", api.asked)
		}
	})
}

// TestBoundPodsUnreachable: while no watch can be opened, the last known pods count as unknown. A watch that opens
// makes them known, without another list.
func TestBoundPodsUnreachable(t *testing.T) {
	api := &shelf{version: 5, items: []string{boundPod("one", 3, "200", `"phase":"Pending"`)}}
	inBubble(t, api, func(p *BoundPods, reported func() int) {
		p.Need()
		before := reported()
		_, changed, _ := p.Now()
		api.set(func() { api.deaf = errors.New("connection refused") })
		api.event(t, "", "")
		time.Sleep(10 * time.Second)
		if n := reported(); n != before+1 {
			t.Errorf("told %d times that the API server does not answer", n-before)
		}
		if pods, _, known := p.Now(); known || names(pods) != "one" {
			t.Errorf("known: %v, pods %s", known, names(pods))
		}
		select {
		case <-changed:
		default:
			t.Error("no change is reported")
		}
		api.set(func() { api.deaf = nil })
		api.requests()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if _, _, known := p.Now(); !known || reported() != before+2 {
			t.Errorf("known: %v, told %d times", known, reported()-before)
		}
		if got := api.requests(); !slices.Equal(got, []string{"WATCH /api/v1/pods from 5"}) {
			t.Errorf("%v", got)
		}
	})
}

// TestBoundPodsForbidden: without the right to read pods, the task asks rarely. It follows the pods once it has the
// right.
func TestBoundPodsForbidden(t *testing.T) {
	api := &shelf{version: 5, err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", fmt.Errorf("no"))}
	inBubble(t, api, func(p *BoundPods, reported func() int) {
		p.Need()
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if _, changed, known := p.Now(); known || changed != nil || len(api.asked) > 13 || len(api.asked) < 10 {
			t.Errorf("asked %d times in three hours", len(api.asked))
		}
		api.mu.Lock()
		api.err, api.items = nil, []string{boundPod("one", 3, "200", `"phase":"Pending"`)}
		api.mu.Unlock()
		time.Sleep(20 * time.Minute)
		if pods, _, known := p.Now(); !known || names(pods) != "one" || reported() != 1 {
			t.Errorf("%v %s", known, names(pods))
		}
		if slices.ContainsFunc(api.asked, func(s string) bool { return !strings.Contains(s, "/api/v1/pods") }) {
			t.Errorf("%v", api.asked)
		}
	})
}

// TestPodsOfTheNode: all pods of the node are known with what made them and how far they are, also those that have
// ended; until they are, the answer says why.
func TestPodsOfTheNode(t *testing.T) {
	ready := `"phase":"Running","startTime":"2026-03-04T12:00:00Z","conditions":[{"type":"Initialized","status":"True"},{"type":"Ready","status":%q}]`
	api := &shelf{version: 5, items: []string{
		strings.Replace(boundPod("one", 3, "", fmt.Sprintf(ready, "True")), `"labels"`,
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"fabric","uid":"u","controller":true}],"labels"`, 1),
		boundPod("starting", 2, "", fmt.Sprintf(ready, "False")),
		boundPod("over", 4, "1", `"phase":"Succeeded"`),
	}}
	inBubble(t, api, func(p *BoundPods, _ func() int) {
		if all, err := p.All(); err == nil {
			t.Errorf("nobody has asked: %v", all)
		}
		p.Need()
		synctest.Wait()
		all, err := p.All()
		slices.SortFunc(all, func(a, b accel.NodePod) int { return strings.Compare(a.Name, b.Name) })
		want := []accel.NodePod{
			{Namespace: "team", Name: "one", UID: "u-one", DaemonSet: "fabric", Phase: "Running", Ready: true},
			{Namespace: "team", Name: "over", UID: "u-over", Phase: "Succeeded"},
			{Namespace: "team", Name: "starting", UID: "u-starting", Phase: "Running"},
		}
		if err != nil || !slices.Equal(all, want) {
			t.Errorf("%v: %+v", err, all)
		}
	})
}
