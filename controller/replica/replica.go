package replica

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
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

	"github.com/acceld/acceld/controller/certificate"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fleet"
	"github.com/acceld/acceld/controller/leader"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/kube"
)

// gcPercent is the share of garbage, relative to live memory, that triggers a collection. Live memory hardly changes,
// so collecting twice as often as by default costs little.
const gcPercent = 50

// Replica is one process of the controller, the leader or not.
type Replica struct {
	config    *Config
	client    *kubernetes.Clientset
	documents kube.Documents
	extender  *extender.Extender   // nil: the scheduler is not answered
	keeper    *certificate.Manager // nil: the certificates are in files
	log       *slog.Logger
	identity  string

	// elector knows who the leader is. seen is whether it has read the lease.
	elector atomic.Pointer[leaderelection.LeaderElector]
	seen    atomic.Bool
	// policies are carried out while this replica leads; nil while another one leads.
	policies atomic.Pointer[policies]
}

// policies are the policies of one term of leadership, and their metrics.
type policies struct {
	*policy.Controller
	metrics *prometheus.Registry
}

// Run serves as c says until ctx ends. If identity is empty, the replica stands for election under a generated name.
func Run(ctx context.Context, c *Config, kubeconfig, identity string, log *slog.Logger) error {
	debug.SetGCPercent(gcPercent)
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	narrow, err := kube.NewClient(kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot find the API server: %w", err)
	}
	o := &Replica{config: c, client: client, documents: narrow.Documents, log: log, identity: name(identity)}
	tasks, ctx := errgroup.WithContext(ctx)
	var l net.ListenConfig
	if c.Resources != nil {
		config, err := o.tls()
		if err != nil {
			return err
		}
		if o.keeper != nil {
			tasks.Go(func() error { return o.keeper.Run(ctx) })
		}
		o.extender = extender.New(c.Resources, api(client), c.Packing, log)
		if c.CardNodes != nil {
			o.extender.Metrics().CardNodes = *c.CardNodes
		}
		scheduler, err := l.Listen(ctx, "tcp", c.Listen)
		if err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
		defer scheduler.Close()
		tasks.Go(func() error { return extender.Serve(ctx, scheduler, o.extender.Handler(), config, log) })
	}
	if c.Watched != "off" {
		watched, err := l.Listen(ctx, "tcp", c.Watched)
		if err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
		tasks.Go(func() error { return extender.Serve(ctx, watched, o.watchedHandler(), nil, log) })
	}
	tasks.Go(func() error { return o.stand(ctx) })
	return tasks.Wait()
}

// tls returns the TLS configuration for the scheduler. If the certificates are in a Secret, it creates their keeper.
func (o *Replica) tls() (*tls.Config, error) {
	if o.config.TLS.Secret == "" {
		return o.config.TLS.TLS(o.log)
	}
	namespace := o.config.Lease.Namespace
	short := service + "." + namespace
	o.keeper = &certificate.Manager{
		API: o.documents, Namespace: namespace, Name: o.config.TLS.Secret, Log: o.log,
		Names: []string{short + ".svc", short + ".svc.cluster.local", short, service},
	}
	return o.keeper.TLS(), nil
}

// term does what only the leader does, until ctx ends.
func (o *Replica) term(ctx context.Context) {
	var group sync.WaitGroup
	if k := o.service(); k != nil {
		group.Go(func() { k.Run(ctx) })
	}
	if o.extender != nil {
		group.Go(func() { o.extender.Lead(ctx, sources(o.client)) })
	}
	if o.config.Policies {
		registry := prometheus.NewRegistry()
		p, err := policy.New(policy.Options{
			API: o.documents, Namespace: o.config.Lease.Namespace, Log: o.log, Registry: registry,
		})
		if err != nil {
			o.log.Error("policies are not carried out", "error", err)
		} else {
			o.policies.Store(&policies{p, registry})
			defer o.policies.Store(nil)
			group.Go(func() { _ = p.Run(ctx) }) // it ends only with ctx
		}
	}
	group.Wait()
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
	config.QPS = -1 // one write per bound pod: the scheduler limits the rate itself
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

// name returns the name under which this replica stands for election.
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

// stand stands for election repeatedly until ctx ends, and does the leader's work while elected. It stops that work
// before it releases the lease, so that two replicas never bind at the same time.
func (o *Replica) stand(ctx context.Context) error {
	l, log := o.config.Lease, o.log
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}, Client: o.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.identity},
	}
	lease, deadline, retry := l.durations()
	for ctx.Err() == nil {
		// The election outlives ctx until this replica has stepped down.
		election, end := context.WithCancel(context.WithoutCancel(ctx))
		left := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry, Name: l.Name,
			// client-go would release the lease before it ends the term. If the API server does not answer, that
			// takes until after the lease has expired.
			ReleaseOnCancel: false,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					defer end()
					defer close(left)
					log.Info("became the leader", "identity", o.identity)
					term, leave := context.WithCancel(term)
					defer leave()
					defer context.AfterFunc(ctx, leave)()
					o.term(term)
					log.Info("no longer the leader", "identity", o.identity)
				},
				OnStoppedLeading: func() {},
				OnNewLeader:      func(string) { o.seen.Store(true) },
			},
		})
		if err != nil {
			end()
			return fmt.Errorf("cannot stand for election: %w", err)
		}
		o.elector.Store(elector)
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
		select {
		case <-left:
			o.giveBack(ctx, lock)
		default: // it has not led
		}
	}
	return nil
}

// giveBackLimit is how long a replica tries to release its lease. If it fails, the lease expires by itself.
const giveBackLimit = 2 * time.Second

// giveBack releases the lease if this replica still holds it, so that the next leader need not wait until it expires.
func (o *Replica) giveBack(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackLimit)
	defer cancel()
	held, _, err := lock.Get(ctx)
	if err == nil && held.HolderIdentity == lock.Identity() {
		now := metav1.Now()
		err = lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now, LeaderTransitions: held.LeaderTransitions,
		})
	}
	if err != nil {
		o.log.Warn("cannot release the lease", "error", err)
	}
}

// fleet returns the page for people.
func (o *Replica) fleet() http.Handler {
	f := fleet.Options{Identity: o.identity, Holder: o.leader}
	if o.config.Policies {
		f.Overview = func() (policy.Overview, bool) {
			if p := o.policies.Load(); p != nil {
				return p.Overview()
			}
			return policy.Overview{}, false
		}
	}
	if o.extender != nil {
		f.Waiting, f.Explain = o.extender.Waiting, o.extender.Explain
	}
	return fleet.New(f)
}

// watchedHandler serves probes, Prometheus and people.
func (o *Replica) watchedHandler() http.Handler {
	always := prometheus.NewRegistry()
	always.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		leader.Metric(func() bool { return o.leader() == o.identity }))
	if o.extender != nil {
		always.MustRegister(o.extender.Metrics())
	}
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all := prometheus.Gatherers{always}
		if p := o.policies.Load(); p != nil {
			all = append(all, p.metrics)
		}
		return all.Gather()
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if wants := o.wants(); wants != "" {
			http.Error(w, wants, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "ok: %s is the leader\n", o.leader())
	})
	mux.Handle("GET /{$}", o.fleet())
	mux.Handle("GET /metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	return mux
}
