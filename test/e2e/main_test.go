// Package e2e runs acceld on real parts: a real kernel, kubelet, container runtime and API server in the test bed. It
// needs ACCELD_TESTBED=1, root and QEMU, and skips without the first.
package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// config is the configuration of the systemd unit on a node with a kubelet.
const config = `kubernetes:
  kubeconfig: /etc/acceld/kubeconfig
`

// soon is for what follows an event: generous, because an emulated machine is slow and noisy. What took how long is
// logged.
const soon = 90 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sh runs a fixed script in the guest and fails the test when it fails.
func sh(t *testing.T, g *bed.Guest, script string, args ...string) string {
	t.Helper()
	res, err := g.Sh(within(t, soon), script, args...)
	must(t, err)
	if !res.OK() {
		t.Fatalf("script %q: exit status %d: %s%s", script, res.Status, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(res.Stdout)
}

// reaches waits for a state of the kind and returns the machine.
func reaches(t *testing.T, g *bed.Guest, state accel.State, d time.Duration) accel.Machine {
	t.Helper()
	m, err := stage.WaitMachine(within(t, d), g, fmt.Sprintf("state %q", state), stage.InState(state))
	must(t, err)
	return m
}

// blocked waits until the kind is blocked for a reason and returns the machine.
func blocked(t *testing.T, g *bed.Guest, reason accel.Reason, d time.Duration) accel.Machine {
	t.Helper()
	m, err := stage.WaitMachine(within(t, d), g, fmt.Sprintf("reason %q", reason), stage.Blocked(reason))
	must(t, err)
	return m
}

// timed logs how long something took; what is measured is never asserted on a shared machine.
func timed(t *testing.T, what string, do func()) {
	t.Helper()
	begin := time.Now()
	do()
	t.Logf("%-60s %6.2f s", what, time.Since(begin).Seconds())
}

// agentPID returns the process id of the agent in the guest.
func agentPID(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `pgrep -o -f '^(/usr/bin/|/)acceld run'`)
}

// unchanged fails when one of the facts that outlive the agent is another than before.
func facts(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `cat /sys/module/edu/notes/.note.gnu.build-id | od -An -tx1 | tr -d ' \n'; stat -c ' %Y' /sys/module/edu; grep -c . /proc/modules`)
}

// TestMain opens the test bed and builds the programs once for all scenarios.
func TestMain(m *testing.M) {
	if os.Getenv("ACCELD_TESTBED") != "1" {
		os.Exit(m.Run())
	}
	code, err := withBed(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

var (
	theBed   *bed.Bed
	theStage *stage.Stage
)

func withBed(m *testing.M) (int, error) {
	ctx := context.Background()
	b, err := bed.Open(ctx, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	dir, err := os.MkdirTemp("", "acceld-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if theStage, err = stage.New(ctx, dir); err != nil {
		return 0, err
	}
	theBed = b
	return m.Run(), nil
}

// startNode starts a guest of the test bed that ends with the test; of a failed test it keeps what tells why.
func startNode(t *testing.T, o bed.Options) (*bed.Node, *stage.Stage) {
	t.Helper()
	if theBed == nil {
		t.Skip("set ACCELD_TESTBED=1 (make test does): needs root, QEMU and a quarter of an hour for the first time")
	}
	n, err := theBed.StartNode(t.Context(), o)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			dir, err := n.Collect(ctx, t.Name())
			cancel()
			t.Logf("kept in %s (%v)", dir, err)
		}
		n.Stop()
	})
	return n, theStage
}
