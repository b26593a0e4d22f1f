package growth

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/acceld/acceld/test/bench/audit"
	"github.com/acceld/acceld/test/fleet"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

const (
	// hands create objects at a time.
	hands = 48
	// account is the controller's.
	account = "system:serviceaccount:acceld-system:acceld-controller"
	// reporting is how often a kubelet reports a node of which nothing changes (nodeStatusReportFrequency, 5 minutes by
	// default). Its lease, which it renews more often, is nothing that the controller reads.
	reporting = 5 * time.Minute
)

// policy applies to all nodes, which are as it asks.
const policy = `apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: fleet}
spec:
  kinds: {qemu-edu: {driver: {version: "1"}}}
  upgrade: {maxParallel: 10, maxUnavailable: 5%}
`

// rig is an API server without scheduler and controller manager, so that nobody but the test and the controller changes
// anything, and the way of both into it.
type rig struct {
	t          *testing.T
	dir        string
	plane      *cluster.Plane
	kubectl    string
	client     *kubernetes.Clientset
	log        string // the audit log
	program    string
	kubeconfig string // the controller's
	cert, key  string // of extender and scheduler
	nodes      int    // how many there are
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, err := cache.Open(nil)
	check(t, err)
	set, err := parts.Build(t.Context(), store, progress.New(os.Stderr), parts.Cluster()...)
	check(t, err)
	r := &rig{t: t, dir: t.TempDir(), kubectl: set.Path("kubectl")}
	r.log = filepath.Join(r.dir, "audit.log")
	r.plane, err = cluster.Here(t.Context(), r.dir, cluster.Config{
		Program: set.Path, Alone: true,
		APIServer: []string{
			"--audit-policy-file=" + r.write("audit.yaml", audit.Policy(account)), "--audit-log-path=" + r.log,
		},
	})
	check(t, err)
	t.Cleanup(r.plane.Stop)
	config := r.plane.REST()
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	r.client, err = kubernetes.NewForConfig(config)
	check(t, err)
	root, err := parts.ModuleRoot(t.Context())
	check(t, err)
	r.apply(root)
	r.program = filepath.Join(r.dir, "acceld-controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o",
		r.program, "./cmd/acceld-controller")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.cert, r.key, err = fleet.Certificate(r.dir, "both")
	check(t, err)
	return r
}

// apply brings the manifests, the policy and the service account of the pods, and makes the controller's kubeconfig.
func (r *rig) apply(root string) {
	r.t.Helper()
	manifests := filepath.Join(root, "packaging", "manifests")
	r.run("", "apply", "-f", filepath.Join(manifests, "namespace.yaml"))
	r.run(r.run("", "kustomize", filepath.Join(manifests, "controller")), "apply", "--server-side", "-f", "-")
	r.run("", "wait", "--for=condition=Established", "crd/acceleratorpolicies.acceld.dev", "--timeout=60s")
	r.run(policy, "apply", "--server-side", "-f", "-")
	no := false
	for _, namespace := range []string{"default", "acceld-system"} { // the controller manager would make it
		_, err := r.client.CoreV1().ServiceAccounts(namespace).Create(r.t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "default"}, AutomountServiceAccountToken: &no,
		}, metav1.CreateOptions{})
		check(r.t, err)
	}
	token := r.run("", "-n", "acceld-system", "create", "token", "acceld-controller", "--duration=3h")
	r.kubeconfig = filepath.Join(r.dir, "controller.kubeconfig")
	check(r.t, cluster.WriteKubeconfig(r.kubeconfig, r.plane.REST(), token))
}

func (r *rig) write(name, text string) string {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	check(r.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// run runs kubectl as the admin.
func (r *rig) run(in string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.kubectl, append([]string{"--kubeconfig=" + r.plane.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("kubectl %v: %v\n%s", args, err, errs.String())
	}
	return string(out)
}

func (r *rig) counts(from int64) audit.Counts {
	r.t.Helper()
	c, err := audit.Since(r.log, from)
	check(r.t, err)
	return c
}

// grow adds nodes, with the pods on them, until there are n.
func (r *rig) grow(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), *patience)
	defer cancel()
	var next atomic.Int64
	next.Store(int64(r.nodes))
	var workers sync.WaitGroup
	failed := make(chan error, hands)
	for range hands {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := r.add(ctx, i); err != nil {
					failed <- err
					cancel()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	for shown := time.NewTicker(20 * time.Second); ; {
		select {
		case <-shown.C:
			r.t.Logf("%d of %d nodes", next.Load(), n)
			continue
		case <-done:
		}
		shown.Stop()
		break
	}
	select {
	case err := <-failed:
		r.t.Fatal(err)
	default:
	}
	if ctx.Err() != nil {
		r.t.Fatalf("there are %d of %d nodes after %v", next.Load(), n, *patience)
	}
	r.nodes = n
}

// add creates a node, the pod of its agent, and pods that have its cards.
func (r *rig) add(ctx context.Context, i int) error {
	if _, err := r.client.CoreV1().Nodes().Create(ctx, fleet.WholeNode(i), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create node %d: %w", i, err)
	}
	pods := []*corev1.Pod{fleet.WholeAgent(i)}
	for c := range *podsEach {
		pods = append(pods, fleet.WholePod(i, c, fmt.Sprint(used(i, c))))
	}
	for _, p := range pods {
		p.UID = ""
		if _, err := r.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("cannot create pod %q: %w", p.Name, err)
		}
	}
	return nil
}

// heartbeats reports nodes as their kubelets do, evenly over d, and returns how many.
func (r *rig) heartbeats(n int, d time.Duration) int {
	r.t.Helper()
	count := int(float64(n) * d.Seconds() / reporting.Seconds())
	began := time.Now()
	var workers sync.WaitGroup
	work := make(chan int)
	for range hands {
		workers.Go(func() {
			for i := range work {
				body, err := json.Marshal(map[string]any{"status": map[string]any{
					"conditions": fleet.WholeConditions(time.Now()),
				}})
				if err == nil {
					_, err = r.client.CoreV1().Nodes().Patch(r.t.Context(), fleet.WholeName(i),
						types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
				}
				if err != nil {
					r.t.Errorf("cannot report node %d: %v", i, err)
				}
			}
		})
	}
	for k := range count {
		time.Sleep(time.Until(began.Add(d * time.Duration(k) / time.Duration(count))))
		work <- k * n / count
	}
	close(work)
	workers.Wait()
	time.Sleep(time.Until(began.Add(d)))
	if took := time.Since(began); took > d+d/10 {
		r.t.Logf("the heartbeats of %v took %.0f s: the API server takes no more", d, took.Seconds())
	}
	return count
}
