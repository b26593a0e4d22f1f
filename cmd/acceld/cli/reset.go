package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/pace"
)

const (
	// outOfUse is how long the agent may take to end a program that monitors the devices and to withhold them, and
	// the kubelet to take that over.
	outOfUse = 30 * time.Second
	// given is how long it takes until the agent knows of a device that the kubelet gave away just before that.
	given = 2 * time.Second
)

func resetCommand(c *common) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "reset DEVICE...", Short: "Reset unused devices and bind their driver again",
		Long: `reset takes devices out of use, unbinds their driver, lets the kernel reset them, binds the driver again and runs the
self-test of kinds that have one. Name a device by its PCI address or its UUID. reset changes nothing if a process or a
pod has a device (it names them), if the kernel cannot reset the device, or if the reset would also affect devices that
you did not name. During the reset, a running agent gives the devices to nobody. An interrupted reset leaves a device
without a driver at worst; the agent, or the next reset, binds it again.`,
		Args: takes(1, many, "name the devices"),
		RunE: c.opened(func(p *parts, words []string) error {
			r := &reset{parts: p, driver: p.Driver(nil)}
			if problem := r.find(p.ctx, words); problem != nil {
				return failed(problem)
			}
			plans := r.driver.PlanReset(r.facts, r.targets)
			against := r.against(p.ctx, plans)
			if dry {
				return r.print(p.out, plans, against)
			}
			if len(against) > 0 {
				return failed(against[0])
			}
			return r.run(p.ctx, p.out, plans)
		}),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be done, and what is in the way; change nothing")
	return cmd
}

// reset is one run of the command.
type reset struct {
	*parts
	driver  *driver.Driver
	facts   accel.Facts
	targets []driver.ResetTarget
	// agent is the running agent, and machine its last answer; agent is nil if none answers.
	agent   *asked
	machine accel.Machine
}

// find reads the host, queries the agent and finds the named devices.
func (r *reset) find(ctx context.Context, words []string) *accel.Problem {
	r.facts = r.parts.facts()
	a := r.parts.agent()
	if m, err := a.Machine(ctx); err == nil {
		r.agent, r.machine = a, m
	}
	seen := map[string]bool{}
	for _, word := range words {
		t, problem := r.target(word)
		if problem != nil {
			return problem
		}
		if !seen[t.Device.ID] {
			seen[t.Device.ID] = true
			r.targets = append(r.targets, t)
		}
	}
	return nil
}

// target finds one device. If several kinds recognise it, the kind that the others come after wins.
func (r *reset) target(word string) (t driver.ResetTarget, problem *accel.Problem) {
	if short := pci(word); short != "" {
		word = short
	}
	ordered, _ := accel.InOrder(r.Kinds) // cycles were removed when the definitions were read
	for _, def := range ordered {
		all := r.Accelerators(def, r.facts)
		for i := range all { // the agent knows what only a probe program reports
			if x, ok := told(r.machine, all[i].ID); ok {
				all[i].UUID, all[i].Fabric, all[i].Partitions = x.UUID, x.Fabric, x.Partitions
			}
		}
		i := slices.IndexFunc(all, func(x accel.Accelerator) bool {
			return x.ID == word || word != "" && x.UUID == word
		})
		if i < 0 {
			if j := slices.IndexFunc(all, func(x accel.Accelerator) bool { return named(x, word) }); j >= 0 {
				return t, accel.Problemf(accel.CannotReset,
					"%q is a partition of device %q, which can only be reset as a whole", word, all[j].ID)
			}
			continue
		}
		t = driver.ResetTarget{Def: def, Device: all[i]}
		for _, x := range all {
			if x.Fabric != "" && x.Fabric == all[i].Fabric {
				t.Linked = append(t.Linked, x.ID)
			}
		}
		return t, nil
	}
	for _, f := range r.facts.All() {
		switch {
		case f.Address != word:
		case f.Subsystem == "" && strings.HasPrefix(f.Class, "06"):
			return t, accel.Problemf(accel.CannotReset,
				"%q is a bridge, and everything below it would be reset with it", word)
		default:
			return t, accel.Problemf(accel.CannotReset, "%q is not an accelerator of a known kind", word)
		}
	}
	return t, accel.Problemf(accel.DeviceGone, "there is no device %q on this host", word).
		ToDo("Name a device as `acceld detect` lists them, such as 0000:3b:00.0.")
}

