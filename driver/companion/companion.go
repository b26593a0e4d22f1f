// Package companion runs the daemons that belong to drivers, as services of the host's systemd or, without one, in
// control groups of their own: they outlive the agent, and whoever unloads or replaces a driver stops them first.
// Whether one runs is read from its control group, not remembered.
package companion

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/host"
)

// Manager runs services.
type Manager interface {
	// Start starts a service that is not loaded, and returns when it runs.
	Start(ctx context.Context, s host.Service) error
	// Stop stops a service and returns when no process of it is left. A service that is not loaded is no error.
	Stop(ctx context.Context, name string) error
}

// readyTime is how long a companion may take until it is ready.
const readyTime = 30 * time.Second

// Companions are the daemons of all drivers on a host.
type Companions struct {
	h       *host.Host
	manager Manager
	log     *slog.Logger
	ready   time.Duration // readyTime, less in tests
	mu      sync.Mutex
	failed  map[string]failure // why optional companions did not start, by their service's name
}

// failure is why a service did not start.
type failure struct{ digest, why string }

// New returns the companions of a host, which a manager of services runs; h's own if it is nil.
func New(h *host.Host, manager Manager, log *slog.Logger) *Companions {
	if manager == nil {
		manager = host.NewDaemons(h)
		if systemd := host.NewServices(h); systemd.Available() {
			manager = systemd
		}
	}
	return &Companions{h: h, manager: manager, log: log, ready: readyTime, failed: map[string]failure{}}
}

// needed returns the companions that a user space has and that this host needs.
func (c *Companions) needed(def *accel.Definition, root string) []accel.Companion {
	if root == "" || def.Driver.UserSpace == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(def.Driver.Companions), func(w accel.Companion) bool {
		where := w.Where == "" || len(c.h.Glob("/", strings.TrimPrefix(w.Where, "/"))) > 0
		return !where || !c.h.Exists(program(root, w))
	})
}

func program(root string, w accel.Companion) string {
	return path.Join(root, accel.UserSpacePrograms, w.Program)
}

// Judge returns the companions that are needed with the user space in root, which is of a version. The problem is
// CompanionDown if one of them does not run, or runs as another definition or user space said; an optional one only
// until [Companions.Start] has tried. It changes nothing.
func (c *Companions) Judge(def *accel.Definition, root, version string) (have []accel.CompanionHave,
	problem *accel.Problem,
) {
	for _, w := range c.needed(def, root) {
		s := service(def, w, root, version)
		why := c.down(w, s)
		known := c.failure(s)
		if why != "" && problem == nil && (!w.Optional || known == "") {
			problem = accel.Problemf(accel.CompanionDown, "%q of %q %s (see: %s)", w.Program, def.Kind, why,
				c.output(s.Name))
		}
		companion := accel.CompanionHave{Name: w.Name, Unit: s.Name, Runs: why == ""}
		if !companion.Runs {
			companion.Why = known
		}
		have = append(have, companion)
	}
	return have, problem
}

// failure is why an optional companion, as s says, did not start; empty if nobody has tried, or it did.
func (c *Companions) failure(s host.Service) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.failed[s.Name]; f.digest == digest(s) {
		return f.why
	}
	return ""
}

// digest is what [service] has put into the environment of a service.
func digest(s host.Service) string { return s.Env[len(s.Env)-1] }

// down says why a companion does not do its work; empty if it does.
func (c *Companions) down(w accel.Companion, s host.Service) string {
	switch {
	case !c.runs(s.Name):
		return "does not run"
	case !c.made(s):
		return "runs as another version of the driver or of the definition said"
	case !c.isReady(w):
		return "is not ready: there is no " + strconv.Quote(w.Ready)
	}
	return ""
}

func (c *Companions) isReady(w accel.Companion) bool { return w.Ready == "" || c.h.Exists(w.Ready) }

// filled returns texts of a companion with their templates filled.
func filled(def *accel.Definition, w accel.Companion, root, version string, texts []string) (out []string) {
	fill := strings.NewReplacer("{{.Root}}", root, "{{.DriverVersion}}", version,
		"{{.Config}}", configFile(accel.CompanionUnit(def.Kind, w.Name)))
	for _, text := range texts {
		out = append(out, fill.Replace(text))
	}
	return out
}

// service is the service of a companion. Its environment has a digest of all of it, and of its settings.
func service(def *accel.Definition, w accel.Companion, root, version string) host.Service {
	s := host.Service{
		Name: accel.CompanionUnit(def.Kind, w.Name), Description: def.Title + ": " + w.Name,
		Argv: []string{program(root, w)}, Forks: w.Forks, RuntimeDirectory: w.Directory,
		Env: []string{"LD_LIBRARY_PATH=" + path.Join(root, accel.UserSpaceLibraries)},
	}
	s.Argv = append(s.Argv, filled(def, w, root, version, w.Args)...)
	text := fmt.Appendf(nil, "%#v", s)
	if w.Config != "" { // what is in it follows from the root
		text = fmt.Appendf(text, "%q%q", w.Config, filled(def, w, root, version, w.Settings))
	}
	s.Env = append(s.Env, fmt.Sprintf("ACCELD_COMPANION=%x", sha256.Sum256(text)))
	return s
}

