// Package policy measures the controller at a real API server with thousands of nodes, which kwok keeps alive, and with
// eight accelerators each: how many writes and requests a rollout needs, memory and processor, and how little an idle
// fleet asks for. The agents are played here; that no limit is passed is seen from the watch of the nodes, not from the
// controller's word.
package policy

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/acceld/acceld/test/bench/audit"
	"github.com/acceld/acceld/test/bench/usage"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

// fleetSize may be less to try something.
var fleetSize = flag.Int("nodes", 5000, "how many nodes")

const (
	canaries = 10
	// hands write for the agents at a time.
	hands = 32
	// account is the controller's.
	account = "system:serviceaccount:acceld-system:acceld-controller"
)

func eight() resource.Quantity { return *resource.NewQuantity(8, resource.DecimalSI) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alive is what kwok does with a node that is not ready: it says that it is. Leases keep it so.
const alive = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: alive}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select(.type == "Ready") | .status', operator: NotIn, values: ["True"]}
  next:
    patches:
    - subresource: status
      root: status
      template: |
        conditions:
        - {type: Ready, status: "True", reason: Played, message: by kwok, lastHeartbeatTime: {{ Now | Quote }}, lastTransitionTime: {{ Now | Quote }}}
`

// rig is the cluster and the controller's way into it.
type rig struct {
	t          *testing.T
	dir        string
	plane      *cluster.Plane
	programs   parts.Set
	kubeconfig string // the controller's
	audit      string
	controller string // the program
	config     string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	c, err := cache.Open(nil)
	check(t, err)
	set, err := parts.Build(t.Context(), c, progress.New(os.Stderr), append(parts.Cluster(), parts.Kwok)...)
	check(t, err)
	r := &rig{t: t, dir: t.TempDir(), programs: set}
	r.audit = filepath.Join(r.dir, "audit.log")
	auditing := r.write("audit.yaml", audit.Policy(account))
	r.plane, err = cluster.Here(t.Context(), r.dir, cluster.Config{
		Program:   set.Path,
		APIServer: []string{"--audit-policy-file=" + auditing, "--audit-log-path=" + r.audit},
		Manager:   []string{"--node-monitor-grace-period=1h"},
	})
	check(t, err)
	t.Cleanup(r.plane.Stop)
	root, err := parts.ModuleRoot(t.Context())
	check(t, err)
	r.kubectl("", "apply", "-f", filepath.Join(root, "packaging", "manifests", "namespace.yaml"))
	manifests := r.kubectl("", "kustomize", filepath.Join(root, "packaging", "manifests", "controller"))
	r.kubectl(manifests, "apply", "--server-side", "-f", "-")
	r.kubectl("", "wait", "--for=condition=Established", "crd/acceleratorpolicies.acceld.dev", "--timeout=60s")
	r.kubectl("", "-n", "acceld-system", "delete", "deployment", "acceld-controller", "--ignore-not-found")
	r.identify()
	r.controller = filepath.Join(r.dir, "acceld-controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", r.controller, "./cmd/acceld-controller")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.config = r.write("controller.yaml", "policies: true\nwatched: \"off\"\nlease: {seconds: 10}\n")
	r.start("kwok", set.Path("kwok"), "--kubeconfig="+r.plane.Kubeconfig(), "--manage-all-nodes=true",
		"--node-lease-duration-seconds=600",
		"--server-address=127.0.0.1:0", "--config="+r.write("kwok.yaml", alive))
	return r
}

// identify makes the controller's kubeconfig: its account's token, and the rights of the manifests alone.
func (r *rig) identify() {
	r.t.Helper()
	token := r.kubectl("", "-n", "acceld-system", "create", "token", "acceld-controller", "--duration=3h")
	r.kubeconfig = filepath.Join(r.dir, "controller.kubeconfig")
	check(r.t, cluster.WriteKubeconfig(r.kubeconfig, r.plane.REST(), token))
}

func (r *rig) write(name, text string) string {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	check(r.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (r *rig) kubectl(in string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.programs.Path("kubectl"),
		append([]string{"--kubeconfig=" + r.plane.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("kubectl %v: %v\n%s", args, err, errs.String())
	}
	return string(out)
}

// start runs a program until the test ends; its words are in a file.
func (r *rig) start(name, program string, args ...string) *exec.Cmd {
	r.t.Helper()
	log, err := os.OpenFile(filepath.Join(r.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(r.t, err)
	r.t.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); err == nil && r.t.Failed() {
			r.t.Logf("%s: …%s", name, text[max(0, len(text)-4000):])
		}
	})
	cmd := exec.CommandContext(r.t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(r.t, cmd.Start())
	log.Close()
	return cmd
}

// apply asks for a version within limits.
func (r *rig) apply(version string, l limits) {
	r.t.Helper()
	r.kubectl(fmt.Sprintf(`apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: fleet}
