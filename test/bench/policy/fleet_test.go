package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

const (
	kind       = "qemu-edu"
	servesKey  = kube.Prefix + "driver-container-" + kind
	versionKey = kube.Prefix + kind + ".driver-version"
	countKey   = kube.Prefix + kind + ".count"
	wordKey    = accel.ReportAnnotation + kind
	grantKey   = accel.GrantAnnotation + kind
	canaryKey  = "canary"
)

// limits that nobody may pass.
type limits struct{ parallel, unavailable, stop int }

// seen is the last that the watch told of a node.
type seen struct {
	upgradeReport accel.UpgradeReport
	grant         accel.Grant
	ready, canary bool
	version       string
	at, wrote     int64 // versions of the object: that was seen, and that of the last write
	busy          bool  // it is about to write
}

// fleet is the agents of all nodes, and the judge of them: what it says comes from the watch of the nodes alone.
type fleet struct {
	t      *testing.T
	client *kubernetes.Clientset
	work   chan func()

	mu     sync.Mutex
	nodes  map[string]*seen
	want   string
	fails  func(node string) bool
	limits limits
	begun  map[string]int // how often a node began with what is wanted
	most   limits         // what was seen at most
	moved  chan struct{}
}

// startHands starts what writes for the agents.
func startHands(work <-chan func()) {
	for range hands {
		go func() {
			for do := range work {
				do()
			}
		}()
	}
}

// makeNodes makes n nodes with eight accelerators each, ready in version 1, with further labels.
func makeNodes(t *testing.T, client *kubernetes.Clientset, work chan<- func(), n int,
	label func(i int, labels map[string]string),
) {
	t.Helper()
	var made sync.WaitGroup
	for i := range n {
		made.Add(1)
		work <- func() {
			defer made.Done()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("node-%05d", i),
				Labels: map[string]string{
					servesKey: string(accel.Ready), versionKey: "1", countKey: "8",
					"type": "kwok",
				},
				Annotations: map[string]string{"kwok.x-k8s.io/node": "fake", kube.OriginAnnotation: kube.OriginUnit},
			}}
			label(i, node.Labels)
			node.Status.Capacity = corev1.ResourceList{
				"qemu.org/edu": eight(), "cpu": eight(), "memory": eight(),
				"pods": eight(),
			}
			node.Status.Allocatable = node.Status.Capacity
			if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Errorf("cannot make a node: %v", err)
			}
		}
	}
	made.Wait()
}

// newFleet makes n nodes with eight accelerators each, ready in version 1, of which some come first.
func newFleet(t *testing.T, client *kubernetes.Clientset, n, canaries int) *fleet {
	t.Helper()
	f := &fleet{
		t: t, client: client, work: make(chan func(), n*4), nodes: map[string]*seen{}, want: "1",
		begun: map[string]int{},
		moved: make(chan struct{}, 1), fails: func(string) bool { return false },
	}
	startHands(f.work)
	makeNodes(t, client, f.work, n, func(i int, labels map[string]string) {
		if i < canaries {
			labels[canaryKey] = "true"
		}
	})
	return f
}

// watch is what the agents see. Some nodes are older than others when the watch begins: nothing is judged before all
// are known.
func (f *fleet) watch() *nodeWatch {
	return &nodeWatch{client: f.client, one: f.look, all: func(ctx context.Context, nodes []corev1.Node) {
		for i := range nodes {
			f.note(&nodes[i])
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.judge()
		for name, s := range f.nodes {
			f.act(ctx, name, s)
		}
	}}
}

// look judges one version of a node and lets its agent act.
func (f *fleet) look(ctx context.Context, node *corev1.Node) {
	s := f.note(node)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judge()
	f.act(ctx, node.Name, s)
	select {
	case f.moved <- struct{}{}:
	default:
	}
}

// note keeps what one version of a node says.
func (f *fleet) note(node *corev1.Node) *seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.nodes[node.Name]
	if s == nil {
		s = &seen{}
		f.nodes[node.Name] = s
	}
	before := s.upgradeReport
	s.at = number(node.ResourceVersion)
	s.upgradeReport, s.grant = accel.ParseUpgradeReport(node.Annotations[wordKey]),
		accel.ParseGrant(node.Annotations[grantKey])
	s.ready, s.version, s.canary = node.Labels[servesKey] == string(accel.Ready), node.Labels[versionKey],
		node.Labels[canaryKey] != ""
	if s.upgradeReport.Phase == accel.ReportUpgrading && before != s.upgradeReport {
		f.begin(node.Name, s)
	}
	return s
}

// begin judges a node that says it is at it.
func (f *fleet) begin(name string, s *seen) {
	f.begun[name+" "+s.upgradeReport.Version]++
	if n := f.begun[name+" "+s.upgradeReport.Version]; n > 1 {
		f.t.Errorf("%s began %d times with version %s", name, n, s.upgradeReport.Version)
	}
	if s.canary {
		return
	}
	for other, o := range f.nodes {
		if o.canary && o.version != s.upgradeReport.Version && o.upgradeReport.Phase != accel.ReportFailed {
			f.t.Errorf("%s began before %s, which comes first, had version %s", name, other, s.upgradeReport.Version)
			return
		}
	}
}

