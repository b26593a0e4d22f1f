package replica

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/certificate"
	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fleet"
	"github.com/acceld/acceld/controller/leader"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
)

// Replica is one process of the controller, the leader or not.
type Replica struct {
	config    *Config
	client    *kubernetes.Clientset
	documents kube.Documents
	extender  *extender.Extender   // nil: the scheduler is not answered
	keeper    *certificate.Manager // nil: the certificates are in files
	log       *slog.Logger
	identity  string
	election  *leader.Election
	faults    Faults
	memory    memory

	// policies are carried out while this replica leads; nil while another one leads.
	policies atomic.Pointer[policies]
}

// policies are the policies of one term of leadership, the records of devices that they keep, and their metrics.
type policies struct {
	*policy.Controller
	devices *devices.Keeper
	metrics *prometheus.Registry
}

// Run serves as c says until ctx ends. If identity is empty, the replica stands for election under a generated name.
func Run(ctx context.Context, c *Config, kubeconfig, identity string, log *slog.Logger) error {
	debug.SetGCPercent(gcPercent)
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	narrow, err := kube.NewClient(kubeconfig, leader.Transport)
	if err != nil {
		return fmt.Errorf("cannot find the API server: %w", err)
	}
	o := &Replica{config: c, client: client, documents: narrow.Documents, log: log, identity: name(identity)}
	o.faults.log = log
	o.memory.follow()
	ctx = guard.Report(ctx, o.faults.note)
	o.election = o.newElection()
	parts, err := o.listen(ctx)
	if err != nil {
		return err
	}
	if o.keeper != nil {
		parts = append(parts, o.kept("certificates", o.keeper.Run))
	}
	return guard.Together(ctx, append(parts, o.kept("election", o.election.Run))...)
}

// part is a part of the replica. It ends with ctx; if it fails, the replica ends.
type part = func(ctx context.Context) error

// listen opens the ports and returns what answers on them: the scheduler's, if there are resources, and the one for
// people.
func (o *Replica) listen(ctx context.Context) (parts []part, err error) {
	var lc net.ListenConfig
	add := func(address string, handler http.Handler, config *tls.Config) {
		l, failed := lc.Listen(ctx, "tcp", address)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("cannot listen: %w", failed))
			return
		}
		parts = append(parts, func(ctx context.Context) error {
			return extender.Serve(ctx, l, handler, config, o.log)
		})
	}
	c := o.config
	if c.Resources != nil {
		config, err := o.tls()
		if err != nil {
			return nil, err
		}
		o.extender = extender.New(c.Resources, api(o.client), c.Packing, o.log)
		if c.CardNodes != nil {
			o.extender.Metrics().CardNodes = *c.CardNodes
		}
		add(c.Listen, o.extender.Handler(), config)
	}
	if c.Watched != "off" {
		add(c.Watched, o.watchedHandler(), nil)
	}
	return parts, err
}

// kept returns a part that is run again when it fails.
func (o *Replica) kept(name string, run part) part {
	return func(ctx context.Context) error {
		guard.Keep(ctx, name, run)
		return nil
	}
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

// newElection returns the election in which this replica stands.
func (o *Replica) newElection() *leader.Election {
	l := o.config.Lease
	return &leader.Election{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}, Client: o.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.identity},
		},
		Lease: l.duration(), Term: o.term, Log: o.log,
	}
}

// patience is how long the policies wait until the cards are known. To read both at once would take more memory, most
// of it for what is thrown away, and pods wait for the cards.
const patience = time.Minute

// term does what only the leader does, until ctx ends.
func (o *Replica) term(ctx context.Context) {
	var parts []part
	if k := o.service(); k != nil {
		parts = append(parts, o.kept("service", k.Run))
	}
	cards := make(chan struct{})
	known := sync.OnceFunc(func() { close(cards) })
	if o.extender != nil {
		parts = append(parts, o.kept("cards", func(ctx context.Context) error {
			return o.extender.Lead(ctx, sources(o.client), func() {
				o.memory.follow()
				debug.FreeOSMemory() // the first lists take many times the memory of what is kept
				known()
			})
		}))
	} else {
		known()
	}
	if o.config.Policies {
		parts = append(parts, o.kept("policies", func(ctx context.Context) error {
			select {
			case <-cards:
			case <-time.After(patience):
			case <-ctx.Done():
			}
			return o.carryOut(ctx)
		}))
	}
	_ = guard.Together(ctx, parts...) // each is run again until ctx ends
}

// carryOut carries out the policies until ctx ends.
func (o *Replica) carryOut(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	var keeper *devices.Keeper
	p, err := policy.New(policy.Options{
		API: o.documents, Namespace: o.config.Lease.Namespace, Log: o.log, Registry: registry,
		Passed: func() {
			keeper.Poke()
			o.memory.follow()
		},
	})
	if err != nil {
		return err
	}
	keeper = devices.New(devices.Options{API: o.documents, Reports: p.DeviceReports, Log: o.log, Registry: registry})
	o.policies.Store(&policies{p, keeper, registry})
	defer o.policies.Store(nil)
	return guard.Together(ctx, p.Run, keeper.Run, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-p.Ready():
			debug.FreeOSMemory()
		}
		return nil
	})
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
	config.Wrap(leader.Transport)
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
		Room: func(ctx context.Context, node string, since time.Time) error {
			body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
				accel.RoomAnnotation: since.UTC().Format(time.RFC3339Nano),
			}}})
			if err == nil {
				_, err = client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{})
			}
			return err
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

// fleet returns the page for people.
func (o *Replica) fleet() http.Handler {
	f := fleet.Options{Identity: o.identity, Holder: o.election.Leader}
	if o.config.Policies {
		f.Overview = func() (policy.Overview, bool) {
			if p := o.policies.Load(); p != nil {
				return p.Overview()
			}
			return policy.Overview{}, false
		}
		f.Devices = func(limit int) (devices.Overview, bool) {
			if p := o.policies.Load(); p != nil {
				return p.devices.Overview(limit)
			}
			return devices.Overview{}, false
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
		leader.Metric(o.election.Leads), &o.faults)
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
		fmt.Fprintf(w, "ok: %s is the leader\n", o.election.Leader())
	})
	mux.Handle("GET /{$}", o.fleet())
	mux.Handle("GET /metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	return mux
}
