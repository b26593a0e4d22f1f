package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/exporter/holders"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/handover"
	"github.com/acceld/acceld/health"
	"github.com/acceld/acceld/history"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/probe"
	"github.com/acceld/acceld/repair"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/settings"
	"github.com/acceld/acceld/systemd"
	"github.com/acceld/acceld/usage"
)

// Options are what [Run] starts with. Run itself fills in SetupOptions.Policies.
type Options struct {
	SetupOptions
	// Version is the version of the program.
	Version string
}

// Agent joins the organs of one host.
type Agent struct {
	*Setup
	o        Options
	ctx      context.Context //nolint:containedctx // the agent's own; it ends what outlives a kind's plugin
	end      func()          // cancels ctx: the agent ends as if its service was stopped
	group    guard.Group
	sockets  *systemd.Sockets
	notifier *systemd.Notifier

	driver   *driver.Driver
	runtime  *runtime.Runtime
	health   *health.Engine
	programs *probe.Supervisor
	plugins  *plugins
	users    *users
	gate     *hookGate
	resets   *resets
	restart  *hotRestart
	history  *history.Book
	handover *handover.Keeper
	repair   *repair.Repairer
	settings *settings.Keeper
	usage    *usage.Watcher
	switches *switches
	// newest are the facts of the host as they were read last, also while no snapshot has them.
	newest atomic.Pointer[accel.Facts]
	// zones is nil unless the configuration asks for it.
	zones *zones
	// parts are the parts of devices that claims made.
	parts     *parts
	watcher   *watcher
	around    *surroundings
	reloader  *reloader
	faults    faults
	board     Board
	work      *work
	loop      *loop.Loop
	preflight *kernelPreflight
	exporter  *exporter.Exporter
	holdings  *holders.Follower
	tasks     []Task
	// reader reads what is on the host, and its devices, for the loop.
	reader *detect.TimeoutReader

	// kube, documents, pods and election reach the API server; all are nil without credentials.
	kube      *kube.Kube
	documents *kube.Documents
	pods      *kube.BoundPods
	election  *election
	// clusterVersion is the API server's version that the loop last knew. Only kube's task uses it.
	clusterVersion string

	working string // the kinds whose driver works, and the drivers; only the loop uses it
	status  string // the last status sentence; only the loop uses it
}

// gcPercent is the share of garbage, relative to live memory, that triggers a collection. Live memory hardly changes,
// so collecting twice as often as by default costs little, and an idle agent has a fifth less memory of its own.
const gcPercent = 50

// Run brings the host's accelerators to ready and keeps them there until ctx ends.
func Run(ctx context.Context, o Options) *accel.Problem {
	debug.SetGCPercent(gcPercent)
	config, problem := ReadConfig(o.ConfigFile, o.ConfigNamed)
	if problem != nil {
		return problem
	}
	h, err := host.New(o.HostRoot)
	if err != nil {
		return accel.Problemf(accel.ConfigInvalid, "%v", err).ToDo(
			"Name the directory that holds the host's root file system with --host-root.")
	}
	feed, unread := NewPolicyFeed(h, config)
	o.Policies = feed
	s, problem := Open(o.SetupOptions)
	if problem != nil {
		return problem
	}
	for _, p := range slices.Concat(s.Skipped, s.Unfit) {
		s.Log.Warn("definition or policy left out", "reason", p.Reason, "message", p.Message)
	}
	if unread != nil {
		s.Log.Warn("policies of the cluster are read again", "reason", unread.Reason, "message", unread.Message)
	}
	if os.Geteuid() != 0 {
		return accel.Problemf(accel.PermissionDenied,
			"cannot run the agent as user %d: loading modules and serving the kubelet need root", os.Geteuid())
	}
	if err := run(ctx, o, s); err != nil {
		return accel.AsProblem(err)
	}
	return nil
}

// run makes this the host's agent and serves until ctx ends.
func run(ctx context.Context, o Options, s *Setup) error {
	sockets, err := systemd.ReceiveSockets(ctx, s.Log) // before anything that may hang: the kubelet may connect to them
	if err != nil {
		return err
	}
	restart := newHotRestart(s.Host, s.Log)
	release, problem := restart.begin(ctx)
	if problem != nil {
		return problem
	}
	if release == nil {
		return nil
	}
	err = serve(ctx, o, s, sockets, restart)
	release()
	if err != nil {
		return err
	}
	return restart.finish(ctx)
}

