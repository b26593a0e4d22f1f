package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
)

// finding is one line of the doctor.
type finding struct {
	About string `json:"about"`
	// Reason is empty when all is well.
	Reason  accel.Reason `json:"reason,omitempty"`
	Message string       `json:"message"`
	Tried   []string     `json:"tried,omitempty"`
	Remedy  string       `json:"remedy,omitempty"`
}

func doctorCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong, change nothing", Args: noArgs,
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
				if err := printFindings(cmd.OutOrStdout(), findings); err != nil {
					return err
				}
			}
			if bad > 0 {
				return exit{exitFailed, nil}
			}
			return nil
		},
	}
	format.flag(cmd)
	return cmd
}

// printFindings prints what was checked, how it is, and below what is wrong what to do.
func printFindings(out io.Writer, findings []finding) error {
	i := ink(colourful(out))
	about, mark := 0, 0
	for _, f := range findings {
		about, mark = max(about, len(f.About)), max(mark, len(f.Reason))
	}
	var b strings.Builder
	for _, f := range findings {
		word, paint := "ok", i.good
		if f.Reason != "" {
			word, paint = string(f.Reason), i.bad
		}
		line := fmt.Sprintf("%-*s  %s  %s", about, f.About, paint(fmt.Sprintf("%-*s", max(mark, len("ok")), word)), plain(f.Message))
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
		for _, t := range f.Tried {
			fmt.Fprintf(&b, "    tried: %s\n", plain(t))
		}
		if f.Remedy != "" {
			fmt.Fprintf(&b, "    -> %s\n", f.Remedy)
		}
	}
	return printPage(out, b.String())
}

func found(about, well string, problem *accel.Problem) finding {
	if problem == nil {
		return finding{About: about, Message: well}
	}
	return finding{About: about, Reason: problem.Reason, Message: problem.Message, Tried: problem.Tried, Remedy: problem.Reason.Doc().Remedy}
}

// diagnose runs every check in the order in which the agent would meet the trouble.
func (c *common) diagnose(cmd *cobra.Command) []finding {
	p, problem := c.open()
	out := []finding{found("configuration", c.from(), problem)}
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
	out = append(out, p.diagnoseLedger()...)
	facts := detect.Detect(p.host, detect.Options{})
	for _, note := range facts.Problems {
		out = append(out, finding{About: "host", Reason: accel.ProbeUnanswered, Message: note})
	}
	out = append(out, p.diagnoseRuntime(facts)...)
	for _, kind := range sorted(p.defs) {
		out = append(out, p.diagnoseKind(p.defs[kind], facts)...)
	}
	return append(out, p.diagnoseAgent(cmd)...)
}

// diagnoseLedger names what acceld wrote and somebody else has changed since: a purge will leave it.
func (p *parts) diagnoseLedger() []finding {
	changed, err := p.ledger.Changed()
	if err != nil {
		return []finding{found("ledger", "", problemOf(err))}
	}
	var out []finding
	for _, o := range changed {
		out = append(out, found("ledger", "", accel.Problemf(o.Reason, "%q: %s", o.Path, o.Detail)))
	}
	return out
}

// diagnoseKind checks one kind that has devices.
func (p *parts) diagnoseKind(def *accel.Definition, facts accel.Facts) []finding {
	accs := p.accelerators(def, facts)
	if len(accs) == 0 {
		return nil
	}
	out := []finding{{About: def.Kind, Message: count(len(accs), "device")}}
	have, problem := p.driver(nil).Probe(def, facts, accs)
	if problem == nil && !have.Right {
		problem = accel.Problemf(accel.NoDriverSource, "the driver is not loaded")
	}
	out = append(out, found(def.Kind+" driver", driverLine(have), problem))
	want := accel.Want{CDI: p.config.CDI, Hook: p.config.Hook && hookProgram() != "", Kinds: p.defs}
	run, problem := p.agentRuntime(facts).Check(def, accs, want)
	if problem == nil && !run.Applied {
		problem = accel.Problemf(accel.ProbeUnanswered, "the CDI spec %q is not the one these devices need", run.Spec)
	}
	well := run.Spec
	if well == "" {
		well = "no CDI spec, and none is needed: no device can be used yet"
	}
	out = append(out, found(def.Kind+" runtime", well, problem))
	for _, a := range accs {
		if a.Health.State != accel.Healthy {
			out = append(out, found(a.ID, "", accel.Problemf(a.Health.Reason, "%s", a.Health.Message)))
		}
	}
	return out
}

// from says where the configuration comes from.
func (c *common) from() string {
	if _, err := os.Stat(c.config); err != nil {
		return fmt.Sprintf("the defaults: there is no %q", c.config)
	}
	return c.config
}

// diagnoseAgent asks the running agent.
func (p *parts) diagnoseAgent(cmd *cobra.Command) []finding {
	a, err := p.agent()
	if err != nil {
		return []finding{found("agent", "", accel.AsProblem(err))}
	}
	m, err := a.machine(cmd.Context())
	if err != nil {
		return []finding{{About: "agent", Reason: accel.ProbeUnanswered, Message: err.Error(), Remedy: "Start it: systemctl start acceld, or look at the DaemonSet's pod."}}
	}
	var out []finding
	for _, kind := range sorted(m.Status) {
		if f := m.Status[kind].Blocked; f != nil {
			out = append(out, found("agent, "+kind, "", &f.Problem))
		}
	}
	if len(out) == 0 {
		out = []finding{{About: "agent", Message: summary(m)}}
	}
	return out
}
