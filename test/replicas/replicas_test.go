// Package replicas runs two replicas of the controller at a real API server, with the rights of the manifests and no
// more: who calls the Service's EndpointSlice is answered, whoever is killed, and no card is given out twice, whoever
// is asked.
package replicas

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/acceld/acceld/test/fleet"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

const (
	namespace = "acceld-system"
	name      = "acceld-controller"
	// nodes with so many cards, on each of which two pods have room.
	nodes, cards, perCard = 4, 4, 2
	// surplus pods find no room.
	surplus = 8
	// hands bind at a time.
	hands = 6
	lease = 10 * time.Second
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is the API server with the manifests applied, and two replicas.
type rig struct {
	t        *testing.T
	dir      string
	plane    *cluster.Plane
	kubectl  string
	program  string
	client   *kubernetes.Clientset
	address  string // of this host, as pods have one: not the loopback
	http     *http.Client
	replicas []*replica
	// edited says that others have written the lease. Then a replica may get it while the leader's proof still lasts;
	// it waits, and the leader may write meanwhile.
	edited bool
}

// replica is a process that stands for a pod.
type replica struct {
	name               string
	scheduler, watched int
	cmd                *exec.Cmd
	env                []string
	args               []string
	witness            *witness
}

func (r *rig) run(in string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.kubectl, append([]string{"--kubeconfig=" + r.plane.Kubeconfig()},
		args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	c, err := cache.Open(nil)
	check(t, err)
	set, err := parts.Build(t.Context(), c, progress.New(os.Stderr), parts.Cluster()...)
	check(t, err)
	r := &rig{t: t, dir: t.TempDir(), kubectl: set.Path("kubectl"), address: address(t)}
	r.plane, err = cluster.Here(t.Context(), r.dir, cluster.Config{Program: set.Path, Alone: true})
	check(t, err)
	t.Cleanup(r.plane.Stop)
	r.client, err = kubernetes.NewForConfig(r.plane.REST())
	check(t, err)
	root, err := parts.ModuleRoot(t.Context())
	check(t, err)
	for _, dir := range []string{"packaging/manifests", "packaging/manifests/controller"} {
		r.run(r.run("", "kustomize", filepath.Join(root, dir)), "apply", "--server-side", "-f", "-")
	}
	r.run("", "wait", "--for=condition=Established", "crd/acceleratorpolicies.acceld.dev", "--timeout=60s")
	r.run("", "-n", "default", "create", "serviceaccount", "default") // the controller manager would
	r.program = filepath.Join(r.dir, name)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", r.program, "./cmd/acceld-controller")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token := strings.TrimSpace(r.run("", "-n", namespace, "create", "token", name, "--duration=1h"))
	ports, err := cluster.FreePorts(4)
	check(t, err)
	for i, id := range []string{"a", "b"} {
		x := &replica{name: id, scheduler: ports[2*i], watched: ports[2*i+1], witness: watch(t, r.plane.REST())}
		kubeconfig := filepath.Join(r.dir, id+".kubeconfig")
		check(t, cluster.WriteKubeconfig(kubeconfig, &x.witness.config, token))
		config := filepath.Join(r.dir, id+".yaml")
		check(t, os.WriteFile(config, fmt.Appendf(nil,
			"listen: :%d\nwatched: :%d\ntls: {secret: acceld-controller-tls}\nresources: {prefix: %s, cards: [shares]}\nlease: {seconds: %d}\n",
			x.scheduler, x.watched, fleet.Prefix, int(lease.Seconds())), 0o600))
		x.args = []string{"--config=" + config, "--kubeconfig=" + kubeconfig, "--identity=" + id}
		x.env = append(os.Environ(), "POD_NAMESPACE="+namespace, "POD_NAME="+id, "NODE_NAME=node-"+id,
			"POD_IP="+r.address)
		r.replicas = append(r.replicas, x)
		r.begin(x)
		t.Cleanup(func() { r.end(x, syscall.SIGTERM) })
	}
	return r
}

// address of this host that a pod could have.
func address(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	check(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this host has no address of IPv4 but the loopback's, which no EndpointSlice takes")
	return ""
}

func (r *rig) begin(x *replica) {
	r.t.Helper()
	log, err := os.OpenFile(filepath.Join(r.dir, x.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(r.t, err)
	defer log.Close()
	x.cmd = exec.CommandContext(r.t.Context(), r.program, x.args...)
	x.cmd.Env, x.cmd.Stdout, x.cmd.Stderr = x.env, log, log
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(r.t, x.cmd.Start())
}

func (r *rig) end(x *replica, s syscall.Signal) {
	_ = x.cmd.Process.Signal(s)
	_ = x.cmd.Wait() // the signal is its error
	if r.t.Failed() {
		text, _ := os.ReadFile(filepath.Join(r.dir, x.name+".log"))
		r.t.Logf("%s: …%s", x.name, text[max(0, len(text)-3000):])
	}
}

// until waits for something, and returns how long it took.
func (r *rig) until(what string, is func() bool) time.Duration {
	r.t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > time.Minute {
			r.t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

func (r *rig) ready(x *replica) bool {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", x.watched))
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// leads is where the Service leads: what a kube-proxy makes of its EndpointSlices. Nil where it leads nowhere.
func (r *rig) leads(ctx context.Context) (*replica, error) {
	all, err := r.client.DiscoveryV1().EndpointSlices(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return nil, err
	}
	var found *replica
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				for _, x := range r.replicas {
					if *p.Name == "scheduler" && int(*p.Port) == x.scheduler && e.Addresses[0] == r.address &&
						e.TargetRef.Name == x.name {
						if found != nil {
							return nil, errors.New("the Service leads to two replicas")
						}
						found = x
					}
				}
			}
		}
	}
	return found, nil
}

// connect makes the scheduler's client of what is in the Secret.
func (r *rig) connect() {
	r.t.Helper()
	secret, err := r.client.CoreV1().Secrets(namespace).Get(r.t.Context(), name+"-tls", metav1.GetOptions{})
	check(r.t, err)
	pair, err := tls.X509KeyPair(secret.Data["client.crt"], secret.Data["client.key"])
	check(r.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	r.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: hands, TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{pair},
			ServerName: name + "." + namespace + ".svc",
		},
	}}
}

// ask is one request of the scheduler to a replica.
func (r *rig) ask(ctx context.Context, x *replica, verb string, body, into any) (status int, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://%s:%d/scheduler/%s", r.address,
		x.scheduler, verb), bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := r.http.Do(q)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, err
	}
	return answer.StatusCode, json.Unmarshal(text, into)
}

// populate makes nodes and pods that the scheduler of the cluster, which is not there, leaves alone.
func (r *rig) populate() []*corev1.Pod {
	t := r.t
	for i := range nodes {
		n := fleet.Node(nodeName(i), cards, fleet.Amounts{
			"shares": fmt.Sprint(10 * cards),
			"memory": fmt.Sprintf("%dG", 8*cards),
		})
		made, err := r.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		check(t, err)
		made.Status = n.Status
		_, err = r.client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		check(t, err)
	}
	var pods []*corev1.Pod
	for i := range nodes*cards*perCard + surplus {
		p := fleet.Pod(fmt.Sprintf("p%02d", i), "", "", fleet.Amounts{"shares": "1", "memory": "4G"})
		p.UID, p.Status = "", corev1.PodStatus{}
		p.Spec.Containers[0].Image = "none"
		made, err := r.client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		check(t, err)
		pods = append(pods, made)
	}
	return pods
}

func nodeName(i int) string { return fmt.Sprint("n", i) }

// schedule does for one pod what a scheduler does, over and over until it is bound or stop says enough: filter by the
// Service, then a binding; half of them are sent to both replicas at once, which nobody should do.
func (r *rig) schedule(ctx context.Context, p *corev1.Pod, unasked *atomic.Int64, stop func() bool) {
	var names []string
	for i := range nodes {
		names = append(names, nodeName(i))
	}
	for ctx.Err() == nil && !stop() {
		time.Sleep(50 * time.Millisecond)
		now, err := r.client.CoreV1().Pods("default").Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			continue
		}
		if now.Spec.NodeName != "" {
			return
		}
		to, err := r.leads(ctx)
		if err != nil {
			r.t.Error(err)
			return
		}
		if to == nil {
			continue
		}
		var filtered struct{ NodeNames []string }
		if status, err := r.ask(ctx, to, "filter", map[string]any{"Pod": now, "NodeNames": names},
			&filtered); err != nil || status != http.StatusOK || len(filtered.NodeNames) == 0 {
			continue
		}
		asked := []*replica{to}
		if rand.IntN(2) == 0 {
			asked = r.replicas
		}
		var group sync.WaitGroup
		for _, x := range asked {
			node := filtered.NodeNames[rand.IntN(len(filtered.NodeNames))]
			group.Go(func() {
				var answer struct{ Error string }
				if status, err := r.ask(ctx, x, "bind", map[string]any{
					"PodName": p.Name, "PodNamespace": "default",
					"PodUID": p.UID, "Node": node,
				}, &answer); err == nil && status == http.StatusServiceUnavailable {
					unasked.Add(1)
				}
			})
		}
		group.Wait()
	}
}