// serve assembles the agent and serves until ctx ends or another agent follows.
func serve(ctx context.Context, o Options, s *Setup, sockets *systemd.Sockets, restart *hotRestart) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	a := newAgent(ctx, end, o, s, sockets)
	facts := s.Detect(detect.Options{})
	a.restart = restart
	want, err := a.assemble(facts)
	if err != nil {
		return err
	}
	if err := a.watch(facts); err != nil {
		return err
	}
	s.Log.Info("agent starts", "version", o.Version, "hostRoot", s.Host.Root(), "kubernetes", want.Kubernetes,
		"labels", want.Labels, "kinds", len(s.Kinds), "policies", governing(s.Policies))
	Serve(a.ctx, s.Log, a.notifier.Ready, a.tasks...)
	a.notifier.Stopping()
	end()
	a.group.Wait()
	return nil
}

// newAgent returns an agent without organs, which reads its surroundings. It runs until ctx ends; end cancels ctx.
func newAgent(ctx context.Context, end func(), o Options, s *Setup, sockets *systemd.Sockets) *Agent {
	a := &Agent{Setup: s, o: o, end: end, sockets: sockets, notifier: systemd.NewNotifier(s.Log)}
	a.faults.log, a.faults.changed = s.Log, a.changed
	a.ctx = guard.Report(ctx, a.faults.note)
	a.around = newSurroundings(s.Host, s.Config.Resync, func() { a.wake(false) }, s.Log)
	guard.Go(func() { a.around.survey(a.ctx) })
	return a
}

// assemble creates the organs, the loop and the list of tasks. It returns the desired state that the loop starts
// with.
func (a *Agent) assemble(facts accel.Facts) (want accel.Want, err error) {
	node, err := nodeName(a.Config)
	if err != nil {
		return want, err
	}
	want = a.Want()
	want.Kubernetes = a.Config.Kubernetes == "on" || a.Config.Kubernetes == "auto" && facts.Kubelet.Present
	want.Problem = firstProblem(a.Skipped, a.Unfit)
	connected, problem := a.connect(node)
	if problem != nil {
		return want, problem
	}
	want.Labels = connected
	a.organs(facts)
	a.exporter = exporter.New(a.exposed())
	a.loop = loop.New(a.loopOptions(want, node))
	a.preflight = &kernelPreflight{
		machine: a.machine, installed: func() []string { return detect.InstalledKernels(a.Host) },
		preflight: a.preflightFor, tell: a.loop.Preflighted, watch: a.Host.Watch, log: a.Log,
		news: make(chan struct{}, 1),
	}
	a.reloader = &reloader{
		Setup: a.Setup, options: a.o.SetupOptions, want: want,
		machine: a.machine, configure: a.loop.Configure, wanted: a.reader.Want, watcher: a.watcher,
	}
	a.tasks, err = a.list(node)
	return want, err
}

// organs creates what the loop works with.
func (a *Agent) organs(facts accel.Facts) {
	d := a.DriverOptions()
	a.work = newWork(&a.board, a.changed)
	d.Progress = a.board.Note
	d.Ours = func(pid int) bool { return a.programs.Owns(pid) }
	if a.election != nil {
		d.Elect = a.election.elect
	}
	if a.pods != nil {
		d.Pods = a.pods.All
	}
	a.driver = driver.New(a.Host, d)
	a.runtime = a.Runtime(facts)
	a.watcher = newWatcher(a.Setup, a.runtime, facts, a.wake, &a.group)
	a.watcher.seen = a.around.see
	a.gate = &hookGate{runtime: a.runtime, pods: a.pods, log: a.Log}
	a.plugins = &plugins{
		Setup: a.Setup, ctx: a.ctx, group: &a.group, machine: a.machine, changed: a.changed, poke: a.poke,
		alive:       a.alive,
		connections: left{a.sockets, a.leaving}, runtime: a.runtime, documents: a.documents, bound: a.gate.bound,
		check: checks{a}.all,
		give: func(ctx context.Context, def *accel.Definition, x accel.Accelerator, claim, name string) (
			accel.Accelerator, *accel.Problem,
		) {
			return a.switches.give(ctx, def, x, claim, name)
		},
		shape: func(ctx context.Context, def *accel.Definition, x accel.Accelerator, claim, name string) (
			accel.Accelerator, *accel.Problem,
		) {
			return a.parts.shape(ctx, def, x, claim, name)
		},
	}
	a.holdings = a.plugins.follower()
	a.users = &users{host: a.Host, driver: a.driver, plugins: a.plugins, machine: a.machine}
	a.health = health.New(health.Options{
		Host: a.Host, File: "/run/acceld/health.json", Log: a.Log, Changed: a.changed,
		Definitions: func() map[string]*accel.Definition { return a.machine().Want.Kinds },
	})
	a.reader = detect.NewTimeoutReader(a.Host, a.changed)
	a.reader.Want(a.Kinds)
	a.programs = probe.New(probe.Options{
		Host: a.Host, Beside: OwnPrograms(), Dir: "/run/acceld/probe", Metrics: exporter.MetricNames(), Log: a.Log,
		Changed: a.changed, Fault: a.health.Told, Users: a.users.podsOn,
	})
	a.users.programs = a.programs
	a.history = history.New(history.Options{Host: a.Host, Dir: history.Dir(a.Config.StateDir), Log: a.Log})
	a.handover = a.newHandover()
	a.repair = repairs{a}.repairer()
	a.settings = a.newSettings()
	a.usage = unrequested{a}.watcher()
	a.switches, a.parts = newSwitches(a), newParts(a)
	a.resets = &resets{
		host: a.Host, machine: a.machine, pause: a.programs.Pause, poke: a.poke, wake: a.wake, log: a.Log,
	}
}

