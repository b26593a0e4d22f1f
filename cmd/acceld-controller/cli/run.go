package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/acceld/acceld/controller/extender"
)

// gcPercent of what is kept may be garbage: what is kept hardly changes, so collecting twice as often costs little.
const gcPercent = 50

// run serves until ctx ends.
func run(ctx context.Context, c *Config, kubeconfig, identity string, log *slog.Logger) error {
	debug.SetGCPercent(gcPercent)
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	config, err := c.TLS.TLS(log)
	if err != nil {
		return err
	}
	e := extender.New(&c.Resources, api(client), c.Packing, log)
	if c.CardNodes != nil {
		e.Metrics().CardNodes = *c.CardNodes
	}
	tasks, ctx := errgroup.WithContext(ctx)
	var l net.ListenConfig
	scheduler, err := l.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	tasks.Go(func() error { return extender.Serve(ctx, scheduler, e.Handler(), config, log) })
	if c.Watched != "off" {
		watched, err := l.Listen(ctx, "tcp", c.Watched)
		if err != nil {
			return fmt.Errorf("cannot listen: %w", errors.Join(err, scheduler.Close()))
		}
		tasks.Go(func() error { return extender.Serve(ctx, watched, watchedHandler(e), nil, log) })
	}
	tasks.Go(func() error { return stand(ctx, c.Lease, name(identity), client, e, log) })
	return tasks.Wait()
}

func newClient(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server: %w", err)
	}
	config.UserAgent = "acceld-controller"
	config.ContentType = runtime.ContentTypeProtobuf
	config.QPS = -1 // one write for each pod that the scheduler binds: it has its own limits
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the way to the API server: %w", err)
	}
	return client, nil
}

func api(client *kubernetes.Clientset) extender.API {
	return extender.API{
		Pod: func(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
			return client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Bind: func(ctx context.Context, b *corev1.Binding) error {
			return client.CoreV1().Pods(b.Namespace).Bind(ctx, b, metav1.CreateOptions{})
		},
	}
}

func sources(client *kubernetes.Clientset) extender.Sources {
	core := client.CoreV1().RESTClient()
	bound := fields.ParseSelectorOrDie(extender.BoundPods)
	return extender.Sources{
		Nodes: cache.NewListWatchFromClient(core, "nodes", metav1.NamespaceAll, fields.Everything()),
		Pods:  cache.NewListWatchFromClient(core, "pods", metav1.NamespaceAll, bound),
	}
}

// name is under what this replica stands for election.
func name(identity string) string {
	if identity != "" {
		return identity
	}
	host, err := os.Hostname()
	if err != nil {
		host = "acceld-controller"
	}
	return host + "_" + string(uuid.NewUUID())
}

// stand stands for election over and over until ctx ends. In office it keeps the books; when ctx ends it leaves office before it
// gives the lease back, so that at no time two replicas bind.
func stand(ctx context.Context, l Lease, identity string, client *kubernetes.Clientset, e *extender.Extender, log *slog.Logger) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	lease, deadline, retry := l.durations()
	for ctx.Err() == nil {
		// The election outlives ctx until the office is left.
		election, end := context.WithCancel(context.WithoutCancel(ctx))
		left := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry, ReleaseOnCancel: true, Name: l.Name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					defer close(left)
					defer end()
					log.Info("in office", "identity", identity)
					term, leave := context.WithCancel(term)
					defer leave()
					defer context.AfterFunc(ctx, leave)()
					e.Lead(term, sources(client))
					log.Info("out of office", "identity", identity)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			end()
			return fmt.Errorf("cannot stand for election: %w", err)
		}
		unelected := context.AfterFunc(ctx, func() {
			if !elector.IsLeader() {
				end()
			}
		})
		elector.Run(election)
		unelected()
		if election.Err() == nil { // the lease was lost
			<-left
		}
		end()
	}
	return nil
}

// watchedHandler serves what probes and Prometheus ask for.
func watchedHandler(e *extender.Extender) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(e.Metrics(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !e.Ready() {
			http.Error(w, "another replica is in office, or the books are not complete yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	return mux
}
