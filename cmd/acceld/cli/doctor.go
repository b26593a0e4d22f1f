package cli

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/runtime"
)

// finding is one line of the doctor.
type finding struct {
	About string `json:"about"`
	// Reason is empty when all is well.
	Reason  accel.Reason `json:"reason,omitempty"`
	Message string       `json:"message"`
	Remedy  string       `json:"remedy,omitempty"`
}

func doctorCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong, change nothing", Args: cobra.NoArgs,
		Long: `doctor checks configuration, rights, directories, driver, runtime and agent of this host, and says for everything that
is wrong who must do what. It changes nothing, and works without a running agent.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := c.diagnose(cmd)
			bad := 0
			for _, f := range findings {
				if f.Reason != "" {
					bad++
				}
			}
			if format.json() {
				if err := writeJSON(cmd.OutOrStdout(), findings); err != nil {
					return err
				}
			} else {
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, f := range findings {
					mark := "ok"
					if f.Reason != "" {
						mark = string(f.Reason)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", f.About, mark, f.Message)
					if f.Remedy != "" {
						fmt.Fprintf(w, "\t\t-> %s\n", f.Remedy)
					}
				}
				_ = w.Flush() // out is a terminal or a pipe: there is nobody to tell
			}
			if bad > 0 {
				return exit{exitFailed, errors.New("")}
			}
			return nil
		},
	}
	format.flag(cmd)
	return cmd
}

func found(about, well string, problem *accel.Problem) finding {
	if problem == nil {
		return finding{About: about, Message: well}
	}
	return finding{About: about, Reason: problem.Reason, Message: problem.Message, Remedy: problem.Reason.Doc().Remedy}
}

// diagnose runs every check in the order in which the agent would meet the trouble.
func (c *common) diagnose(cmd *cobra.Command) []finding {
	p, problem := c.open()
	out := []finding{found("configuration", c.config, problem)}
	if problem != nil {
		return out
	}
	for _, s := range p.skipped {
		out = append(out, found("definition", "", s))
	}
	var rights *accel.Problem
	if os.Geteuid() != 0 {
		rights = accel.Problemf(accel.PermissionDenied, "running as user %d", os.Geteuid())
	}
	out = append(out, found("rights", "root", rights))
	facts := detect.Detect(p.host, detect.Options{})
	for _, note := range facts.Problems {
		out = append(out, finding{About: "host", Reason: accel.ProbeUnanswered, Message: note})
	}
	for _, kind := range sorted(p.defs) {
		out = append(out, p.diagnoseKind(p.defs[kind], facts)...)
	}
	return append(out, p.diagnoseAgent(cmd))
}

// diagnoseKind checks one kind that has devices.
func (p *parts) diagnoseKind(def *accel.Definition, facts accel.Facts) []finding {
	accs := p.accelerators(def, facts)
	if len(accs) == 0 {
		return nil
	}
	out := []finding{{About: def.Kind, Message: fmt.Sprintf("%d devices", len(accs))}}
	have, problem := p.driver(nil).Probe(def, facts, accs)
	if problem == nil && !have.Right {
		problem = accel.Problemf(accel.NoDriverSource, "the driver is not loaded")
	}
	out = append(out, found(def.Kind+" driver", driverLine(have), problem))
	want := accel.Want{CDI: p.config.CDI, Hook: p.config.Hook && hookProgram() != "", Kinds: p.defs}
	r := runtime.New(p.host, runtime.Options{Log: p.log, HookProgram: hookProgram(), Engine: facts.Runtime})
	run, problem := r.Check(def, accs, want)
	if problem == nil && !run.Applied {
		problem = accel.Problemf(accel.ProbeUnanswered, "the CDI spec %q is not the one these devices need", run.Spec)
	}
	out = append(out, found(def.Kind+" runtime", run.Spec, problem))
	for _, a := range accs {
		if a.Health.State != accel.Healthy {
			out = append(out, found(a.ID, "", accel.Problemf(a.Health.Reason, "%s", a.Health.Message)))
		}
	}
	return out
}

// diagnoseAgent asks the running agent.
func (p *parts) diagnoseAgent(cmd *cobra.Command) finding {
	client, err := endpoint(p.host, p.config.Socket)
	if err != nil {
		return found("agent", "", accel.AsProblem(err))
	}
	m, err := machine(cmd.Context(), client)
	if err != nil {
		return finding{About: "agent", Reason: accel.ProbeUnanswered, Message: fmt.Sprintf("no agent answers on %q: %v", p.config.Socket, err), Remedy: "Start it: systemctl start acceld, or look at the DaemonSet's pod."}
	}
	for kind, s := range m.Status {
		if s.Blocked != nil {
			return found("agent, "+kind, "", &s.Blocked.Problem)
		}
	}
	return finding{About: "agent", Message: summary(m)}
}