// watch starts to watch everything that wakes the loop or changes the desired state.
func (a *Agent) watch(facts accel.Facts) error {
	if err := a.watcher.watch(a.ctx, a.Kinds, facts); err != nil {
		return err
	}
	if err := a.resets.watch(a.ctx); err != nil {
		return err
	}
	if err := a.restart.watch(a.ctx); err != nil {
		return err
	}
	return a.reloader.watch(a.ctx)
}

// leaving reports whether the agent is ending and another one follows it.
func (a *Agent) leaving() bool { return a.ctx.Err() != nil && a.restart.followed() }

// machine, changed, wake and poke call the loop and the follower of holders, which are created after their callers.
func (a *Agent) machine() accel.Machine { return a.loop.Machine() }
func (a *Agent) changed()               { a.loop.Changed() }
func (a *Agent) wake(helps bool)        { a.loop.Wake(helps) }

// poke says that somebody has got a device, or has it no longer.
func (a *Agent) poke() {
	a.holdings.Poke()
	a.handover.Poke()
	a.switches.poke()
	a.parts.poke()
	a.zones.poke()
}

// names are the names of this host under which its endpoint may be asked.
func (a *Agent) names() []string {
	all := slices.Clone(a.Config.Hosts)
	if node, err := nodeName(a.Config); err == nil {
		all = append(all, node)
	}
	for i := range all {
		all[i] = strings.ToLower(all[i])
	}
	return all
}

// exposed is what the endpoints show. All of it is in memory, so a scrape never waits.
func (a *Agent) exposed() exporter.Options {
	return exporter.Options{
		Machine: a.machine,
		Follow:  func() (accel.Machine, <-chan struct{}) { return a.loop.Follow() },
		Ready:   func() (bool, string) { text := Unready(a.tasks); return text == "", text },
		Past:    a.past, Live: a.alive, Holders: a.holdings.Holdings, Progress: a.board.List, Pages: a.Pages,
		Log: a.Log, Process: true, Hosts: a.names(),
	}
}

func (a *Agent) loopOptions(want accel.Want, node string) loop.Options {
	o := loop.Options{
		Agent: accel.Agent{Version: a.o.Version, Started: time.Now(), Node: node},
		Want:  want, Probes: a.probes(), Effects: a.effects(), Observer: a.exporter, Log: a.Log,
		Problems: a.faults.list, Note: a.faults.note, Work: a.board.List,
		KubeletAuto: a.Config.Kubernetes == "auto", SampleEvery: a.Config.SampleEvery, Resync: a.Config.Resync,
	}
	if a.kube != nil {
		o.KubeSync = func() loop.Sync {
			s := a.kube.State()
			return loop.Sync{
				Labelled: s.Labelled, Problem: s.Problem, Handshakes: loop.Handshakes(s.NodeAnnotations),
				Maintenance: s.Maintenance, MaintenanceUnknown: !s.Asked,
				Drained: s.NodeAnnotations[accel.DrainAnnotation] != "",
			}
		}
	}
	return o
}