// told returns what the agent reports about a device that is on the bus.
func told(m accel.Machine, id string) (accel.Accelerator, bool) {
	for _, have := range m.Have {
		for _, x := range have.Accelerators {
			if x.ID == id && x.Present() {
				return x, true
			}
		}
	}
	return accel.Accelerator{}, false
}

// against returns everything that prevents the reset.
func (r *reset) against(ctx context.Context, plans []driver.ResetPlan) []*accel.Problem {
	var all []*accel.Problem
	add := func(p *accel.Problem) {
		if p != nil {
			all = append(all, p)
		}
	}
	if os.Geteuid() != 0 {
		add(accel.Problemf(accel.PermissionDenied,
			"running as user %d: only root can reset devices and see who uses them", os.Geteuid()))
	}
	pods := r.pods(ctx)
	for i, p := range plans {
		add(p.Problem)
		if r.agent != nil && p.Def.Probe != nil { // the agent ends its own probe program
			program := path.Base(p.Def.Probe.Argv[0])
			// TASK_COMM_LEN
			plans[i].Users = slices.DeleteFunc(p.Users, func(h accel.Holder) bool {
				return h.Comm == program[:min(len(program), 15)]
			})
		}
		plans[i].Users = agent.NameClaimants(plans[i].Users, pods[p.Device.ID])
		add(accel.InUseProblem(fmt.Sprintf("device %q", p.Device.ID), plans[i].Users))
	}
	if r.agent == nil && r.facts.Kubelet.Present {
		add(accel.Problemf(accel.ProbeUnanswered,
			"a kubelet is on this host and no agent answers, so acceld cannot tell which pods have the devices: "+
				"start the agent"))
	}
	if !r.Host.Live() {
		add(accel.Problemf(accel.CannotReset, "host root %q is not the running machine", r.Host.Root()))
	}
	return all
}

// pods returns the pods that were given the devices, or a part of one, by device, as the agent knows them.
func (r *reset) pods(ctx context.Context) map[string][]dra.Holder {
	out := map[string][]dra.Holder{}
	if r.agent == nil {
		return out
	}
	held := r.agent.Holders(ctx)
	for _, t := range r.targets {
		for _, unit := range accel.Flat([]accel.Accelerator{t.Device}) {
			for _, h := range held[unit.ID] {
				out[t.Device.ID] = append(out[t.Device.ID], dra.Holder{
					Device: unit.ID, Namespace: h.Namespace,
					Pod: h.Pod, UID: h.UID, Claim: h.Claim,
				})
			}
		}
	}
	return out
}

// way describes how a device is reset.
func way(p driver.ResetPlan) string {
	if len(p.Methods) == 0 {
		return "not reset by the kernel"
	}
	return fmt.Sprintf("reset (%s)", strings.Join(p.Methods, ", "))
}

// print writes what would be done and what prevents it.
func (r *reset) print(out io.Writer, plans []driver.ResetPlan, against []*accel.Problem) error {
	for _, p := range plans {
		var steps []string
		if p.Bound != "" {
			steps = append(steps, "unbind "+p.Bound)
		}
		if len(p.Methods) > 0 {
			steps = append(steps, way(p))
		}
		steps = append(steps, "bind "+p.Def.Driver.Binds)
		if p.Def.Check != nil {
			steps = append(steps, "self-test")
		}
		fmt.Fprintf(out, "%s (%s)\n  would    %s\n", p.Device.ID, p.Def.Kind, plain(strings.Join(steps, ", ")))
	}
	for _, problem := range against {
		fmt.Fprintf(out, "in the way: %s (%s)\n", plain(problem.Message), problem.Reason)
	}
	if len(against) > 0 {
		return exit{exitFailed, nil}
	}
	_, err := fmt.Fprintln(out, "nothing is in the way")
	return err
}

