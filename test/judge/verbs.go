package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/test/vm/bed"
)

// verb is what a step can do.
type verb struct {
	// what are the values of Step.What; nil for verbs without it.
	what []string
	do   func(*court, context.Context, Step) error
}

// verbs are all verbs; docs/judge.md lists them.
func verbs() map[string]verb {
	return map[string]verb{
		"offered":   {do: (*court).offered},
		"compute":   {do: (*court).compute},
		"hold":      {do: (*court).hold},
		"held":      {do: (*court).held},
		"storm":     {do: (*court).storm},
		"stream":    {do: (*court).startStream},
		"streamed":  {do: (*court).streamed},
		"restart":   {what: []string{"subject", "kubelet", "runtime"}, do: (*court).restart},
		"kill":      {what: []string{"subject"}, do: (*court).killSubject},
		"unplug":    {do: (*court).unplug},
		"plug":      {do: (*court).plug},
		"bus-error": {do: (*court).busError},
		"fill":      {do: (*court).fill},
		"free":      {do: (*court).free},
		"reboot":    {do: func(c *court, ctx context.Context, _ Step) error { return c.Reboot(ctx, bed.Reboot{}) }},
		"power-cut": {do: func(c *court, ctx context.Context, _ Step) error { return c.Reboot(ctx, bed.Reboot{PowerCut: true}) }},
	}
}

func (c *court) offered(ctx context.Context, s Step) error {
	return c.waitOffered(ctx, c.devices-s.Missing, s.within())
}

// restart restarts something in the way that its administrator does, each time when it runs again.
func (c *court) restart(ctx context.Context, s Step) error {
	for range max(1, s.Count) {
		var err error
		switch s.What {
		case "kubelet":
			err = c.restartKubelet(ctx)
		case "runtime":
			err = c.RestartEngine(ctx)
		default:
			err = c.script(ctx, time.Minute, "systemctl restart "+c.unit())
		}
		if err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restartKubelet restarts the kubelet and waits until it has reported its node. Until then, the Node object still has
// the allocatable resources that the previous kubelet reported.
func (c *court) restartKubelet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	node, err := c.client().CoreV1().Nodes().Get(ctx, c.Name(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	before := heartbeat(node)
	if err := c.RestartKubelet(ctx); err != nil {
		return err
	}
	return c.WaitNode(ctx, "the restarted kubelet reports", func(node *corev1.Node) bool {
		return !heartbeat(node).Equal(before)
	})
}

// heartbeat returns when the kubelet last reported the Ready condition of its node; zero if it never has.
func heartbeat(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

// killSubject gives the subject no chance to clean up.
func (c *court) killSubject(ctx context.Context, s Step) error {
	for range max(1, s.Count) {
		if err := c.script(ctx, time.Minute, "systemctl kill --kill-who=main -s KILL "+c.unit()+
			"; for i in $(seq 100); do systemctl is-active -q "+c.unit()+" && exit; sleep 0.1; done; exit 1"); err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pause is what a subject is given between two restarts: enough to register, and not enough to settle.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(3 * time.Second):
		return nil
	}
}

func (c *court) slot(s Step) error {
	if s.Slot < 0 || s.Slot >= c.devices {
		return fmt.Errorf("slot %d: there are %d devices, from 0", s.Slot, c.devices)
	}
	return nil
}

func (c *court) unplug(ctx context.Context, s Step) error {
	if err := c.slot(s); err != nil {
		return err
	}
	if err := c.Unplug(ctx, s.Slot); err != nil {
		return err
	}
	if c.unplugged == nil {
		c.unplugged = map[int]bool{}
	}
	c.unplugged[s.Slot] = true
	return nil
}

func (c *court) plug(ctx context.Context, s Step) error {
	if err := c.slot(s); err != nil {
		return err
	}
	delete(c.unplugged, s.Slot)
	return c.Plug(ctx, s.Slot)
}

// busError lets the device report an error to the port above it (PCIe Advanced Error Reporting).
func (c *court) busError(ctx context.Context, s Step) error {
	if err := c.slot(s); err != nil {
		return err
	}
	var said string
	line := fmt.Sprintf("pcie_aer_inject_error slot%d %s", s.Slot, s.Error)
	err := c.Monitor().Execute(ctx, "human-monitor-command", map[string]any{"command-line": line}, &said)
	if err == nil && said != "" && said[0] != 'O' { // "OK id: …"
		err = fmt.Errorf("QEMU says: %s", tail(said))
	}
	return err
}

// fill leaves no room on the disk; free takes back what it took.
func (c *court) fill(ctx context.Context, _ Step) error {
	return c.script(ctx, time.Minute, `fallocate -l "$(df --output=avail -B1 /var | tail -1)" /var/judge-fill || true
		cat /dev/zero > /var/judge-more 2>/dev/null || true`)
}

const freeScript = "rm -f /var/judge-fill /var/judge-more"

func (c *court) free(ctx context.Context, _ Step) error {
	return c.script(ctx, time.Minute, freeScript)
}
