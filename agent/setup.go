package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/runtime/engine"
	"github.com/acceld/acceld/systemd"
)

// Catalog is where definitions come from. Only cmd knows vendors, so it passes their functions.
type Catalog struct {
	// Definitions returns the built-in definitions by kind. The caller owns the map.
	Definitions func() (map[string]*accel.Definition, *accel.Problem)
	// Parse reads one definition; name is for messages.
	Parse func(name string, data []byte) (*accel.Definition, *accel.Problem)
	// Load adds the definitions of a directory to defs and returns what cannot be used.
	Load func(dir fs.FS, defs map[string]*accel.Definition) []*accel.Problem
	// MetricPages returns the additional pages of metrics that a configuration may select.
	MetricPages func() []accel.MetricPage
}

// SetupOptions say what [Open] reads.
type SetupOptions struct {
	// HostRoot is the directory where the host's root file system is.
	HostRoot string
	// ConfigFile is a file as this process sees it. ConfigNamed is true if the user named it, so that it must exist.
	ConfigFile  string
	ConfigNamed bool
	// LogTo takes the lines of the log; nil drops them. LogStderr says that it is the standard error of this process,
	// which the journal may read.
	LogTo     io.Writer
	LogStderr bool
	Catalog   Catalog
	// Policies is the feed of a running agent. It is nil in a command, which reads what the agent has kept.
	Policies *PolicyFeed
}

// Setup is the opened configuration with its host. The agent and most commands start from it.
type Setup struct {
	Host   *host.Host
	Config Config
	// Kinds are the definitions in force. BaseKinds are the same without the requests of `acceld driver upgrade`.
	Kinds, BaseKinds map[string]*accel.Definition
	// Skipped are definition files that cannot be used; Unfit are the parts of policies that cannot be used here.
	Skipped, Unfit []*accel.Problem
	// Policies are the policies of the cluster, as far as they are known; PoliciesUnknown is true while they are not.
	Policies        Policies
	PoliciesUnknown bool
	// Pages are the additional pages of metrics that the configuration selects.
	Pages []accel.MetricPage
	Log   *slog.Logger
	// Ledger makes the changes that a purge undoes.
	Ledger  *ledger.Ledger
	catalog Catalog
}

// Open reads the configuration in this process's own file system, and the definitions in the host's.
func Open(o SetupOptions) (*Setup, *accel.Problem) {
	h, err := host.New(o.HostRoot)
	if err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "%v", err).ToDo(
			"Name the directory that holds the host's root file system with --host-root.")
	}
	config, problem := ReadConfig(o.ConfigFile, o.ConfigNamed)
	if problem != nil {
		return nil, problem
	}
	s := &Setup{Host: h, Config: config, catalog: o.Catalog}
	var level slog.Level
	if err := level.UnmarshalText([]byte(config.LogLevel)); err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "logLevel: %v", err)
	}
	if o.LogTo == nil {
		o.LogTo = io.Discard
	}
	s.Log = systemd.NewLog(systemd.LogOptions{
		To: o.LogTo, Format: systemd.LogFormat(config.LogFormat), Level: level, Stderr: o.LogStderr,
	})
	if s.Pages, problem = compatible(o.ConfigFile, o.Catalog.MetricPages(), config); problem != nil {
		return nil, problem
	}
	if s.Ledger, err = ledger.Open(h, config.StateDir, s.Log); err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "stateDir: %v", err)
	}
	if problem := s.define(o.Policies); problem != nil {
		if problem.Reason == accel.ConfigInvalid { // from the overrides, which do not know their file
			problem.Message = fmt.Sprintf("cannot use %q: %s", o.ConfigFile, config.at(problem.Message))
		}
		return nil, problem
	}
	for kind, def := range s.Kinds {
		if s.Kinds[kind], problem = store.Branched(h, config.StateDir, def); problem != nil {
			s.Skipped = append(s.Skipped, problem)
		}
	}
	s.BaseKinds = maps.Clone(s.Kinds)
	for kind, def := range s.BaseKinds {
		asked, problem := driver.Requested(h, config.StateDir, def)
		if problem != nil {
			s.Skipped = append(s.Skipped, problem)
		}
		s.Kinds[kind] = asked
	}
	return s, nil
}

// compatible returns the additional pages of metrics by their names in the configuration file.
func compatible(file string, pages []accel.MetricPage, config Config) ([]accel.MetricPage, *accel.Problem) {
	var chosen []accel.MetricPage
	var known []string
	for _, p := range pages {
		known = append(known, p.Name)
		if slices.Contains(config.Compatible, p.Name) {
			chosen = append(chosen, p)
		}
	}
	for _, name := range config.Compatible {
		if !slices.Contains(known, name) {
			return nil, accel.Problemf(accel.ConfigInvalid, "cannot use %q: %s", file,
				config.at("endpoint.compatible: "+accel.NotOneOf(name, known...)))
		}
	}
	return chosen, nil
}