// Start starts the companions that are needed with the user space in root and do not run from there, and waits until
// they are ready. Those that run otherwise, are not ready, or are not needed any more are stopped first.
func (c *Companions) Start(ctx context.Context, def *accel.Definition, root, version string) *accel.Problem {
	needed := c.needed(def, root)
	for _, unit := range c.Units(def.Kind) {
		if !slices.ContainsFunc(needed, func(w accel.Companion) bool {
			return unit == accel.CompanionUnit(def.Kind, w.Name)
		}) {
			if problem := c.stop(ctx, unit); problem != nil {
				return problem
			}
		}
	}
	for _, w := range needed {
		s := service(def, w, root, version)
		if c.down(w, s) == "" {
			continue
		}
		problem := c.start(ctx, def, w, root, version)
		if problem == nil {
			continue
		}
		if !w.Optional || ctx.Err() != nil {
			return problem
		}
		c.log.Warn("the driver serves without a companion", "kind", def.Kind, "name", w.Name, "message", problem.Message)
		c.mu.Lock()
		c.failed[s.Name] = failure{digest(s), problem.Message}
		c.mu.Unlock()
	}
	return nil
}

// start starts a companion that does not run as it should, and waits until it is ready.
func (c *Companions) start(ctx context.Context, def *accel.Definition, w accel.Companion, root, version string,
) *accel.Problem {
	s := service(def, w, root, version)
	if problem := c.stop(ctx, s.Name); problem != nil {
		return problem
	}
	if problem := c.configure(def, w, root, version); problem != nil {
		return problem
	}
	began := time.Now()
	if err := c.manager.Start(ctx, s); err != nil {
		return accel.Problemf(accel.CompanionDown, "cannot start %q of %q: %v (see: %s)", w.Program, def.Kind, err,
			c.output(s.Name))
	}
	gone := false
	ready := deadline.Until(ctx, c.ready, func() bool { gone = c.ended(s); return gone || c.isReady(w) })
	if gone {
		return accel.Problemf(accel.CompanionDown, "%q of %q ended before it was ready (see: %s)",
			w.Program, def.Kind, c.output(s.Name))
	}
	if !ready {
		return accel.Problemf(accel.CompanionDown,
			"%q of %q is not ready after %v: there is no %q (see: %s)", w.Program, def.Kind, c.ready, w.Ready,
			c.output(s.Name))
	}
	c.log.Info("companion started", "kind", def.Kind, "name", w.Name, "unit", s.Name, "took", time.Since(began))
	return nil
}

// Stop stops the companions of a kind, those of former definitions too; those of all kinds if kind is "*".
func (c *Companions) Stop(ctx context.Context, kind string) *accel.Problem {
	for _, unit := range c.Units(kind) {
		if problem := c.stop(ctx, unit); problem != nil {
			return problem
		}
		c.log.Info("companion stopped", "unit", unit)
	}
	return nil
}

func (c *Companions) stop(ctx context.Context, unit string) *accel.Problem {
	if err := c.manager.Stop(ctx, unit); err != nil {
		return accel.Problemf(accel.CompanionDown, "cannot stop %q: %v", unit, err)
	}
	c.forget(unit)
	return nil
}

// Is reports whether a process belongs to a companion of a kind; of any kind if it is "*".
func (c *Companions) Is(pid int, kind string) bool {
	text, err := c.h.ReadAttribute(path.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false
	}
	of := accel.CompanionOf(text)
	return of != "" && (kind == "*" || of == kind)
}

// Without returns the holders of a kind's driver without its companions. A use that only the kernel counts is theirs
// while there are any.
func (c *Companions) Without(kind string, who []accel.Holder) []accel.Holder {
	any := len(who) > 0 && len(c.Units(kind)) > 0
	return slices.DeleteFunc(slices.Clone(who), func(h accel.Holder) bool {
		return any && (devices.Unseen(h) || h.PID > 0 && c.Is(h.PID, kind))
	})
}

// transient is where systemd keeps what a transient service was made of.
const transient = "/run/systemd/transient"

// groups are where the control groups of services are: in version 2, and in version 1 beside it or alone.
func groups() []string {
	return []string{
		"/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/unified/system.slice", "/sys/fs/cgroup/systemd/system.slice",
	}
}

// Units returns the services of a kind's companions that have a control group, or that systemd is about to restart.
func (c *Companions) Units(kind string) (out []string) {
	pattern := accel.CompanionUnit(kind, "*")
	for _, dir := range append(append(groups(), transient), host.DaemonsDir) {
		for _, name := range c.h.Glob(dir, pattern) {
			if unit := path.Base(name); !slices.Contains(out, unit) {
				out = append(out, unit)
			}
		}
	}
	return out
}

// runs reports whether a service has a process.
func (c *Companions) runs(unit string) bool {
	return slices.ContainsFunc(groups(), func(dir string) bool {
		text, err := c.h.ReadAttribute(path.Join(dir, unit, "cgroup.procs"))
		return err == nil && strings.TrimSpace(text) != ""
	})
}

// made reports whether a service was made as s says.
func (c *Companions) made(s host.Service) bool {
	return slices.ContainsFunc([]string{transient, host.DaemonsDir}, func(dir string) bool {
		text, err := c.h.ReadAttribute(path.Join(dir, s.Name))
		return err == nil && strings.Contains(text, digest(s))
	})
}

func (c *Companions) systemd() bool { return host.NewServices(c.h).Available() }

// ended reports whether a service has ended for good. Systemd restarts it until it gives up, and then forgets it.
func (c *Companions) ended(s host.Service) bool {
	return !c.made(s) || !c.systemd() && !c.runs(s.Name)
}

// output says where a service's output is, for people.
func (c *Companions) output(unit string) string {
	if c.systemd() {
		return "journalctl -u " + unit
	}
	return path.Join(host.DaemonsDir, unit+".log")
}