// run resets the devices and prints the results.
func (r *reset) run(ctx context.Context, out io.Writer, plans []driver.ResetPlan) error {
	begin := time.Now()
	if problem := r.driver.Reset(ctx, r.facts, r.targets, r.ready); problem != nil {
		return failed(problem)
	}
	took := time.Since(begin).Round(10 * time.Millisecond)
	healths := r.healths(ctx)
	var ill *accel.Problem
	for _, p := range plans {
		h := healths[p.Device.ID]
		fmt.Fprintf(out, "%s: %s, bound to %s, in %v: %s%s\n", p.Device.ID, way(p), p.Def.Driver.Binds, took, h.State,
			prefixed(": ", plain(h.Message)))
		if !h.Usable() && ill == nil {
			ill = accel.Problemf(h.Reason, "device %q is still %s after the reset: %s", p.Device.ID, h.State, h.Message)
		}
	}
	return failed(ill)
}

// ready waits until the agent withholds the devices and the kubelet has taken that over, then checks once more which
// pods have them.
func (r *reset) ready(ctx context.Context) *accel.Problem {
	if r.agent == nil {
		return nil // nothing gives them out
	}
	m, ok := r.await(ctx, isOut)
	if !ok {
		return accel.Problemf(accel.ProbeUnanswered,
			"the agent has not taken the devices out of use within %v; nothing was reset", outOfUse)
	}
	if !m.Want.Kubernetes {
		return nil
	}
	if pace.Sleep(ctx, given) != nil {
		return accel.Problemf(accel.ProbeUnanswered, "interrupted; nothing was reset")
	}
	if _, told := r.agent.Holdings(ctx); !told && slices.ContainsFunc(r.targets, func(t driver.ResetTarget) bool {
		return m.Have[t.Def.Kind].Plugin.Registered
	}) {
		return accel.Problemf(accel.ProbeUnanswered,
			"the kubelet has not reported yet which pods have the devices; nothing was reset")
	}
	for id, pods := range r.pods(ctx) {
		if problem := accel.InUseProblem(fmt.Sprintf("device %q", id), agent.NameClaimants(nil, pods)); problem != nil {
			return problem
		}
	}
	return nil
}

// await follows the agent until ok accepts every device, and returns its last machine.
func (r *reset) await(ctx context.Context, ok func(accel.Machine, driver.ResetTarget) bool) (accel.Machine, bool) {
	return r.agent.Await(ctx, outOfUse, func(m accel.Machine) bool {
		return !slices.ContainsFunc(r.targets, func(t driver.ResetTarget) bool { return !ok(m, t) })
	})
}

// isOut reports whether no pod can be given a device any more. The agent never gives out a device that it does not
// know.
func isOut(m accel.Machine, t driver.ResetTarget) bool {
	x, known := told(m, t.Device.ID)
	if !known {
		return true
	}
	have := m.Have[t.Def.Kind]
	heard := !m.Want.Kubernetes || !have.Plugin.Registered ||
		have.Plugin.Allocatable.Is(accel.CountOffered(accel.Offer(m, t.Def.Kind)))
	return x.WithheldBy(accel.ByReset) && heard
}

// healths returns the health of the devices after the reset. If an agent runs, its view counts, once it offers the
// devices again or has found out why it does not.
func (r *reset) healths(ctx context.Context) map[string]accel.Health {
	out := map[string]accel.Health{}
	facts := r.parts.facts()
	r.facts.PCI, r.facts.Devices = facts.PCI, facts.Devices
	for _, t := range r.targets {
		for _, x := range r.Accelerators(t.Def, r.facts) {
			out[x.ID] = x.Health
		}
	}
	if r.agent == nil {
		return out
	}
	m, _ := r.await(ctx, func(m accel.Machine, t driver.ResetTarget) bool {
		x, known := told(m, t.Device.ID)
		return !known || x.Health.Usable() && !x.WithheldBy(accel.ByReset, accel.ByProof)
	})
	for id := range out {
		if x, known := told(m, id); known {
			out[id] = x.Health
		}
	}
	return out
}
