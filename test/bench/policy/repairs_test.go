package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/acceld/acceld/accel"
)

const (
	repairKey = accel.RepairAnnotation + kind
	permitKey = accel.AllowRepairAnnotation + kind
	rackKey   = "rack"
	// perRack is how many nodes a rack has.
	perRack = 25
	// repairSeconds is how long the reset of a played device takes at most.
	repairSeconds = 4
)

// budget is what nobody may exceed.
type budget struct{ nodes, devices, rack int }

// patient is a node.
type patient struct {
	rack   string
	report accel.RepairReport // as the watch showed it last
	permit accel.RepairPermit
	ill    int // devices that need a reset
	since  time.Time
	at     int64 // version of the object that was seen last
	wrote  int64 // version that its agent wrote last
	busy   bool  // its agent is about to write, or repairs a device
}

// clinic is the agents of all nodes, and the judge of them: what it says comes from the watch of the nodes alone.
type clinic struct {
	t      *testing.T
	client *kubernetes.Clientset
	work   chan func()

	mu    sync.Mutex
	nodes map[string]*patient
	names []string
	limit budget
	most  budget // what was seen at most
	// took are the times from fault to repair, begun the nodes that began since they were counted last.
	took  []time.Duration
	begun map[string]int
}

func newClinic(t *testing.T, client *kubernetes.Clientset, n int) *clinic {
	t.Helper()
	c := &clinic{
		t: t, client: client, work: make(chan func(), n*4), nodes: map[string]*patient{}, begun: map[string]int{},
	}
	startHands(c.work)
	makeNodes(t, client, c.work, n, func(i int, labels map[string]string) {
		labels[rackKey] = fmt.Sprintf("rack-%03d", i/perRack)
	})
	return c
}

func (c *clinic) watch() *nodeWatch {
	see := func(ctx context.Context, node *corev1.Node) {
		p := c.note(node)
		c.judge()
		c.act(ctx, node.Name, p)
	}
	return &nodeWatch{
		client: c.client,
		one: func(ctx context.Context, node *corev1.Node) {
			c.mu.Lock()
			defer c.mu.Unlock()
			see(ctx, node)
		},
		all: func(ctx context.Context, nodes []corev1.Node) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for i := range nodes {
				c.note(&nodes[i])
			}
			for i := range nodes {
				see(ctx, &nodes[i])
			}
		},
	}
}

// note keeps what one version of a node says.
func (c *clinic) note(node *corev1.Node) *patient {
	p := c.nodes[node.Name]
	if p == nil {
		p = &patient{rack: node.Labels[rackKey]}
		c.nodes[node.Name] = p
		c.names = append(c.names, node.Name)
		slices.Sort(c.names)
	}
	before := p.report.Phase
	p.at = number(node.ResourceVersion)
	p.report = accel.ParseRepairReport(node.Annotations[repairKey])
	p.permit = accel.ParseRepairPermit(node.Annotations[permitKey])
	if p.report.Acts() && before != p.report.Phase {
		c.begun[p.rack]++
	}
	return p
}

// judge compares what is seen now with the limits.
func (c *clinic) judge() {
	now, racks := budget{}, map[string]int{}
	for _, p := range c.nodes {
		if p.report.Acts() {
			now.nodes++
			now.devices += p.report.Ill
			racks[p.rack]++
			now.rack = max(now.rack, racks[p.rack])
		}
	}
	c.most = budget{max(c.most.nodes, now.nodes), max(c.most.devices, now.devices), max(c.most.rack, now.rack)}
	if l := c.limit; l != (budget{}) && (now.nodes > l.nodes || now.devices > l.devices || now.rack > l.rack) {
		c.t.Errorf("%+v at a time, limits %+v", now, l)
	}
}

// act is what an agent does when it sees this of its node: see agent/loop/handshake.go. It does one thing at a time,
// and looks only at what is as new as its own last write.
func (c *clinic) act(ctx context.Context, name string, p *patient) {
	if p.busy || p.at < p.wrote {
		return
	}
	want := accel.RepairReport{}
	if p.ill > 0 {
		want = accel.RepairReport{Phase: accel.RepairPhaseWaiting, Ill: p.ill, Devices: 8}
		if p.permit.Given {
			want.Phase = accel.RepairPhaseActing
		}
	}
	switch {
	case p.report != want:
		p.busy = true
		c.work <- func() {
			wrote := c.say(ctx, name, want)
			c.mu.Lock()
			defer c.mu.Unlock()
			p.busy, p.wrote = false, wrote
			c.act(ctx, name, p)
		}
	case want.Phase == accel.RepairPhaseActing:
		p.busy = true
		time.AfterFunc(time.Duration(rand.IntN(repairSeconds*1000))*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			p.busy = false
			p.ill = max(0, p.ill-1)
			if p.ill == 0 {
				c.took = append(c.took, time.Since(p.since))
			}
			c.act(ctx, name, p)
		})
	}
}

