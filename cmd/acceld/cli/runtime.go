package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/runtime/engine"
)

func runtimeCommand(c *common) *cobra.Command {
	return group(&cobra.Command{
		Use:   "runtime",
		Short: "Check and configure the container runtime",
	},
		runtimeCheckCommand(c), runtimeApplyCommand(c))
}

// runtimeFlags are the settings that commands may override.
type runtimeFlags struct{ engine, edit, restart string }

func (f *runtimeFlags) add(cmd *cobra.Command) {
	names := choices()["engine"]
	last := len(names) - 1
	cmd.Flags().StringVar(&f.engine, "engine", "",
		strings.Join(names[:last], ", ")+" or "+names[last]+"; default: the one on the host")
	cmd.Flags().StringVar(&f.edit, "edit", "",
		"never, dropin or full; default: runtime.edit in the configuration, or full")
}

// runtimeFor returns the Runtime for the flags and the configuration.
func (p *parts) runtimeFor(f runtimeFlags) (*runtime.Runtime, error) {
	if err := errors.Join(oneOf("engine", f.engine), oneOf("edit", f.edit), oneOf("restart", f.restart)); err != nil {
		return nil, err
	}
	look := func() (e accel.ContainerEngine) {
		if f.engine != "" {
			e, _ = detect.EngineNamed(p.Host, f.engine)
		} else if e, _ = detect.Engine(p.Host); e.Name == "" { // doctor reports what could not be read
			e = detect.EngineByFiles(p.Host)
		}
		return e
	}
	o := p.RuntimeOptions()
	o.Engine, o.Look, o.Retry = look(), look, true
	o.Edit = engine.Edit(cmp.Or(f.edit, p.Config.RuntimeEdit, string(engine.EditFull)))
	o.Restart = runtime.Restart(cmp.Or(f.restart, p.Config.RuntimeRestart, string(runtime.RestartNever)))
	return runtime.New(p.Host, o), nil
}

// diagnoseRuntime checks the container runtime's configuration, and names hooks that the runtime does not read.
func (p *parts) diagnoseRuntime(facts accel.Facts) []finding {
	if facts.Runtime.Name == "" || !p.Config.CDI {
		return nil
	}
	report, problem := p.Runtime(facts).CheckConfig()
	switch {
	case problem != nil || report.Offers:
	case unclear(report) != "":
		problem = accel.Problemf(accel.RuntimeMissingCDI, "it is not known whether %s reads CDI specs: %s", title(report),
			unclear(report))
	default:
		problem = accel.Problemf(accel.RuntimeMissingCDI,
			"%s does not read CDI specs; acceld may change its configuration (acceld runtime check shows how)",
			title(report))
	}
	out := []finding{found("container runtime", title(report)+" reads CDI specs", problem)}
	if report.Through != "" && problem == nil {
		out = append(out, found("container runtime", report.Through, nil))
	}
	for _, h := range report.Hooks {
		out = append(out, found("hooks", "", accel.Problemf(accel.HooksUnread, "%s", h)))
	}
	return out
}

func runtimeCheckCommand(c *common) *cobra.Command {
	var format outputFormat
	var flags runtimeFlags
	cmd := &cobra.Command{
		Use: "check", Short: "Check whether the container runtime gives devices to containers", Args: noArgs,
		Long: `check shows which container runtime the host has, where its configuration is, whether it gives devices to containers
through CDI, and what apply would change. It changes nothing.`,
		RunE: c.opened(func(p *parts, _ []string) error {
			r, err := p.runtimeFor(flags)
			if err != nil {
				return err
			}
			report, problem := r.CheckConfig()
			if err := format.print(p.out, report, func(s *tableWriter) {
				s.b.WriteString(describe(report))
			}); err != nil {
				return err
			}
			return failed(problem)
		}),
	}
	format.flag(cmd, "text")
	flags.add(cmd)
	return cmd
}

