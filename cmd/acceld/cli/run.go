package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/exporter/holders"
	"github.com/acceld/acceld/health"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/probe"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/systemd"
)

func runCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run the agent", Args: noArgs,
		Long: `run is the agent: it brings the host's accelerators to ready and keeps them there until it is told to stop. Stopping it touches
neither drivers nor containers. It serves the local endpoint, and the kubelet and the API server where there are any.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, problem := agent.ReadConfig(c.config, c.asked)
			if problem != nil {
				return failed(problem)
			}
			h, err := host.New(c.hostRoot)
			if err != nil {
				return failed(accel.Problemf(accel.ConfigInvalid, "%v", err))
			}
			unread := c.follow(h, config)
			p, problem := c.open()
			if problem != nil {
				return failed(problem)
			}
			for _, s := range slices.Concat(p.skipped, p.unfit) {
				p.log.Warn("definition or policy left out", "reason", s.Reason, "message", s.Message)
			}
			if unread != nil {
				p.log.Warn("policies of the cluster are read anew", "reason", unread.Reason, "message", unread.Message)
			}
			return p.run(cmd.Context(), c)
		},
	}
}

// running is the agent while it is wired.
type running struct {
	*parts
	driver   *driver.Driver
	runtime  *runtime.Runtime
	kube     *kube.Kube // nil without credentials
	exporter *exporter.Exporter
	notifier *systemd.Notifier
	sockets  *systemd.Sockets
	loop     *agent.Loop
	tasks    []agent.Task
	// plugins are what offers kinds to the kubelet, by slot; read by the exporter while the loop starts them.
	mu      sync.Mutex
	plugins map[string]*serving
	// awaited are the keys of drivers that other nodes build.
	awaited map[string]bool
	// documents is the way to the objects of claims; nil without credentials.
	documents *kube.Documents
	// pods are those of this node, which are followed where devices may be chosen one by one; nil without credentials.
	pods     *kube.BoundPods
	gate     sync.Mutex               // of what the hook decides on
	resets   atomic.Pointer[[]string] // devices that somebody resets
	health   *health.Engine
	holding  *holders.Follower
	programs *probe.Keeper
	atWork   board           // of the driver
	ctx      context.Context //nolint:containedctx // the agent's own: what outlives the plugin of a kind ends with it
	end      func()          // of ctx: the agent ends as if its service was stopped
	group    sync.WaitGroup
	ahead    *agent.Ahead
	right    string // the kinds whose driver works, and the drivers; the loop's
	said     string // the last status sentence; the loop's
	// unfollow ends the watches of the steps' files; reload's once the agent runs.
	unfollow context.CancelFunc
	// engine is the container runtime whose files are watched, and cluster what their names may be made of, the loop's; moved tells
	// reload that it is another one.
	engine  accel.ContainerEngine
	cluster accel.Cluster
	moved   chan struct{}
	// asked is the version of the API server that the loop was told of; the task's that asks for it.
	asked string
}

// run wires the agent and serves until ctx ends.
func (p *parts) run(ctx context.Context, c *common) error {
	if os.Geteuid() != 0 {
		return failed(accel.Problemf(accel.PermissionDenied, "cannot run the agent as user %d: loading modules and serving the kubelet need root", os.Geteuid()))
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	sockets, err := systemd.ReceiveSockets(ctx, p.log) // before anything that may hang: the kubelet may ask on them
	if err != nil {
		return failed(accel.AsProblem(err))
	}
	release, problem := lock.Agent(p.host)
	if problem != nil {
		return failed(problem)
	}
	defer release()
	facts := detect.Detect(p.host, detect.Options{})
	a := &running{
		parts: p, notifier: systemd.NewNotifier(p.log), sockets: sockets, plugins: map[string]*serving{}, awaited: map[string]bool{},
		engine: facts.Runtime, cluster: facts.Cluster, moved: make(chan struct{}, 1),
	}
	a.ctx, a.end = ctx, end
	hook := hookProgram()
	a.runtime = p.agentRuntime(facts)
	want := accel.Want{
		Kubernetes: p.config.Kubernetes == "on" || p.config.Kubernetes == "auto" && facts.Kubelet.Present,
		Hook:       p.config.Hook && hook != "", CDI: p.config.CDI, Kinds: p.defs, Unsure: p.unsure,
	}
	want.Problem = firstProblem(p.skipped, p.unfit)
	if problem := a.connect(&want, c.followed); problem != nil {
		return failed(problem)
	}
	a.driver = p.driver(a.atWork.note)
	if err := a.wire(want, a.followPolicies(c.followed)); err != nil {
		return failed(accel.AsProblem(err))
	}
	if err := a.watch(ctx, facts); err != nil {
		return failed(accel.AsProblem(err))
	}
	if err := a.reload(ctx, c, want); err != nil {
		return failed(accel.AsProblem(err))
	}
	p.log.Info("agent starts", "version", version(), "hostRoot", p.host.Root(), "kubernetes", want.Kubernetes, "labels", want.Labels, "kinds", len(p.defs), "policies", governed(p.policies))
	err = agent.Serve(ctx, p.log, a.notifier.Ready, a.tasks...)
	a.notifier.Stopping()
	end()
	a.group.Wait()
	if err != nil {
		return failed(accel.AsProblem(err))
	}
	return nil
}

// connect makes the way to the API server where there are credentials.
func (a *running) connect(want *accel.Want, f *followed) *accel.Problem {
	if !credentials(a.config) {
		return nil
	}
	client, err := kube.NewClient(a.config.Kubeconfig)
	if err != nil {
		return accel.Problemf(accel.ConfigInvalid, "cannot use the API server's credentials: %v", err)
	}
	node, err := nodeName(a.config)
	if err != nil {
		return accel.Problemf(accel.ConfigInvalid, "%v", err)
	}
	want.Labels = true
	a.documents = &client.Documents
	a.pods = kube.NewBoundPods(client.Documents, node, a.log, func() { a.openGate(a.loop.Machine) })
	namespace := cmp.Or(os.Getenv("POD_NAMESPACE"), kube.Namespace)
	leases, follow := client.Leases(namespace)
	a.elect = a.electing(kube.NewElection(leases, node, a.log), follow)
	origin := kube.OriginUnit
	if os.Getenv("POD_NAMESPACE") != "" {
		origin = kube.OriginPod
	}
	a.kube = kube.New(kube.Config{Client: client, Node: node, Log: a.log, Origin: origin, OnChange: func() { a.loop.Changed(); a.labelled(f); a.versioned() }})
	return nil
}

// wire makes loop, exporter and endpoint, and the list of tasks.
func (a *running) wire(want accel.Want, policies agent.Task) error {
	node, err := nodeName(a.config)
	if err != nil {
		return err
	}
	a.holding = a.follower()
	a.exporter = exporter.New(a.exposed())
	o := agent.Options{
		Agent: accel.Agent{Version: version(), Started: time.Now(), Node: node},
		Want:  want, Probes: a.probes(), Effects: a.effects(), Observer: a.exporter, Log: a.log,
		KubeletAuto: a.config.Kubernetes == "auto", SampleEvery: a.config.SampleEvery, Resync: a.config.Resync,
	}
	if a.kube != nil {
		o.KubeSync = func() agent.Sync {
			s := a.kube.State()
			return agent.Sync{Labelled: s.Labelled, Problem: s.Problem, Words: agent.Exchanges(s.NodeAnnotations)}
		}
	}
	a.loop = agent.NewLoop(o)
	listeners, err := a.listeners()
	if err != nil {
		return err
	}
	watchdog, err := systemd.NewWatchdog(a.notifier, a.alive)
	if err != nil {
		return err
	}
	a.ahead = agent.NewAhead(agent.AheadOptions{
		Machine: a.loop.Machine, Installed: func() []string { return detect.InstalledKernels(a.host) },
		Preflight: a.preflightFor, Tell: a.loop.Preflighted, Watch: a.host.Watch, Log: a.log,
	})
	renew := a.end
	if !systemd.Supervised() {
		renew = nil
	}
	a.tasks = []agent.Task{
		a.loop, a.ahead, a.health, a.holding, a.programs, agent.NewEndpoint(a.exporter.Handler(), listeners...), watchdog,
		agent.NewRenewal(a.loop.Follow, renew, a.log),
	}
	if a.config.Remote.Listen != "" {
		remote, err := a.remote(node)
		if err != nil {
			return err
		}
		a.tasks = append(a.tasks, remote)
	}
	if a.kube != nil {
		a.tasks = append(a.tasks, a.kube, a.pods)
	}
	if policies != nil {
		a.tasks = append(a.tasks, policies)
	}
	return nil
}

// exposed is what the endpoints show. All of it is in memory: a scrape waits for nobody.
func (a *running) exposed() exporter.Options {
	return exporter.Options{
		Machine: func() accel.Machine { return a.loop.Machine() },
		Follow:  func() (accel.Machine, <-chan struct{}) { return a.loop.Follow() },
		Ready:   func() (bool, string) { text := agent.Unready(a.tasks); return text == "", text },
		Live:    a.alive, Holders: a.holding.Holdings, Progress: a.atWork.list, Pages: a.pages, Log: a.log, Process: true,
	}
}

// probes are the reading half of the packages below.
func (a *running) probes() agent.Probes {
	a.health = health.New(health.Options{
		Host: a.host, File: "/run/acceld/health.json", Log: a.log, Changed: func() { a.loop.Changed() },
		Definitions: func() map[string]*accel.Definition { return a.loop.Machine().Want.Kinds },
	})
	a.programs = probe.New(probe.Options{
		Host: a.host, Beside: ownPrograms(), Dir: "/run/acceld/probe", Metrics: exporter.MetricNames(), Log: a.log,
		Changed: func() { a.loop.Changed() }, Fault: a.health.Told, Users: a.podsOn,
	})
	patient := agent.NewPatient(func(def *accel.Definition, pci []accel.PCIDevice) []accel.Accelerator {
		return detect.Accelerators(a.host, def, pci)
	}, func() { a.loop.Changed() })
	collect := agent.NewPatientCollect(func(def *accel.Definition, x accel.Accelerator) (map[string]float64, error) {
		return detect.Collect(a.host, def, x)
	})
	return agent.Probes{
		Facts: a.facts,
		Accelerators: func(def *accel.Definition, pci []accel.PCIDevice) []accel.Accelerator {
			return a.heldForReset(def, a.programs.Hold(def, a.health.Judge(def, pci, a.programs.Complete(def, patient.Accelerators(def, pci)))))
		},
		Collect: func(def *accel.Definition, x accel.Accelerator) (map[string]float64, error) {
			metrics, err := collect(def, x)
			maps.Copy(metrics, a.programs.Readings(def.Kind, x.ID))
			a.health.Measured(x.ID, metrics)
			return metrics, err
		},
		Program: a.programs.State,
		Driver:  a.probeDriver,
		Runtime: a.runtime.Check,
	}
}

// effects are the changing half.
func (a *running) effects() agent.Effects {
	return agent.Effects{
		Steps:  a.driver.RunSteps,
		Ensure: a.driver.Ensure, Prove: a.driver.Prove, Apply: a.runtime.Apply, Withdraw: a.withdraw,
		Prepare: a.driver.Prepare, Upgrade: a.upgrade, Holders: a.users, AwaitHolder: a.awaitHolder, Evict: a.evict,
		Publish: a.publish, Plugin: a.plugin,
		Early: func(def *accel.Definition) bool { return dra.Served(a.host, a.config.StateDir, def) },
	}
}

// upgrade replaces a driver while the kind's probe program, which would hold it, does not run.
func (a *running) upgrade(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	resume := a.programs.Pause(ctx, def.Kind)
	defer resume()
	return a.driver.Upgrade(ctx, def, facts, accs)
}

// publish hands a new machine to everybody who renders it.
func (a *running) publish(m accel.Machine) {
	a.programs.Keep(m.Want.Kinds)
	a.openGate(func() accel.Machine { return m })
	a.exporter.See(m)
	if a.kube != nil {
		a.kube.Publish(m)
	}
	if a.pods != nil && kube.Cards(m) != "" { // somebody may choose among them
		a.pods.Need()
	}
	if right := drivers(m); right != a.right {
		a.right = right
		a.ahead.Wake()
	}
	a.see(m.Facts)
	if s := summary(m); s != a.said {
		a.said = s
		a.notifier.Status(s)
	}
}

// alive fails when the loop has not turned for a while: its longest silence is five seconds.
func (a *running) alive() error {
	if age := time.Since(a.loop.Beat()); age > 20*time.Second {
		return fmt.Errorf("the loop has not turned for %s", age.Round(time.Second))
	}
	return nil
}

// listeners are those of systemd, or our own.
func (a *running) listeners() ([]net.Listener, error) {
	inherited, err := a.sockets.Listeners("acceld.socket")
	if err != nil || len(inherited) > 0 {
		return inherited, err
	}
	if err := a.host.MkdirAll(filepath.Dir(a.config.Socket), 0o755); err != nil {
		return nil, err
	}
	socket, err := a.host.Path(a.config.Socket)
	if err != nil {
		return nil, err
	}
	if err := a.host.Remove(a.config.Socket); err != nil { // the agent's lock is held, so it is a dead agent's
		return nil, err
	}
	unix, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w", a.config.Socket, err)
	}
	if err := os.Chmod(socket, 0o660); err != nil {
		return nil, err
	}
	out := []net.Listener{unix}
	if a.config.Listen != "" {
		tcp, err := net.Listen("tcp", a.config.Listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %q: %w", a.config.Listen, err)
		}
		out = append(out, tcp)
	}
	return out, nil
}