// bench is a rig whose replicas bind pods all the while.
type bench struct {
	*rig
	current *replica // where the Service leads
	pods    []*corev1.Pod
	work    chan *corev1.Pod
	unasked atomic.Int64 // bindings that were sent to a replica that does not lead, and refused
	enough  atomic.Bool
	hands   sync.WaitGroup
}

// newBench returns a bench with two replicas that are ready. It binds what is sent.
func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_TESTBED=1 is not set: it takes a real API server, which make test builds")
	}
	b := &bench{rig: newRig(t)}
	for _, x := range b.replicas {
		t.Logf("replica %s is ready after %.1f s", x.name, b.until("both replicas are ready", func() bool {
			return b.ready(x)
		}).Seconds())
	}
	b.connect()
	b.until("the Service leads to one that answers", b.leader(nil))
	b.pods = b.populate()
	b.work = make(chan *corev1.Pod, len(b.pods))
	for range hands {
		b.hands.Go(func() {
			for p := range b.work {
				b.schedule(t.Context(), p, &b.unasked, b.enough.Load)
			}
		})
	}
	return b
}

// leader reports whether the Service leads to a replica that answers, and is not another one.
func (b *bench) leader(not *replica) func() bool {
	return func() bool {
		x, err := b.leads(b.t.Context())
		check(b.t, err)
		if b.current = x; x == nil || x == not {
			return false
		}
		var answer struct{ NodeNames []string }
		status, err := b.ask(b.t.Context(), x, "filter",
			map[string]any{"Pod": fleet.Pod("x", "", "", fleet.Amounts{"shares": "1"}), "NodeNames": []string{}},
			&answer)
		return err == nil && status == http.StatusOK
	}
}