// say is what the agent writes, over and over until it is taken; the version that it made is returned.
func (c *clinic) say(ctx context.Context, name string, r accel.RepairReport) int64 {
	value := any(r.String())
	if r == (accel.RepairReport{}) {
		value = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{repairKey: value}}})
	if err != nil {
		c.t.Error(err)
		return 0
	}
	for ctx.Err() == nil {
		if node, err := c.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "acceld"}); err == nil {
			return number(node.ResourceVersion)
		}
		time.Sleep(500 * time.Millisecond) // the API server is away
	}
	return 0
}

// fail makes devices of nodes ill; none heals them.
func (c *clinic) fail(ctx context.Context, devices int, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		p := c.nodes[name]
		if p.ill == 0 {
			p.since = time.Now()
		}
		p.ill = devices
		c.act(ctx, name, p)
	}
}

// some picks nodes at random that are well.
func (c *clinic) some(n int) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range rand.Perm(len(c.names)) {
		if len(names) < n && c.nodes[c.names[i]].ill == 0 {
			names = append(names, c.names[i])
		}
	}
	return names
}

// ill is how many nodes have devices that need a reset, or say so.
func (c *clinic) ill() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.nodes {
		if p.ill > 0 || p.report.Phase != "" {
			n++
		}
	}
	return n
}

// repaired waits until no more than left nodes are ill.
func (c *clinic) repaired(left int, d time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(d); c.ill() > left; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%d nodes are ill, want %d", c.ill(), left)
		}
	}
}

// times returns how many repairs there were since the last call, and the median and the 99th percentile of the time
// from fault to repair.
func (c *clinic) times() (n int, p50, p99 time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	if n = len(c.took); n > 0 {
		p50, p99 = c.took[n/2], c.took[n*99/100]
	}
	c.took = nil
	return n, p50, p99
}

// count returns how many nodes began to repair devices since the last call: in a rack, and elsewhere.
func (c *clinic) count(rack string) (in, elsewhere int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, n := range c.begun {
		if r == rack {
			in += n
		} else {
			elsewhere += n
		}
	}
	c.begun = map[string]int{}
	return in, elsewhere
}

// limitRepairs asks for limits on repairs.
func (r *rig) limitRepairs(l budget) {
	r.t.Helper()
	r.kubectl(fmt.Sprintf(`apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: fleet}
spec:
  kinds: {%s: {repair: {reset: evict}}}
  repair: {maxParallel: %d, maxDevices: %d, domain: %s, maxPerDomain: %d, breaker: 10%%}
`, kind, l.nodes, l.devices, rackKey, l.rack), "apply", "--server-side", "-f", "-")
}

// repairs waits for the reason of the policy's condition Repair.
func (r *rig) repairs(reason string) {
	r.t.Helper()
	r.kubectl("", "wait", "acceleratorpolicy/fleet", `--for=jsonpath={.status.conditions[?(@.type=="Repair")].reason}=`+
		reason, "--timeout=3m")
	r.t.Log(r.kubectl("", "get", "acceleratorpolicy/fleet",
		`-o=jsonpath={.status.conditions[?(@.type=="Repair")].message}`))
}

