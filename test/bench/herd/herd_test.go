// Package herd measures how the watches of a whole cluster's agents come back to a real API server after its restart:
// the true client of each agent, on a connection of its own, with its watches of the node, its pods and the policies.
package herd

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

// size and down may be less to try something.
var (
	size     = flag.Int("agents", 5000, "how many agents")
	patience = flag.Duration("patience", 5*time.Minute, "how long the watches may take to come back")
	calm     = flag.Duration("calm", 90*time.Second, "how long they last before; after 80 s an earlier failure is forgotten")
	down     = flag.Duration("down", 0, "how long the API server stays away, on top of what its end and start take")
)

// perAgent is how many watches an agent has.
const perAgent = 3

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// second is what all agents sent within a second, and what became of it.
type second struct{ asked, answered, refused, watches int }

// log counts the requests of all agents by seconds, and the watches that are open.
type log struct {
	open  atomic.Int64
	mu    sync.Mutex
	began time.Time
	by    map[int]*second
}

func (l *log) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.by = time.Now(), map[int]*second{}
}

func (l *log) note(change func(*second)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := int(time.Since(l.began) / time.Second)
	if l.by[at] == nil {
		l.by[at] = &second{}
	}
	change(l.by[at])
}

// counted is the transport of one agent.
type counted struct {
	http.RoundTripper
	*log
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.note(func(s *second) { s.asked++ })
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		c.note(func(s *second) { s.refused++ })
		return answer, err
	}
	c.note(func(s *second) { s.answered++ })
	if r.URL.Query().Get("watch") != "" {
		c.open.Add(1)
		answer.Body = &stream{ReadCloser: answer.Body, ended: sync.OnceFunc(func() { c.open.Add(-1) })}
	}
	return answer, nil
}

// stream is the body of a watch.
type stream struct {
	io.ReadCloser
	ended func()
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if err != nil {
		s.ended()
	}
	return n, err
}

func (s *stream) Close() error { s.ended(); return s.ReadCloser.Close() }

// plane starts an API server with the policies' definition and the nodes.
func plane(t *testing.T, dir string) (*cluster.Plane, string) {
	t.Helper()
	c, err := cache.Open(nil)
	check(t, err)
	set, err := parts.Build(t.Context(), c, progress.New(os.Stderr), parts.Cluster()...)
	check(t, err)
	p, err := cluster.Here(t.Context(), dir, cluster.Config{Program: set.Path, Alone: true})
	check(t, err)
	t.Cleanup(p.Stop)
	root, err := parts.ModuleRoot(t.Context())
	check(t, err)
	apply := exec.CommandContext(t.Context(), set.Path("kubectl"), "--kubeconfig="+p.Kubeconfig(), "apply",
		"--server-side", "-f", filepath.Join(root, "packaging/manifests/controller/crd.yaml"))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := p.REST()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	work := make(chan int)
	var hands sync.WaitGroup
	for range 16 {
		hands.Go(func() {
			for i := range work {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
				if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range *size {
		work <- i
	}
	close(work)
	hands.Wait()
	return p, account(t, client)
}

func name(i int) string { return fmt.Sprintf("node-%05d", i) }

// account returns the token of a service account that may read everything.
func account(t *testing.T, client *kubernetes.Clientset) string {
	t.Helper()
	const account = "agents"
	_, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	check(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
	}, metav1.CreateOptions{})
	check(t, err)
	var hours int64 = 4 * 3600
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}},
		metav1.CreateOptions{})
	check(t, err)
	return token.Status.Token
}

// agent runs the tasks of one agent that reach the API server, until ctx ends.
func agent(ctx context.Context, file, node string, l *log, all *sync.WaitGroup) error {
	client, err := kube.NewClient(file, func(next http.RoundTripper) http.RoundTripper { return counted{next, l} })
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	pods := kube.NewBoundPods(client.Documents, node, quiet, func() {})
	pods.Need()
	for _, run := range []func(context.Context) error{
		kube.New(kube.Config{Client: client, Node: node, Log: quiet}).Run, pods.Run,
		kube.NewPolicies(client.Documents, quiet, nil, false, func([]accel.Policy) {}).Run,
	} {
		all.Go(func() { _ = run(ctx) })
	}
	return nil
}

// TestHerd restarts the API server under the watches of all agents, and prints the requests of each second.
func TestHerd(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" || os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_BENCH=1 and ACCELD_TESTBED=1 are not set: it measures at a real API server, as root")
	}
	dir := t.TempDir()
	p, token := plane(t, dir)
	config := p.REST()
	ca := config.CAData
	if len(ca) == 0 {
		var err error
		ca, err = os.ReadFile(config.CAFile)
		check(t, err)
	}
	l := &log{}
	l.restart()
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	for i := range *size {
		file := filepath.Join(dir, name(i))
		// Clients with the same authorities would share a connection.
		own := rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{
			CAData: fmt.Appendf(nil, "of %s\n%s", name(i), ca),
		}}
		check(t, cluster.WriteKubeconfig(file, &own, token))
		check(t, agent(ctx, file, name(i), l, &all))
		time.Sleep(5 * time.Millisecond)
	}
	want := int64(perAgent * *size)
	back := func() time.Duration {
		t.Helper()
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			if l.open.Load() >= want {
				return time.Since(began)
			}
			if time.Since(began) > *patience {
				t.Errorf("%d of %d watches after %v", l.open.Load(), want, *patience)
				return time.Since(began)
			}
		}
	}
	back()
	time.Sleep(*calm)
	t.Logf("%d agents with %d watches", *size, l.open.Load())
	l.restart()
	p.StopAPIServer()
	stopped := time.Since(l.began)
	time.Sleep(*down)
	if err := p.StartAPIServer(t.Context()); err != nil {
		t.Logf("it is not ready yet: %v", err) // so many clients also slow down its start
	}
	up := time.Since(l.began)
	back()
	whole := time.Since(l.began)
	l.print(t, stopped, up, whole)
}

// print prints the seconds from the end of the API server to when all watches are back.
func (l *log) print(t *testing.T, stopped, up, whole time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("the API server ends within %.1f s, is ready after %.1f s, and has all watches after %.1f s",
		stopped.Seconds(), up.Seconds(), whole.Seconds())
	var sum, most second
	for i := range int(whole/time.Second) + 1 {
		s := l.by[i]
		if s == nil {
			continue
		}
		t.Logf("second %3d: %5d requests, %5d answered, %5d refused", i, s.asked, s.answered, s.refused)
		sum.asked, sum.answered, sum.refused = sum.asked+s.asked, sum.answered+s.answered, sum.refused+s.refused
		most.asked, most.answered = max(most.asked, s.asked), max(most.answered, s.answered)
		if time.Duration(i)*time.Second >= up {
			most.watches = max(most.watches, s.asked)
		}
	}
	t.Logf("together: %d requests, %d answered, %d refused; at most %d in one second, %d once it was ready", sum.asked,
		sum.answered, sum.refused, most.asked, most.watches)
}
