// Package e2e runs acceld on real parts: a real kernel, kubelet, container runtime and API server in the test bed. It
// needs ACCELD_TESTBED=1, root and QEMU, and skips without the first.
package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// soon is for what follows an event: generous, because an emulated machine is slow and noisy. What took how long is
// logged.
const soon = 4 * time.Minute

// sh runs a fixed script in the guest and fails the test when it fails.
func sh(t *testing.T, g *bed.Guest, script string, args ...string) string {
	t.Helper()
	return stage.Sh(t, g, soon, script, args...)
}

// part is a part of a scenario, on a node that has the image of a program which computes.
type part struct {
	name string
	do   func(t *testing.T, n *bed.Node, image string)
}

// inOrder runs parts one after the other on one node. It reports false when one has failed, and leaves the rest out:
// they would fail for the same reason.
func inOrder(t *testing.T, n *bed.Node, image string, parts ...part) bool {
	t.Helper()
	for _, p := range parts {
		if !t.Run(p.name, func(t *testing.T) { p.do(t, n, image) }) {
			return false
		}
	}
	return true
}

// files is a snapshot of the guest's files; the guest needs the program tree.
func files(t *testing.T, g *bed.Guest) string {
	t.Helper()
	text, err := stage.Files(stage.Within(t, 3*time.Minute), g)
	stage.Check(t, err)
	return text
}

// reaches waits for a state of the kind and returns the machine.
func reaches(t *testing.T, g *bed.Guest, state accel.State, d time.Duration) accel.Machine {
	t.Helper()
	m, err := stage.WaitMachine(stage.Within(t, d), g, fmt.Sprintf("state %q", state), stage.InState(state))
	stage.Check(t, err)
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
	return sh(t, g,
		`cat /sys/module/edu/notes/.note.gnu.build-id | od -An -tx1 | tr -d ' \n'; stat -c ' %Y' /sys/module/edu; grep -c . /proc/modules`)
}

// wanted is the number in an environment variable, or the usual one.
func wanted(variable string, usual int) int {
	n, _ := strconv.Atoi(os.Getenv(variable))
	return cmp.Or(n, usual)
}

// seed is ACCELD_SEED, or any; the log says which.
func seed(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv("ACCELD_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	t.Logf("ACCELD_SEED=%d", n)
	return n
}