// send lets the hands bind n more pods.
func (b *bench) send(n int) (sent []*corev1.Pod) {
	sent, b.pods = b.pods[:n], b.pods[n:]
	for _, p := range sent {
		b.work <- p
	}
	return sent
}

// fill sends the rest, of which some find no room, and judges all that has happened.
func (b *bench) fill() {
	b.t.Helper()
	b.send(len(b.pods))
	close(b.work)
	want := nodes * cards * perCard
	b.until("every card is full", func() bool { return b.bound() >= want })
	time.Sleep(time.Second) // the surplus goes on asking
	b.enough.Store(true)
	b.hands.Wait()
	if got := b.bound(); got != want {
		b.t.Errorf("%d pods are bound, and there is room for %d", got, want)
	}
	if b.unasked.Load() == 0 {
		b.t.Error("no binding was sent to a replica that does not lead: nothing is shown about that")
	}
	b.t.Logf("%d bindings were sent to a replica that does not lead, and refused", b.unasked.Load())
	b.proven()
}

// TestReplicas binds pods while replicas come and go.
func TestReplicas(t *testing.T) {
	b := newBench(t)
	// A part of the pods in each term: while one is the leader, and while nobody is.
	b.send(6)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		ended := b.current
		gone := make(chan struct{})
		go func() { // in the midst of bindings
			defer close(gone)
			time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
			b.end(ended, s)
		}()
		b.send(4)
		t.Logf("%v of %s: the Service leads to another one that answers after %.1f s", s, ended.name,
			b.until("another replica answers", b.leader(ended)).Seconds())
		b.send(4)
		<-gone
		b.begin(ended)
		b.until("the one that was ended is ready", func() bool { return b.ready(ended) })
	}
	b.fill()
}

// bound counts the pods that are, and finds those that are not as they must be.
func (r *rig) bound() int {
	r.t.Helper()
	all, err := r.client.CoreV1().Pods("default").List(r.t.Context(), metav1.ListOptions{})
	check(r.t, err)
	held, n := map[string]int{}, 0
	for _, p := range all.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		n++
		card := p.Annotations["gas-container-cards"]
		if held[p.Spec.NodeName+" "+card]++; card == "" || held[p.Spec.NodeName+" "+card] > perCard {
			r.t.Errorf("pod %s has card %q of %s, which has room for %d", p.Name, card, p.Spec.NodeName, perCard)
		}
	}
	return n
}
