package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/vendors"
)

// parts are what most commands need.
type parts struct {
	host   *host.Host
	config agent.Config
	// defs are the definitions in force.
	defs map[string]*accel.Definition
	// base are the same without what was asked for by `acceld driver upgrade`.
	base map[string]*accel.Definition
	// skipped are definition files that cannot be used.
	skipped []*accel.Problem
	// policies are those of the cluster, as far as is known, and unfit what of them cannot be used here. Unsure is true while
	// nobody knows them.
	policies agent.Policies
	unfit    []*accel.Problem
	unsure   bool
	// pages are the further pages of metrics that are asked for.
	pages []accel.MetricPage
	log   *slog.Logger
	// console is where the log goes, and how far the work is.
	console *console
	// ledger makes the changes that a purge takes back.
	ledger *ledger.Ledger
	// elect chooses the node that builds a driver for all; nil without a cluster.
	elect func(ctx context.Context, key string) (release func(), elected bool, holder string, err error)
}

// open reads configuration and definitions. The configuration is read in this process's own file system, the
// definitions in the host's.
func (c *common) open() (*parts, *accel.Problem) {
	h, err := host.New(c.hostRoot)
	if err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "%v", err)
	}
	config, problem := agent.ReadConfig(c.config, c.asked)
	if problem != nil {
		return nil, problem
	}
	p := &parts{host: h, config: config, console: c.console}
	var level slog.Level
	if err := level.UnmarshalText([]byte(config.LogLevel)); err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "logLevel: %v", err)
	}
	p.log = slog.New(slog.NewTextHandler(p.console, &slog.HandlerOptions{Level: level}))
	if p.pages, problem = compatible(c.config, config.Compatible); problem != nil {
		return nil, problem
	}
	if p.ledger, err = ledger.Open(h, config.StateDir, p.log); err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "stateDir: %v", err)
	}
	if problem := p.define(c); problem != nil {
		if problem.Reason == accel.ConfigInvalid { // the overrides, which do not know their file
			problem.Message = fmt.Sprintf("cannot use %q: %s", c.config, problem.Message)
		}
		return nil, problem
	}
	p.base = maps.Clone(p.defs)
	for kind, def := range p.base {
		asked, problem := driver.Requested(h, config.StateDir, def)
		if problem != nil {
			p.skipped = append(p.skipped, problem)
		}
		p.defs[kind] = asked
	}
	return p, nil
}

// compatible returns the further pages of metrics by their names in the configuration file.
func compatible(file string, names []string) ([]accel.MetricPage, *accel.Problem) {
	var pages []accel.MetricPage
	var known []string
	for _, p := range vendors.MetricPages() {
		known = append(known, p.Name)
		if slices.Contains(names, p.Name) {
			pages = append(pages, p)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, accel.Problemf(accel.ConfigInvalid, "cannot use %q: endpoint.compatible: %q is not one of %s", file, name, strings.Join(known, ", "))
		}
	}
	return pages, nil
}

// define finds the definitions in force: built in, of policies, of files, with what policies and the configuration override.
func (p *parts) define(c *common) *accel.Problem {
	policies, known, unread := c.policies(p.host, p.config)
	p.policies, p.unsure = policies, !known
	if unread != nil {
		p.unfit = append(p.unfit, unread)
	}
	defs, skipped, problem := loaded(p.host, p.config, policies)
	if problem != nil {
		return problem
	}
	for _, s := range skipped {
		if s.Reason == accel.PolicyInvalid {
			p.unfit = append(p.unfit, s)
		} else {
			p.skipped = append(p.skipped, s)
		}
	}
	var misfits []*accel.Problem
	if p.defs, misfits, problem = ordered(p.config, defs, policies); problem != nil {
		return problem
	}
	p.unfit = append(p.unfit, misfits...)
	return nil
}

// loaded returns every definition that can be used, also those that are off, as their files have them.
func loaded(h *host.Host, config agent.Config, policies agent.Policies) (map[string]*accel.Definition, []*accel.Problem, *accel.Problem) {
	defs, problem := vendors.Definitions()
	if problem != nil {
		return nil, nil, problem
	}
	skipped := addDefinitions(defs, policies)
	if dir, err := h.Path(config.Definitions); err == nil {
		skipped = append(skipped, vendors.Load(os.DirFS(dir), defs)...)
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

// knownMetrics refuses a definition whose metrics the exporter has no row for.
func knownMetrics(def *accel.Definition, names []string) *accel.Problem {
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	for _, m := range def.Metrics {
		if !known[m.Name] {
			return accel.Problemf(accel.DefinitionInvalid, "cannot use definition %q: metric %q is not in docs/metrics.md", def.Kind, m.Name)
		}
	}
	return nil
}

// driver returns the driver manager; progress may be nil.
func (p *parts) driver(progress func(accel.Progress)) *driver.Driver {
	return driver.New(p.host, driver.Options{
		StateDir: p.config.StateDir, Log: p.log, Ledger: p.ledger, Progress: progress,
		StoreEntries: p.config.StoreEntries, StoreMiB: p.config.StoreMiB,
		LoadTimeout: p.config.LoadTimeout, BuildTimeout: p.config.BuildTimeout, Jobs: p.config.Build.Jobs,
		BuildMemory: p.config.Build.MemoryBytes(p.host.Memory()), CPUWeight: p.config.Build.CPUWeight,
		Helper: []string{"/proc/self/exe", "load-module"}, Elect: p.elect,
	})
}

// accelerators returns the devices of a kind, healthy unless they say otherwise.
func (p *parts) accelerators(def *accel.Definition, facts accel.Facts) []accel.Accelerator {
	accs := detect.Accelerators(p.host, def, facts.PCI)
	for i := range accs {
		if accs[i].Health.State == "" {
			accs[i].Health.State = accel.Healthy
		}
	}
	return accs
}

// ownPrograms is the directory that this program stands in; empty when that cannot be known.
func ownPrograms() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(self)
}

// hookProgram finds acceld-hook beside this program.
func hookProgram() string {
	dir := ownPrograms()
	if dir == "" {
		return ""
	}
	p := filepath.Join(dir, "acceld-hook")
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// nodeName is the configured name, the pod's node or the host name.
func nodeName(config agent.Config) (string, error) {
	if config.Node != "" {
		return config.Node, nil
	}
	if n := os.Getenv("NODE_NAME"); n != "" {
		return n, nil
	}
	n, err := os.Hostname()
	if err != nil || n == "" {
		return "", errors.New("cannot find the node name: set node in the configuration")
	}
	return n, nil
}
