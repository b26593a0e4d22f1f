// Package health measures who learns of a fault within which time, on a node of the test bed: what acceld knows, what
// it shows to others, and what the cluster has of it. It prints medians; it asserts none of the times, because the
// machine is emulated and shared.
package health

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// rounds is how often each fault is made; medians are of these. A device that becomes unhealthy five times in ten
// minutes is held back for that.
const rounds = 3

// address is that of the accelerator in a slot.
func address(slot int) string { return fmt.Sprintf("0000:%02x:00.0", slot+1) }

// fault is something that happens to a device, and how the machine says it.
type fault struct {
	name, undone string
	do, undo     func(context.Context) error
	// usable is how many of two devices can be used during it, and reason is the condition's then.
	usable int
	reason accel.Reason
}

// faults are those of the device in a slot that can be made and taken back here.
func faults(n *bed.Node, slot int) []fault {
	script := func(text string) func(context.Context) error {
		return func(ctx context.Context) error { return stage.Must(n.Sh(ctx, text, address(slot))) }
	}
	return []fault{
		{
			"unplugged under a pod", "plugged in again",
			func(ctx context.Context) error {
				return n.Unplug(ctx, slot)
			}, func(ctx context.Context) error { return n.Plug(ctx, slot) },
			1, accel.DeviceGone,
		},
		{
			"the driver's attribute says fail", "it says ok",
			script(`echo fail > /sys/bus/pci/devices/$1/inject_error`),
			script(`echo none > /sys/bus/pci/devices/$1/inject_error`),
			1, accel.DeviceUnhealthy,
		},
	}
}

// watcher waits for one who learns; the error ends the measurement.
type watcher struct {
	name string
	wait func(ctx context.Context, usable int, reason accel.Reason) error
}

func byPlugin(n *bed.Node) []watcher {
	return append(everybody(n), watcher{"allocatable at the API server", func(ctx context.Context, usable int,
		_ accel.Reason,
	) error {
		return n.WaitAllocatable(ctx, stage.Resource, int64(usable))
	}})
}

func byClaims(n *bed.Node) []watcher {
	return append(everybody(n), watcher{"taint in the slice", func(ctx context.Context, usable int,
		_ accel.Reason,
	) error {
		for {
			list, err := clientset.Of(n).ResourceV1().ResourceSlices().List(ctx,
				metav1.ListOptions{FieldSelector: "spec.driver=" + stage.Class})
			if err != nil {
				return err
			}
			free := 0
			for _, s := range list.Items {
				for _, d := range s.Spec.Devices {
					if len(d.Taints) == 0 {
						free++
					}
				}
			}
			if free == usable {
				return nil
			}
			if err := nap(ctx); err != nil {
				return err
			}
		}
	}})
}

// everybody is who learns of a fault, however devices are given out.
func everybody(n *bed.Node) []watcher {
	return []watcher{
		{"the agent", func(ctx context.Context, usable int, _ accel.Reason) error {
			_, err := stage.WaitMachine(ctx, n.Guest, "the devices to be counted", func(m accel.Machine) bool {
				return accel.CountUsable(m.Have[stage.Kind].Accelerators) == usable
			})
			return err
		}},
		{"a scrape of /metrics", func(ctx context.Context, usable int, _ accel.Reason) error {
			return metrics(ctx, n.Guest, func(healthy int) bool { return healthy == usable })
		}},
		{"the node's condition", func(ctx context.Context, _ int, reason accel.Reason) error {
			if reason == "" {
				return n.WaitCondition(ctx, "AcceleratorsReady", "True", "")
			}
			return n.WaitCondition(ctx, "AcceleratorsReady", "False", string(reason))
		}},
	}
}

// metrics asks until as many devices are healthy as ok likes.
func metrics(ctx context.Context, g *bed.Guest, ok func(healthy int) bool) error {
	for {
		text, _, err := stage.Get(ctx, g, "/metrics")
		if err != nil { // the way into the guest may be open the next time
			if nap(ctx) != nil {
				return err
			}
			continue
		}
		healthy := 0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "accelerator_health_state{") && strings.Contains(line, `state="healthy"`) &&
				strings.HasSuffix(line, " 1\n") {
				healthy++
			}
		}
		if ok(healthy) {
			return nil
		}
		if err := nap(ctx); err != nil {
			return err
		}
	}
}

