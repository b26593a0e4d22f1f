package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/health"
)

// finding is one result of the doctor.
type finding struct {
	About string `json:"about"`
	// Reason is empty if all is well.
	Reason  accel.Reason `json:"reason,omitempty"`
	Message string       `json:"message"`
	// Evidence is the source of the message, such as a line of the kernel log.
	Evidence []string `json:"evidence,omitempty"`
	Tried    []string `json:"tried,omitempty"`
	Remedy   string   `json:"remedy,omitempty"`
	// Actor is who must act.
	Actor accel.Actor `json:"actor,omitempty"`
}

func (f finding) bad() bool { return f.Reason != "" }

// advice marks a finding without a reason that says what to do: it is not wrong, but somebody may want it otherwise.
const advice = "advice"

func doctorCommand(c *common) *cobra.Command {
	var format outputFormat
	var report string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find out what is wrong with this host", Args: noArgs,
		Long: `doctor checks the configuration, permissions, directories, drivers, container runtime and agent of this host. For each
problem it shows the evidence, what to do, and who has to do it. It changes nothing and works without a running agent.
Advice, such as what makes traffic between devices slow, is no problem: the exit code is 0.

With --report it also writes what is known about the host into one text file that you can share: findings, the agent's
answers, configuration, the drivers in the store, and the end of the agent's journal and of the kernel log. It leaves
out passwords, tokens, keys and certificates, but not the names of the node, of pods and of devices. Read the file
before you share it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := c.diagnose(cmd)
			if report != "" {
				if err := c.report(cmd, report, findings); err != nil {
					return exit{exitFailed, fmt.Errorf("cannot write a report to %q: %v", report, err)}
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "acceld: wrote %s; read it before you share it\n", report)
			}
			err := format.print(cmd.OutOrStdout(), findings, func(s *tableWriter) { printFindings(s, findings) })
			if err == nil && slices.ContainsFunc(findings, finding.bad) {
				return exit{exitFailed, nil}
			}
			return err
		},
	}
	format.flag(cmd, "text")
	cmd.Flags().StringVar(&report, "report", "", "write a report about this host, without secrets, to this file")
	return cmd
}

// printFindings writes each check with its result. Below a problem it writes the evidence, what was tried and what to
// do.
func printFindings(s *tableWriter, findings []finding) {
	about, mark := 0, len("ok")
	for _, f := range findings {
		about, mark = max(about, len(f.About)), max(mark, len(f.Reason))
		if f.Remedy != "" {
			mark = max(mark, len(advice))
		}
	}
	hang := about + 2 + mark + 2
	narrow := s.width > 0 && s.width-hang < 2*minText
	for _, f := range findings {
		word, paint := "ok", s.good
		switch {
		case f.Reason != "":
			word, paint = string(f.Reason), s.bad
		case f.Remedy != "":
			word = advice
		}
		if !narrow {
			s.fold(f.About+strings.Repeat(" ", about-len(f.About)+2)+paint(word)+
				strings.Repeat(" ", mark-len(word)+2), hang, plain(f.Message))
		} else if s.line(0, f.About+"  "+paint(word)); f.Message != "" {
			s.line(4, plain(f.Message))
		}
		s.fields(4, "seen", f.Evidence)
		s.fields(4, "tried", f.Tried)
		do := f.Remedy
		if do != "" && f.Actor != "" {
			do += " (" + string(f.Actor) + ")"
		}
		s.field(4, "do", do)
	}
}

func found(about, well string, problem *accel.Problem) finding {
	if problem == nil {
		return finding{About: about, Message: well}
	}
	doc := problem.Reason.Doc()
	return finding{
		About: about, Reason: problem.Reason, Message: problem.Message, Tried: problem.Tried,
		Remedy: plain(problem.Remedy()), Actor: doc.Actor,
	}
}

// ill returns the finding for a device that is not healthy.
func ill(a accel.Accelerator) finding {
	h := a.Health
	f := found(a.ID, "", accel.Problemf(h.Reason, "%s%s", h.State, prefixed(": ", h.Message)))
	if h.Evidence != "" {
		f.Evidence = []string{h.Evidence}
	}
	if h.Action != "" {
		f.Remedy = a.Remedy()
	}
	return f
}

// diagnose runs every check, in the order in which the agent would run into the problems.
func (c *common) diagnose(cmd *cobra.Command) []finding {
	p, problem := c.open(cmd)
	out := []finding{found("configuration", c.from(), problem)}
	if problem != nil {
		return out
	}
	for _, a := range p.Absent(c.config) {
		out = append(out, found("configuration", "", a))
	}
	for _, s := range p.Skipped {
		out = append(out, found("definition", "", s))
	}
	var rights *accel.Problem
	if os.Geteuid() != 0 {
		rights = accel.Problemf(accel.PermissionDenied, "running as user %d", os.Geteuid())
	}
	out = append(out, found("rights", "root", rights))
	out = append(out, p.diagnoseLedger()...)
	facts := p.Detect(detect.Options{Around: true})
	out = append(out, diagnoseAround(facts)...)
	for _, note := range facts.Problems {
		out = append(out, finding{About: "host", Reason: accel.ProbeUnanswered, Message: note})
	}
	for _, note := range facts.Notes {
		out = append(out, finding{About: "host", Message: note})
	}
	out = append(out, p.diagnoseRuntime(facts)...)
	rivals := accel.Rivalries(p.Kinds, facts.All())
	for i := range rivals {
		out = append(out, found("kinds", "", accel.Contested(rivals[i].Owner, rivals[i:i+1])))
	}
	for _, g := range accel.SharedGroups(p.Kinds, facts.PCI, rivals, nil) {
		out = append(out, found("kinds", "", g.Problem()))
	}
	for _, kind := range sorted(p.Kinds) {
		out = append(out, p.diagnoseKind(p.Kinds[kind], facts)...)
	}
	return append(out, p.diagnoseAgent(out)...)
}

// diagnoseAround reports what the host is, and which of its network functions are unhealthy.
func diagnoseAround(facts accel.Facts) []finding {
	var out []finding
	if text := facts.Inventory.String(); text != "" {
		out = append(out, finding{About: "host", Message: text})
	}
	for _, f := range facts.Network {
		for _, r := range f.Reporters {
			if r.State == "healthy" {
				continue
			}
			out = append(out, finding{
				About: "network " + f.Address, Reason: accel.DeviceUnhealthy, Actor: accel.ActorOperator,
				Message: reported(r),
				Remedy: fmt.Sprintf("See what it recorded: devlink health diagnose pci/%s reporter %s", f.Address,
					r.Name),
			})
		}
	}
	return out
}

// diagnoseLedger reports what acceld wrote and somebody else has changed since: a purge will leave it.
func (p *parts) diagnoseLedger() []finding {
	changed, err := p.Ledger.Changed()
	if err != nil {
		return []finding{found("ledger", "", agent.LedgerProblem(err))}
	}
	var out []finding
	for _, o := range changed {
		out = append(out, found("ledger", "", accel.Problemf(o.Reason, "%q: %s", o.Path, o.Detail)))
	}
	return out
}

// diagnoseKind checks one kind that has devices.
func (p *parts) diagnoseKind(def *accel.Definition, facts accel.Facts) []finding {
	accs := p.Accelerators(def, facts)
	if len(accs) == 0 {
		return nil
	}
	out := []finding{{About: def.Kind, Message: count(len(accs), "device")}}
	out = append(out, p.diagnoseSources(def, facts)...)
	have, problem := p.Driver(nil).Probe(def, facts, accs)
	if problem == nil && !have.Serves {
		problem = accel.Problemf(accel.NoDriverSource, "the driver is not loaded").ToDo(
			"Start the agent, which loads it and says what is missing, or try it by hand: acceld driver ensure %s.", def.Kind)
	}
	out = append(out, found(def.Kind+" driver", driverLine(have), problem))
	run, problem := p.Runtime(facts).Check(def, accs, p.Want())
	if problem == nil && !run.Applied {
		problem = accel.Problemf(accel.ProbeUnanswered, "the CDI spec %q does not match these devices", run.Spec)
		if run.Spec == "" {
			problem = accel.Problemf(accel.ProbeUnanswered, "there is no CDI spec of these devices yet").ToDo(
				"Start the agent, which writes it when the devices are ready.")
		}
	}
	well := cmp.Or(run.Spec, "no CDI spec; none is needed until a device is usable")
	out = append(out, found(def.Kind+" runtime", well, problem))
	for _, a := range accs {
		if a.Health.State != accel.Healthy {
			out = append(out, ill(a))
		}
	}
	if problem := accel.SharedNode(def, accs); problem != nil {
		out = append(out, found(def.Kind+" nodes", "", problem))
	}
	if def.Subsystem().Name != accel.PCI {
		return out
	}
	out = append(out, p.diagnoseBus(def, accs, facts)...)
	return append(out, p.diagnosePeers(def, accs, facts)...)
}

// diagnosePeers says what spoils traffic that the devices of a kind send each other and to network functions.
func (p *parts) diagnosePeers(def *accel.Definition, accs []accel.Accelerator, facts accel.Facts) (out []finding) {
	peers := accel.Peers{Definition: def, Devices: accs, Network: facts.Network, PCI: facts.PCI}
	peers.Functions = detect.Peers(p.Host, facts.PCI, peers.Addresses())
	for _, f := range peers.Findings() {
		one := finding{
			About: f.About, Reason: f.Reason, Message: f.Message, Evidence: f.Evidence, Remedy: f.Remedy,
			Actor: accel.ActorOperator,
		}
		if f.Reason != "" {
			one.Actor = f.Reason.Doc().Actor
		}
		out = append(out, one)
	}
	return out
}

// diagnoseSources reports which directories and files of a kind's sources are not there. That is no fault: another
// source may serve.
func (p *parts) diagnoseSources(def *accel.Definition, facts accel.Facts) (out []finding) {
	filled, problem := template.Expand(def, facts)
	if problem != nil {
		return []finding{found(def.Kind+" sources", "", problem)}
	}
	for _, s := range filled.Driver.Sources {
		if s.Path != "" && !p.Host.Exists(s.Path) {
			out = append(out, finding{
				About:   def.Kind + " sources",
				Message: fmt.Sprintf("%q of a source of type %s is not there", s.Path, s.Type),
			})
		}
	}
	return out
}

// diagnoseBus says of which devices errors of PCI Express may not be seen, and why. That is no fault: many machines
// report none.
func (p *parts) diagnoseBus(def *accel.Definition, accs []accel.Accelerator, facts accel.Facts) (out []finding) {
	blind := map[string][]string{}
	for _, a := range accs {
		ports, _ := accel.PortsAbove(a.ID, facts.PCI) // as far up as known
		if why := health.Unreported(p.Host, facts.Function(a.ID), ports); why != "" {
			blind[why] = append(blind[why], a.ID)
		}
	}
	for _, why := range sorted(blind) {
		out = append(out, finding{
			About:    def.Kind + " bus",
			Message:  fmt.Sprintf("errors of PCI Express of %s may not be seen: %s", count(len(blind[why]), "device"), why),
			Evidence: blind[why],
		})
	}
	return out
}

// from returns where the configuration comes from.
func (c *common) from() string {
	if _, err := os.Stat(c.config); err != nil {
		return fmt.Sprintf("the defaults: there is no %q", c.config)
	}
	return c.config
}

// diagnoseAgent queries the running agent. It does not repeat findings that are already in seen.
func (p *parts) diagnoseAgent(seen []finding) []finding {
	m, err := p.agent().Machine(p.ctx)
	if err != nil {
		return []finding{{
			About: "agent", Reason: accel.ProbeUnanswered, Message: err.Error(),
			Remedy: "Start it: systemctl start acceld, or look at the DaemonSet's pod.",
		}}
	}
	var out []finding
	if p := m.Want.Problem; p != nil {
		out = append(out, found("agent", "", p))
	}
	for _, p := range m.Agent.Problems {
		out = append(out, found("agent, "+p.Part, "", &p.Problem))
	}
	if mine := version(); m.Agent.Version != mine {
		out = append(out, finding{About: "agent", Message: fmt.Sprintf("the agent has version %s, this program %s",
			m.Agent.Version, mine)})
	}
	for _, kind := range sorted(m.Status) {
		about := "agent, " + kind
		if f := m.Status[kind].Blocked; f != nil {
			out = append(out, found(about, "", &f.Problem))
		}
		if u := m.Have[kind].Driver.Upgrade; u != nil && u.Failure != nil {
			f := found(about, "", &u.Failure.Problem)
			f.Evidence = append(f.Evidence, fmt.Sprintf("upgrade from %s to %s is %s", u.From, u.To, u.Phase))
			out = append(out, f)
		}
		if text := m.Have[kind].Monitoring.LabelProblem; text != "" {
			out = append(out, found(about, "", accel.Problemf(accel.APIUnreachable, "labels are not written yet: %s", text)))
		}
		for _, a := range accel.Flat(m.Have[kind].Accelerators) {
			if a.Health.State != accel.Healthy && !slices.ContainsFunc(seen, func(f finding) bool {
				return f.About == a.ID || a.Health.Reason == accel.LinkDegraded && f.About == accel.LinkOf(a.ID)
			}) {
				out = append(out, ill(a))
			}
		}
	}
	if !slices.ContainsFunc(out, finding.bad) {
		out = append(out, finding{About: "agent", Message: agent.Summary(m)})
	}
	return out
}