// TestRepairs lets devices of 5,000 nodes fail: some at random, in peace for the figures and then with replicas that
// are killed every few seconds; a rack at once; and a third of all nodes by a false alarm.
func TestRepairs(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" || os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_BENCH=1 and ACCELD_TESTBED=1 run it, as make figures does")
	}
	r := newRig(t)
	config := r.plane.REST()
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	nodes := *fleetSize
	c := newClinic(t, client, nodes)
	ctx, cancel := context.WithCancel(t.Context())
	seen := c.watch()
	var following sync.WaitGroup
	following.Go(func() { seen.follow(ctx) })
	defer following.Wait()
	defer cancel()
	r.kubectl("", "wait", "node/node-00000", "--for=condition=Ready", "--timeout=5m")
	c.limit = budget{nodes: 20, devices: 40, rack: 2}
	r.limitRepairs(c.limit)
	a, b := r.replica("a"), r.replica("b")
	r.repairs("Idle")

	_, _, _, from := r.requests(0)
	c.atRandom(ctx, 200)
	counts, writes, _, _ := r.requests(from)
	n, p50, p99 := c.times()
	_, _, peak := a.used()
	_, _, other := b.used()
	t.Logf("in peace: %d repairs, fault to repaired p50 %.1f s, p99 %.1f s (a reset takes up to %d s); %.1f writes of the controller for each: %v; at most %+v of %+v; memory at most %.0f MB",
		n, p50.Seconds(), p99.Seconds(), repairSeconds, float64(writes)/float64(max(1, n)), counts, c.most, c.limit,
		max(peak, other))

	stop := killing(10*time.Second, []*replica{a, b}) // a lease is 10 s
	c.atRandom(ctx, 200)
	kills := stop()
	n, p50, p99 = c.times()
	t.Logf("with %d kills of replicas: %d repairs, p50 %.1f s, p99 %.1f s; at most %+v", kills, n, p50.Seconds(), p99.Seconds(), c.most)

	c.rack(ctx, r)
	c.flood(ctx, r)
	if gaps := seen.gaps.Load(); gaps > 0 {
		t.Logf("%d gaps in what was seen", gaps)
	}
}

// atRandom lets devices of so many nodes fail, a little slower than they can be repaired within the limits, and waits
// until all are repaired.
func (c *clinic) atRandom(ctx context.Context, nodes int) {
	c.t.Helper()
	for range nodes {
		c.fail(ctx, 1+rand.IntN(2), c.some(1)...)
		time.Sleep(300 * time.Millisecond)
	}
	c.repaired(0, 5*time.Minute)
}

// rack lets all nodes of a rack fail within two seconds, and others meanwhile.
func (c *clinic) rack(ctx context.Context, r *rig) {
	c.t.Helper()
	const rack = "rack-003"
	c.count(rack)
	for i := range perRack {
		c.fail(ctx, 4, fmt.Sprintf("node-%05d", 3*perRack+i))
		time.Sleep(2 * time.Second / perRack)
	}
	time.Sleep(15 * time.Second) // for those that began before most nodes of the rack had failed
	in, _ := c.count(rack)
	for range 50 {
		c.fail(ctx, 1, c.some(1)...)
		time.Sleep(300 * time.Millisecond)
	}
	c.repaired(perRack, 3*time.Minute)
	r.repairs("DomainBreaker")
	again, elsewhere := c.count(rack)
	c.t.Logf("a rack of %d nodes fails: %d of its nodes began before most of them had failed, %d after; elsewhere %d were repaired meanwhile",
		perRack, in, again, elsewhere)
	if again > 0 || elsewhere < 50 {
		c.t.Errorf("%d nodes of the failed rack began, %d elsewhere", again, elsewhere)
	}
	for i := range perRack { // its power is back
		c.fail(ctx, 0, fmt.Sprintf("node-%05d", 3*perRack+i))
	}
	c.repaired(0, 3*time.Minute)
}

// flood is a false alarm of a third of all nodes within ten seconds, which ends by itself.
func (c *clinic) flood(ctx context.Context, r *rig) {
	c.t.Helper()
	c.count("")
	alarmed := c.some(len(c.names) / 3)
	begin := time.Now()
	for i, name := range alarmed {
		c.fail(ctx, 2, name)
		time.Sleep(time.Until(begin.Add(time.Duration(i) * 10 * time.Second / time.Duration(len(alarmed)))))
	}
	r.repairs("Breaker")
	_, early := c.count("")
	time.Sleep(20 * time.Second)
	_, late := c.count("")
	c.t.Logf("a false alarm on %d nodes: %d began before the breaker had been written, %d in the 20 s after", len(alarmed),
		early, late)
	if late > 0 {
		c.t.Errorf("%d nodes began after the breaker", late)
	}
	for _, name := range alarmed {
		c.fail(ctx, 0, name)
	}
	c.repaired(0, 3*time.Minute)
	r.repairs("Idle")
	c.atRandom(ctx, 10)
	n, p50, _ := c.times()
	c.t.Logf("after the alarm: %d repairs, p50 %.1f s", n, p50.Seconds())
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		left := c.permitted(ctx)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%v may still repair", left)
		}
	}
}

// permitted returns the nodes that may repair devices.
func (c *clinic) permitted(ctx context.Context) (names []string) {
	c.t.Helper()
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	check(c.t, err)
	for _, node := range list.Items {
		if accel.ParseRepairPermit(node.Annotations[permitKey]).Given {
			names = append(names, node.Name)
		}
	}
	return names
}