// nap is between two questions to somebody who does not tell by himself.
func nap(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// learns does something and returns when each watcher knew, in their order.
func learns(t *testing.T, all []watcher, do func(context.Context) error, usable int,
	reason accel.Reason,
) []time.Duration {
	t.Helper()
	ctx := stage.Within(t, 3*time.Minute)
	took, errs := make([]time.Duration, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	begin := time.Now()
	stage.Check(t, do(ctx))
	for i, w := range all {
		wg.Go(func() {
			errs[i] = w.wait(ctx, usable, reason)
			took[i] = time.Since(begin)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("%s: %v", all[i].name, err)
		}
	}
	return took
}

func TestWhoLearns(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 measures it, as make figures does")
	}
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	stage.Check(t, stage.Credentials(t.Context(), n))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	ctx := stage.Within(t, 25*time.Minute)
	_, err = stage.WaitMachine(ctx, g, "ready", stage.InState(accel.Ready))
	stage.Check(t, err)

	t.Run("device plugin", func(t *testing.T) {
		stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
		stage.Check(t, n.Apply(ctx, stage.Pod("holder", image, 2, "-expect", "2", "-hold", "2h")))
		stage.Check(t, n.WaitPod(ctx, "default", "holder", corev1.PodRunning))
		table(t, n, 0, byPlugin(n))
		_, err := n.Kubectl(ctx, nil, "-n", "default", "delete", "pod", "holder", "--wait")
		stage.Check(t, err)
	})
	t.Run("claims", func(t *testing.T) {
		stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml",
			[]byte("kubernetes: {kubeconfig: /etc/acceld/kubeconfig, allocation: dra}\n"), 0o644))
		all := byClaims(n)
		stage.Check(t, all[len(all)-1].wait(ctx, 2, ""))
		for i := range 2 {
			name := fmt.Sprint("holder-", i)
			stage.Check(t, n.Apply(ctx, slices.Concat(stage.Claim(name),
				stage.ClaimPod(name, image, "resourceClaimName: "+name, "-expect", "1", "-hold", "2h"))))
			stage.Check(t, n.WaitPod(ctx, "default", name, corev1.PodRunning))
		}
		table(t, n, 1, byClaims(n))
	})
	t.Run("bus errors", func(t *testing.T) { busErrors(t, n) })
}

// table makes each fault several times and logs the medians.
func table(t *testing.T, n *bed.Node, slot int, all []watcher) {
	t.Helper()
	row := fmt.Sprintf("%-36s", "seconds, median of "+fmt.Sprint(rounds))
	for _, w := range all {
		row += fmt.Sprintf(" %30s", w.name)
	}
	t.Log(row)
	for _, f := range faults(n, slot) {
		var fault, undone [][]time.Duration
		for range rounds {
			fault = append(fault, learns(t, all, f.do, f.usable, f.reason))
			undone = append(undone, learns(t, all, f.undo, 2, ""))
		}
		t.Log(medians(f.name, fault))
		t.Log(medians(f.undone, undone))
	}
}

func medians(what string, measured [][]time.Duration) string {
	row := fmt.Sprintf("%-36s", what)
	for i := range measured[0] {
		var column []time.Duration
		for _, m := range measured {
			column = append(column, m[i])
		}
		slices.Sort(column)
		row += fmt.Sprintf(" %30.2f", column[len(column)/2].Seconds())
	}
	return row
}

// busErrors: the port above each device counts an error, which nobody takes back: the device is degraded for ten
// minutes, and another error meanwhile only makes that longer, so that there is one measurement for each device. Nobody
// loses it.
func busErrors(t *testing.T, n *bed.Node) {
	ctx := stage.Within(t, 3*time.Minute)
	var took []string
	for slot := range 2 {
		begin := time.Now()
		stage.Check(t, n.Monitor().Execute(ctx, "human-monitor-command",
			map[string]any{"command-line": fmt.Sprintf("pcie_aer_inject_error slot%d POISON_TLP", slot)}, nil))
		_, err := stage.WaitMachine(ctx, n.Guest, fmt.Sprintf("device %d has a bus error", slot),
			func(m accel.Machine) bool {
				return slices.ContainsFunc(m.Have[stage.Kind].Accelerators, func(a accel.Accelerator) bool {
					return a.ID == address(slot) && a.Health.State == accel.Degraded &&
						a.Health.Reason == accel.BusErrors
				})
			})
		stage.Check(t, err)
		took = append(took, fmt.Sprintf("%.2f s", time.Since(begin).Seconds()))
	}
	t.Logf("%-36s %s to the agent, who tells everybody as above", "bus error of the port, each device",
		strings.Join(took, ", "))
}
