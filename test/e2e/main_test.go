// Package e2e runs acceld on real parts: a real kernel, kubelet, container runtime and API server in the test bed. It
// needs ACCELD_TESTBED=1, root and QEMU, and skips without the first.
package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

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
	if err := stage.Must(res, err); err != nil {
		t.Fatalf("script %q: %v", script, err)
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

// facts returns what must outlive the agent: which module is loaded, since when, and how many there are.
func facts(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `cat /sys/module/edu/notes/.note.gnu.build-id | od -An -tx1 | tr -d ' \n'; stat -c ' %Y' /sys/module/edu; grep -c . /proc/modules`)
}