func runtimeApplyCommand(c *common) *cobra.Command {
	var flags runtimeFlags
	var dry, configOnly bool
	cmd := &cobra.Command{
		Use: "apply [KIND...]", Short: "Let the container runtime give devices to containers",
		Long: `apply makes the container runtime read CDI specs, with the smallest change, or none if it already does. It then
publishes the devices of the named kinds, or of every kind that has one. It works on any root, even if nothing runs
there. purge undoes the changes. The hook lets a container have a device only after an agent has reported the device
ready.`,
		RunE: c.opened(func(p *parts, kinds []string) error {
			r, err := p.runtimeFor(flags)
			if err != nil {
				return err
			}
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			if dry {
				report, problem := r.CheckConfig()
				fmt.Fprint(p.out, describe(report))
				return failed(problem)
			}
			report, problem := r.ApplyConfig(p.ctx)
			if problem != nil && problem.Reason != accel.RuntimeRestartNeeded {
				return failed(problem)
			}
			fmt.Fprint(p.out, applied(report))
			if !configOnly {
				if problem := p.applyKinds(r, defs); problem != nil {
					return failed(problem)
				}
			}
			return failed(problem)
		}),
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&flags.restart, "restart", "",
		"never, idle or now; default: runtime.restart in the configuration, or never")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be changed, change nothing")
	cmd.Flags().BoolVar(&configOnly, "config-only", false, "change only the container runtime's configuration, publish no devices")
	return cmd
}

// applyKinds publishes the devices of the given kinds; without any, of all kinds that have a device.
func (p *parts) applyKinds(r *runtime.Runtime, defs []*accel.Definition) *accel.Problem {
	facts := p.facts()
	if len(defs) == 0 {
		defs = p.withDevices(facts)
	}
	for _, def := range defs {
		accs := p.Accelerators(def, facts)
		if len(accs) == 0 {
			fmt.Fprintf(p.out, "%s: no device\n", def.Kind)
			continue
		}
		have, problem := r.Apply(def, accs, p.Want())
		if problem != nil {
			return problem
		}
		fmt.Fprintf(p.out, "%s: %s in %q\n", def.Kind, count(len(have.Devices), "device"), have.Spec)
	}
	return nil
}

// applied describes what was done.
func applied(r runtime.Report) string {
	reads := title(r) + " reads CDI specs"
	if why := unclear(r); why != "" {
		reads = title(r) + " is configured to read CDI specs, and it is not known whether it does: " + why
	}
	if len(r.Change.Files) == 0 {
		return reads + "; nothing to change\n"
	}
	var b strings.Builder
	for _, f := range r.Change.Files {
		fmt.Fprintf(&b, "wrote %q\n", f.Path)
	}
	return b.String() + reads + "\n"
}

// unclear says why it is not known whether the runtime reads specs; empty if it is.
func unclear(r runtime.Report) string {
	if r.Config == nil {
		return ""
	}
	return r.Config.Unknown
}

func title(r runtime.Report) string {
	return filled(" ", cmp.Or(r.Engine.Name, "no container runtime"), r.Engine.Version, r.Engine.Layout)
}

// describe renders a report for people.
func describe(r runtime.Report) string {
	var b strings.Builder
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-12s %s\n", name, text)
		}
	}
	row("runtime", title(r))
	row("found by", r.Engine.From)
	row("unit", r.Engine.Unit)
	if r.Config != nil {
		row("config", r.Config.Top)
		row("files", strings.Join(r.Config.Files, " "))
		row("CDI", map[bool]string{true: "on", false: "off"}[r.Config.CDI])
		row("specs", strings.Join(r.Config.SpecDirs, " "))
		row("hooks", strings.Join(r.Config.HookDirs, " "))
		devices := map[bool]string{true: "reach containers", false: "do not reach containers"}[r.Offers]
		switch why := unclear(r); {
		case why != "":
			devices = "not known whether they reach containers: " + why
		case r.Offers && r.Through != "":
			devices = r.Through
		}
		row("devices", devices)
	}
	for _, name := range r.Newer {
		row("newer", fmt.Sprintf("%q changed after the runtime started", name))
	}
	for _, h := range r.Hooks {
		row("hook", h)
	}
	if r.Diff != "" {
		fmt.Fprintf(&b, "\n%s", r.Diff)
	}
	return b.String()
}