// define finds the definitions in force: built-in ones, those of policies and those of files, with the overrides of
// policies and the configuration.
func (s *Setup) define(feed *PolicyFeed) *accel.Problem {
	policies, known, unread := policiesNow(feed, s.Host, s.Config)
	s.Policies, s.PoliciesUnknown = policies, !known
	if unread != nil {
		s.Unfit = append(s.Unfit, unread)
	}
	defs, skipped, problem := s.Definitions()
	if problem != nil {
		return problem
	}
	for _, p := range skipped {
		if p.Reason == accel.PolicyInvalid || p.Reason == accel.PolicyRefused {
			s.Unfit = append(s.Unfit, p)
		} else {
			s.Skipped = append(s.Skipped, p)
		}
	}
	var misfits []*accel.Problem
	if s.Kinds, misfits, problem = overridden(s.Config, defs, policies); problem != nil {
		return problem
	}
	s.Unfit = append(s.Unfit, misfits...)
	system, _ := detect.OS(s.Host) // an unknown system is reported when a source is asked
	for kind, def := range s.Kinds {
		s.Kinds[kind] = s.Config.Mirrors.Of(def.On(system.Major()))
	}
	return nil
}

// Definitions returns every usable definition as its file has it, including disabled kinds. It also returns why
// others cannot be used.
func (s *Setup) Definitions() (map[string]*accel.Definition, []*accel.Problem, *accel.Problem) {
	defs, problem := s.catalog.Definitions()
	if problem != nil {
		return nil, nil, problem
	}
	skipped := s.addPolicyDefinitions(defs)
	if dir, err := s.Host.Path(s.Config.Definitions); err == nil {
		skipped = append(skipped, s.catalog.Load(os.DirFS(dir), defs)...)
	}
	names := exporter.MetricNames()
	for kind, def := range defs {
		if problem := knownMetrics(def, names); problem != nil {
			skipped = append(skipped, problem)
			delete(defs, kind)
		}
	}
	return defs, skipped, nil
}

// addPolicyDefinitions adds the definitions in policies that the host takes. They replace built-in ones.
func (s *Setup) addPolicyDefinitions(defs map[string]*accel.Definition) []*accel.Problem {
	var problems []*accel.Problem
	for _, named := range s.Policies.definitions() {
		def, problem := s.catalog.Parse(named.Name, []byte(named.Text))
		if problem != nil {
			problem.Reason = accel.PolicyInvalid
		} else if why := cmp.Or(named.Why, s.Config.PolicyTrust.Definition(def, named.Pinned)); why != "" {
			problem = accel.Problemf(accel.PolicyRefused, "%s: %s", named.Name, why)
		}
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		defs[def.Kind] = def
	}
	return problems
}

// overridden returns the definitions in force: policies override definitions, and the configuration file overrides
// both.
func overridden(config Config, defs map[string]*accel.Definition, p Policies) (
	map[string]*accel.Definition, []*accel.Problem, *accel.Problem,
) {
	applied, problems := p.Apply(defs, config.PolicyTrust)
	out, problem := config.Override(applied)
	if problem != nil {
		// The policies may conflict with the file, for example by two kinds of one name. Then only the file applies.
		if alone, mistake := config.Override(defs); mistake == nil {
			problem.Reason = accel.PolicyInvalid
			return p.Order(alone), append(problems, problem), nil
		}
		return nil, nil, problem
	}
	return p.Order(out), problems, nil
}

// knownMetrics refuses a definition with a metric that the exporter does not know.
func knownMetrics(def *accel.Definition, names []string) *accel.Problem {
	for _, m := range def.Metrics {
		if !slices.Contains(names, m.Name) {
			return accel.Problemf(accel.DefinitionInvalid,
				"cannot use definition %q: metric %q is not in docs/metrics.md",
				def.Kind, m.Name)
		}
	}
	return nil
}

// firstProblem returns the problem that is shown.
func firstProblem(all ...[]*accel.Problem) *accel.Problem {
	if joined := slices.Concat(all...); len(joined) > 0 {
		return joined[0]
	}
	return nil
}