// judge holds what is seen now to the limits.
func (f *fleet) judge() {
	var now limits
	for _, s := range f.nodes {
		if s.upgradeReport.Phase == accel.ReportUpgrading {
			now.parallel++
		}
		if !s.ready {
			now.unavailable++
		}
		if s.upgradeReport.Phase == accel.ReportFailed && s.upgradeReport.Version == f.want {
			now.stop++
		}
	}
	f.most = limits{
		max(f.most.parallel, now.parallel), max(f.most.unavailable, now.unavailable),
		max(f.most.stop, now.stop),
	}
	if l := f.limits; l != (limits{}) && (now.parallel > l.parallel || now.unavailable > l.unavailable ||
		now.stop > l.stop+l.parallel-1) {
		f.t.Errorf("%+v at a time, limits %+v", now, l)
	}
}

// act is what an agent does when it sees this of its node: see agent/loop/decide_upgrade.go. It does one thing at a
// time, and looks only at what is as new as its own last write.
func (f *fleet) act(ctx context.Context, name string, s *seen) {
	want := f.want
	granted := s.grant.Version == want && s.upgradeReport.Version == want
	switch {
	case s.busy || s.at < s.wrote:
	case s.upgradeReport.Phase == accel.ReportUpgrading && granted:
		labels, upgradeReport := map[string]any{servesKey: string(accel.Ready), versionKey: want}, any(nil)
		if f.fails(name) {
			labels, upgradeReport = map[string]any{servesKey: string(accel.Ready)}, accel.UpgradeReport{
				Phase:   accel.ReportFailed,
				Version: want, Reason: accel.RolledBack,
			}.String()
		}
		f.do(ctx, name, s, time.Duration(300+rand.IntN(1200))*time.Millisecond, func() (map[string]any, any) {
			return labels, upgradeReport
		})
	case s.upgradeReport.Phase == accel.ReportWaiting && granted:
		f.do(ctx, name, s, 0, func() (map[string]any, any) {
			return map[string]any{servesKey: "pending"}, accel.UpgradeReport{
				Phase:   accel.ReportUpgrading,
				Version: want,
			}.String()
		})
	case s.version == want && s.upgradeReport == accel.UpgradeReport{}, s.upgradeReport.Version == want &&
		s.upgradeReport.Phase != accel.ReportUpgrading:
	default: // it says nothing of what is wanted, or its grant was taken back before it acted
		f.do(ctx, name, s, time.Duration(rand.IntN(5000))*time.Millisecond, func() (map[string]any, any) {
			f.mu.Lock()
			defer f.mu.Unlock()
			labels := map[string]any{servesKey: string(accel.Ready)}
			if s.version == f.want {
				return labels, nil
			}
			return labels, accel.UpgradeReport{Phase: accel.ReportWaiting, Version: f.want}.String()
		})
	}
}

// do writes labels and a word after d, and looks again then: what came in between was not acted on.
func (f *fleet) do(ctx context.Context, name string, s *seen, d time.Duration, what func() (labels map[string]any,
	upgradeReport any),
) {
	s.busy = true
	time.AfterFunc(d, func() {
		f.work <- func() {
			labels, upgradeReport := what()
			wrote := f.say(ctx, name, labels, upgradeReport)
			f.mu.Lock()
			defer f.mu.Unlock()
			s.busy, s.wrote = false, wrote
			f.act(ctx, name, s)
		}
	})
}

// say is what the agent writes, over and over until it is taken; the version that it made is returned.
func (f *fleet) say(ctx context.Context, name string, labels map[string]any, upgradeReport any) int64 {
	annotations := map[string]any{wordKey: upgradeReport}
	if version, changed := labels[versionKey].(string); changed {
		var p accel.Policy
		p.Spec.Kinds = map[string]accel.KindConfig{kind: {Driver: accel.KindDriverOverride{Version: version}}}
		annotations[accel.ServedAnnotation+kind] = p.DriverDigest(kind)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		f.t.Error(err)
		return 0
	}
	for ctx.Err() == nil {
		if node, err := f.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "acceld"}); err == nil {
			return number(node.ResourceVersion)
		}
		time.Sleep(500 * time.Millisecond) // the API server is away
	}
	return 0
}

// number is a version of an object as one that can be compared.
func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64)
	return n
}

// ask tells the agents what is wanted, as the policy does, and which of them fail at it.
func (f *fleet) ask(ctx context.Context, version string, l limits, fails func(string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want, f.limits, f.fails, f.most, f.begun = version, l, fails, limits{}, map[string]int{}
	for name, s := range f.nodes {
		f.act(ctx, name, s)
	}
}

// count is how many nodes serve what is wanted, and how many have failed at it.
func (f *fleet) count() (serve, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.nodes {
		if s.version == f.want && s.upgradeReport == (accel.UpgradeReport{}) && s.ready {
			serve++
		}
		if s.upgradeReport.Phase == accel.ReportFailed && s.upgradeReport.Version == f.want {
			failed++
		}
	}
	return serve, failed
}

// until waits for all nodes to serve but those that fail.
func (f *fleet) until(t *testing.T, fail int, d time.Duration) {
	t.Helper()
	end := time.After(d)
	shown := time.Now()
	for {
		serve, failed := f.count()
		if serve+failed == len(f.nodes) && failed >= fail {
			return
		}
		if time.Since(shown) > 20*time.Second {
			t.Logf("%d serve version %s, %d have failed", serve, f.want, failed)
			shown = time.Now()
		}
		select {
		case <-f.moved:
		case <-end:
			t.Fatalf("%d of %d nodes serve version %s, %d have failed", serve, len(f.nodes), f.want, failed)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// one in share nodes, always the same ones.
func one(share uint32) func(string) bool {
	return func(node string) bool {
		h := fnv.New32a()
		h.Write([]byte(node))
		return h.Sum32()%share == 0
	}
}