spec:
  kinds: {%s: {driver: {version: %q}}}
  upgrade: {maxParallel: %d, maxUnavailable: %d, stopAfter: %d, canary: {nodeSelector: {%s: "true"}}}
`, kind, version, l.parallel, l.unavailable, l.stop, canaryKey), "apply", "--server-side", "-f", "-")
}

// ready waits for the reason of the policy's condition.
func (r *rig) ready(reason string) {
	r.t.Helper()
	r.kubectl("", "wait", "acceleratorpolicy/fleet", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=`+
		reason, "--timeout=5m")
	r.t.Log("\n" + r.kubectl("", "get", "acceleratorpolicies"))
}

// requests counts what the controller asked for since offset in the audit log, by kind of request; leases by
// themselves.
func (r *rig) requests(offset int64) (counts map[string]int, writes, leases int, end int64) {
	r.t.Helper()
	c, err := audit.Since(r.audit, offset)
	check(r.t, err)
	return c.ByKind, c.Writes, c.Leases, c.End
}

// replica is a controller that is started again whenever it has ended.
type replica struct {
	r    *rig
	name string
	mu   sync.Mutex
	cmd  *exec.Cmd
	// of those that have ended
	cpu  time.Duration
	peak float64 // MB
}

func (r *rig) replica(name string) *replica {
	c := &replica{r: r, name: name}
	c.begin()
	r.t.Cleanup(func() { c.kill(syscall.SIGTERM) })
	return c
}

func (c *replica) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd = c.r.start("controller-"+c.name, c.r.controller, "--config="+c.r.config, "--kubeconfig="+c.r.kubeconfig,
		"--identity="+c.name)
}

// kill ends it, and notes what it has used.
func (c *replica) kill(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.cmd.Process.Signal(s)
	_ = c.cmd.Wait() // the signal is its error
	c.cpu += c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
	if u, ok := c.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.peak = max(c.peak, float64(u.Maxrss)*1024/1e6)
	}
}

// used is the processor time so far, and the memory now and at most in MB.
func (c *replica) used() (cpu time.Duration, now, peak float64) {
	c.r.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	pid := c.cmd.Process.Pid
	cpu, err := usage.Processor(pid)
	check(c.r.t, err)
	now, peak, err = usage.Memory(pid)
	check(c.r.t, err)
	return c.cpu + cpu, now / 1e6, max(c.peak, peak/1e6)
}

// TestRollout changes a policy for 5,000 nodes: once in peace, for the figures; once with nodes that fail, replicas
// killed every few seconds and the API server away in between; and to a version that no node can load, which stops.
func TestRollout(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" || os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_BENCH=1 and ACCELD_TESTBED=1 run it, as make figures does")
	}
	r := newRig(t)
	config := r.plane.REST()
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	begin := time.Now()
	nodes := *fleetSize
	f := newFleet(t, client, nodes, canaries)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	seen := f.watch()
	following.Go(func() { seen.follow(ctx) })
	defer following.Wait()
	defer cancel()
	f.until(t, 0, 5*time.Minute)
	r.kubectl("", "wait", "node/node-00000", "--for=condition=Ready", "--timeout=1m")
	t.Logf("%d nodes after %.0f s", nodes, time.Since(begin).Seconds())
	l := limits{parallel: 200, unavailable: 250, stop: 50}
	r.apply("1", l)
	a, b := r.replica("a"), r.replica("b")
	r.ready("AllReady")

	r.inPeace(ctx, f, l, a, b)
	r.idle(a, b)
	r.inTrouble(ctx, f, seen, l, a, b)
	bad := limits{parallel: 5, unavailable: 250, stop: 3}
	f.ask(ctx, "4", bad, func(string) bool { return true })
	r.apply("4", bad)
	r.ready("Stopped")
	_, failed := f.count()
	t.Logf("a version that no node can load: stopped after %d nodes", failed)
	f.ask(ctx, "3", l, func(string) bool { return false })
	r.apply("3", l)
	f.until(t, 0, 5*time.Minute)
	r.ready("AllReady")
}