// DriverOptions returns the configured options of the driver manager.
func (s *Setup) DriverOptions() driver.Options {
	return driver.Options{
		StateDir: s.Config.StateDir, Log: s.Log, Ledger: s.Ledger,
		StoreEntries: s.Config.StoreEntries, StoreMiB: s.Config.StoreMiB,
		Trust: s.Config.Trust, Beside: OwnPrograms(),
		LoadTimeout: s.Config.LoadTimeout, BuildTimeout: s.Config.BuildTimeout, Jobs: s.Config.Build.Jobs,
		BuildMemory: s.Config.Build.MemoryBytes(s.Host.Kernel().Memory()), CPUWeight: s.Config.Build.CPUWeight,
	}
}

// Driver returns the driver manager of a command; progress may be nil.
func (s *Setup) Driver(progress func(accel.Progress)) *driver.Driver {
	o := s.DriverOptions()
	o.Progress = progress
	return driver.New(s.Host, o)
}

// RuntimeOptions returns the options of the container runtime that every caller needs. The caller adds which runtime
// it is and what may be changed.
func (s *Setup) RuntimeOptions() runtime.Options {
	return runtime.Options{Log: s.Log, Ledger: s.Ledger, HookProgram: HookProgram(), Units: runtimeUnits(s.Host)}
}

// Runtime returns the container runtime with the agent's options.
func (s *Setup) Runtime(facts accel.Facts) *runtime.Runtime {
	o := s.RuntimeOptions()
	o.Engine = facts.Runtime
	o.Look = func() accel.ContainerEngine { e, _ := detect.Engine(s.Host); return e } // doctor shows the problem
	o.Edit = engine.Edit(cmp.Or(s.Config.RuntimeEdit, string(engine.EditDropin)))
	o.Restart = runtime.Restart(s.Config.RuntimeRestart)
	return runtime.New(s.Host, o)
}

// Want returns the desired state as configured: the hook, CDI and the kinds.
func (s *Setup) Want() accel.Want {
	return accel.Want{
		Hook: s.Config.Hook && HookProgram() != "", CDI: s.Config.CDI, Kinds: s.Kinds,
		PoliciesUnknown: s.PoliciesUnknown, InCluster: s.Policies.InCluster(),
	}
}

// Detect reads the host, with the devices of the kinds in force wherever they are.
func (s *Setup) Detect(o detect.Options) accel.Facts {
	o.Subsystems = append(o.Subsystems, detect.SubsystemsOf(s.Kinds)...)
	return detect.Detect(s.Host, o)
}

// Accelerators returns the devices that a kind has; see [accel.Rivalries]. A device without a health state counts as
// healthy.
func (s *Setup) Accelerators(def *accel.Definition, facts accel.Facts) []accel.Accelerator {
	all := facts.All()
	lost := accel.Lost(def.Kind, accel.Rivalries(s.Kinds, all))
	all = slices.DeleteFunc(slices.Clone(all), func(d accel.Device) bool { return lost[d.Address] })
	accs := detect.Accelerators(s.Host, def, all)
	for i := range accs {
		if accs[i].Health.State == "" {
			accs[i].Health.State = accel.Healthy
		}
	}
	return accs
}

// LedgerProblem turns an error of the ledger into a problem with a reason.
func LedgerProblem(err error) *accel.Problem {
	var p *accel.Problem
	if errors.As(err, &p) {
		return p
	}
	return accel.Problemf(accel.ReasonForError(err, accel.InternalError), "%v", err)
}

// runtimeUnits control the container runtime's unit. The root of another machine has none.
func runtimeUnits(h *host.Host) runtime.Units {
	if !h.Live() {
		return runtime.Units{}
	}
	u := systemd.NewUnits(h.Path)
	return runtime.Units{
		Reload: u.Reload, Restart: u.Restart,
		FirstError: func(ctx context.Context, unit string, since time.Time) string {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			out, err := h.Programs().Command(ctx, "journalctl", "--unit="+unit, fmt.Sprintf("--since=@%d", since.Unix()),
				"--output=json", "--no-pager", "--lines=200").Output()
			if err != nil {
				return ""
			}
			return systemd.FirstError(out)
		},
	}
}

// OwnPrograms returns the directory of this program; empty if that is unknown.
func OwnPrograms() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(self)
}

// HookProgram returns the path of acceld-hook next to this program; empty if it is not there.
func HookProgram() string {
	dir := OwnPrograms()
	if dir == "" {
		return ""
	}
	p := filepath.Join(dir, "acceld-hook")
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// nodeName returns the configured name, the name of the pod's node, or the host name.
func nodeName(config Config) (string, error) {
	if n := cmp.Or(config.Node, os.Getenv("NODE_NAME")); n != "" {
		return n, nil
	}
	n, err := os.Hostname()
	if err != nil || n == "" {
		return "", errors.New("cannot find the node name: set node in the configuration")
	}
	return n, nil
}