// probes are the functions of the organs that read.
func (a *Agent) probes() loop.Probes {
	collect := detect.NewTimeoutCollect(a.Host)
	return loop.Probes{
		Facts: a.facts, Read: a.reader.Read, Accelerators: a.reader.Accelerators,
		Enrich: func(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
			accs = a.history.Enrich(def.Kind, a.programs.Enrich(def, accs))
			accs = a.usage.Enrich(def, a.repair.Enrich(def, a.handover.Enrich(def, accs)))
			if f := a.newest.Load(); f != nil {
				accs = accel.BesideRDMA(def, accs, *f)
			}
			return a.parts.enrich(def, a.switches.enrich(def, a.settings.Enrich(def, accs)))
		},
		Judge: a.health.Judge, Reset: a.resets.isHeld,
		Collect: func(def *accel.Definition, x accel.Accelerator) (map[string]float64, error) {
			metrics, err := collect(def, x)
			if !x.InOtherUse() { // the kind's program saw it last with its own driver
				maps.Copy(metrics, a.programs.Readings(def.Kind, x.ID))
			}
			a.health.Measured(x.ID, metrics)
			return metrics, err
		},
		Program: a.programs.State,
		Driver:  a.driver.Probe,
		Runtime: a.runtime.Check,
	}
}

// effects are the functions of the organs that change something.
func (a *Agent) effects() loop.Effects {
	return loop.Effects{
		Steps:  a.driver.Steps().Run,
		Ensure: a.driver.Ensure, Prove: a.driver.Prove, Apply: a.runtime.Apply, Withdraw: a.plugins.withdraw,
		Prepare: a.driver.Prepare, Upgrade: a.upgrade, Holders: a.users.of, AwaitHolder: a.users.await,
		Evictor: a.evictor, Publish: a.publish, Plugin: a.plugins.start, Redefine: a.plugins.redefine,
		Early: a.plugins.early,
	}
}

// upgrade replaces a driver. It pauses the kind's probe program first, because that would hold the driver.
func (a *Agent) upgrade(
	ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, to accel.DriverRef,
) (accel.DriverHave, *accel.Problem) {
	defer a.programs.Pause(ctx, def.Kind)()
	return a.driver.UpgradeTo(ctx, def, facts, accs, to)
}

// evictor returns what asks the API server to evict the pods among the holders that look finds; see kube.Evictor.
func (a *Agent) evictor() func(ctx context.Context, look func() []accel.Holder) *accel.Problem {
	if a.kube != nil {
		return a.kube.NewEvictor().Evict
	}
	return func(_ context.Context, look func() []accel.Holder) *accel.Problem {
		if len(look()) == 0 {
			return nil
		}
		return accel.Problemf(accel.EvictionRefused, "there are no credentials for the API server")
	}
}

// preflightFor prepares a definition's driver for a kernel that is installed.
func (a *Agent) preflightFor(
	ctx context.Context, def *accel.Definition, facts accel.Facts, release string,
) accel.Readiness {
	facts.Kernel, _ = detect.InstalledKernel(a.Host, release, facts.Kernel) // the answer says what it lacks
	r := a.driver.Preflight(ctx, def, facts, driver.PreflightOptions{})
	return accel.Readiness{Key: r.Key, Problem: r.Problem, Checked: time.Now()}
}

// until follows the machine until it is as wanted, and reports whether that was so before ctx ended.
func (a *Agent) until(ctx context.Context, wanted func(accel.Machine) bool) bool {
	for {
		m, next := a.loop.Follow()
		if wanted(m) {
			return true
		}
		select {
		case <-next:
		case <-ctx.Done():
			return false
		}
	}
}

// publish hands a new machine to everything that renders it.
func (a *Agent) publish(m accel.Machine) {
	a.programs.Keep(m.Want.Kinds)
	a.gate.open(func() accel.Machine { return m })
	a.exporter.See(m)
	a.history.See(m)
	a.handover.Poke()
	if a.kube != nil {
		a.kube.Publish(m)
	}
	a.needPods(m)
	if working := workingDrivers(m); working != a.working {
		a.working = working
		a.preflight.wake()
	}
	a.watcher.see(m.Facts)
	if s := Summary(m); s != a.status {
		a.status = s
		a.notifier.Status(s)
	}
}

// workingDrivers names the kinds whose driver works, and the desired driver version of each.
func workingDrivers(m accel.Machine) string {
	var b strings.Builder
	for _, kind := range sorted(m.Want.Kinds) {
		if m.Have[kind].Driver.Serves {
			fmt.Fprintf(&b, "%s %s; ", kind, m.Want.Kinds[kind].Driver.Version)
		}
	}
	return b.String()
}

// alive fails when the loop has not turned for 20 s. A healthy loop turns at least every five seconds.
func (a *Agent) alive() error {
	if age := time.Since(a.loop.Beat()); age > 20*time.Second {
		return fmt.Errorf("the loop has not turned for %s", age.Round(time.Second))
	}
	return nil
}