// inPeace is a rollout with nothing in its way.
func (r *rig) inPeace(ctx context.Context, f *fleet, l limits, replicas ...*replica) {
	t, nodes := r.t, float64(len(f.nodes))
	_, _, _, from := r.requests(0)
	var before time.Duration
	for _, c := range replicas {
		cpu, _, _ := c.used()
		before += cpu
	}
	begin := time.Now()
	f.ask(ctx, "2", l, func(string) bool { return false })
	r.apply("2", l)
	f.until(t, 0, 15*time.Minute)
	took := time.Since(begin)
	r.ready("AllReady")
	counts, writes, leases, _ := r.requests(from)
	var after time.Duration
	peak := 0.0
	for _, c := range replicas {
		cpu, _, high := c.used()
		after += cpu
		peak = max(peak, high)
	}
	all := 0
	for _, n := range counts {
		all += n
	}
	t.Logf("%.0f nodes have another version after %.0f s, %.0f a second; at most %d at a time of %d, %d without of %d",
		nodes, took.Seconds(), nodes/took.Seconds(),
		f.most.parallel, l.parallel, f.most.unavailable, l.unavailable)
	t.Logf(
		"the controller: %.2f writes and %.2f requests for each, %.1f requests a second and %d of leases in all; processor %.1f s of %.0f (%.2f ms for each node), memory at most %.0f MB",
		float64(writes)/nodes, float64(all)/nodes, float64(all)/took.Seconds(), leases, (after - before).Seconds(),
		took.Seconds(), (after-before).Seconds()*1000/nodes, peak)
	t.Logf("%v", counts)
}

// idle is a fleet in which nothing happens.
func (r *rig) idle(replicas ...*replica) {
	const long = 90 * time.Second
	time.Sleep(15 * time.Second) // what the end of a rollout still writes
	_, _, _, from := r.requests(0)
	var before, after time.Duration
	for _, c := range replicas {
		cpu, _, _ := c.used()
		before += cpu
	}
	time.Sleep(long)
	now := 0.0
	for _, c := range replicas {
		cpu, high, _ := c.used()
		after += cpu
		now = max(now, high)
	}
	counts, writes, leases, _ := r.requests(from)
	r.t.Logf(
		"idle for %v: %d writes, requests %v, %d of leases by two replicas; processor %.2f %% of a core, memory %.0f MB",
		long, writes, counts, leases,
		100*(after-before).Seconds()/long.Seconds(), now)
	if writes > 0 {
		r.t.Errorf("%d writes in an idle fleet: %v", writes, counts)
	}
}

// killing kills replicas at random moments, up to twice least apart, until the returned function is called, which
// returns how many it killed.
func killing(least time.Duration, replicas []*replica) (stop func() int) {
	done, ended := make(chan struct{}), make(chan int)
	go func() {
		kills := 0
		defer func() { ended <- kills }()
		for {
			select {
			case <-done:
				return
			case <-time.After(least + rand.N(least)):
			}
			c := replicas[rand.IntN(len(replicas))]
			c.kill(syscall.SIGKILL)
			c.begin()
			kills++
		}
	}()
	return func() int {
		close(done)
		return <-ended
	}
}

// inTrouble is a rollout in which nodes fail, replicas are killed, and the API server goes away.
func (r *rig) inTrouble(ctx context.Context, f *fleet, seen *nodeWatch, l limits, replicas ...*replica) {
	t := r.t
	begin := time.Now()
	some := one(uint32(max(2, len(f.nodes)/10))) // about ten nodes
	// a canary that fails ends it
	f.ask(ctx, "3", l, func(node string) bool { return !f.nodes[node].canary && some(node) })
	bad := 0
	for name := range f.nodes {
		if f.fails(name) {
			bad++
		}
	}
	r.apply("3", l)
	stop := killing(3500*time.Millisecond, replicas)
	time.Sleep(20 * time.Second)
	r.plane.StopAPIServer()
	check(t, r.plane.StartAPIServer(t.Context()))
	f.until(t, bad, 20*time.Minute)
	kills := stop()
	serve, failed := f.count()
	t.Logf(
		"with %d kills and the API server away once: %d serve, %d failed as they should after %.0f s; at most %d at a time of %d, %d without of %d; %d gaps in what was seen",
		kills, serve, failed, time.Since(begin).Seconds(), f.most.parallel, l.parallel, f.most.unavailable,
		l.unavailable, seen.gaps.Load())
	if failed != bad {
		t.Errorf("%d nodes have failed, want %d", failed, bad)
	}
	if bad == 0 {
		r.ready("AllReady")
	} else {
		r.ready("Failed")
	}
}
