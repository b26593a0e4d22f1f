package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// says runs a command that must fail with a reason, and returns what it said.
func says(t *testing.T, g *bed.Guest, reason accel.Reason, command string) string {
	t.Helper()
	res, err := g.Sh(stage.Within(t, soon), command)
	stage.Check(t, err)
	if res.Status != 1 || !strings.Contains(res.Stderr, string(reason)) {
		t.Errorf("%s: status %d, stderr %q, want status 1 and %s", command, res.Status, res.Stderr, reason)
	}
	return res.Stderr
}

// TestNoAccelerator: a host without one has an idle agent that says so.
func TestNoAccelerator(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{NoKubernetes: true})
	stage.Check(t, s.Units(t.Context(), n.Guest, ""))
	stage.Check(t, n.Plug(stage.Within(t, soon), 0)) // a driver that is not built yet is built with a device
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	stage.Check(t, n.Unplug(stage.Within(t, soon), 0))
	stage.Check(t, s.Enable(t.Context(), n.Guest))
	_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, "the agent", stage.InState(accel.Absent))
	stage.Check(t, err)
	if out := sh(t, n.Guest, "acceld status"); !strings.Contains(out, "no accelerator") {
		t.Errorf("status: %s", out)
	}
	stage.Check(t, n.Plug(stage.Within(t, soon), 0))
	timed(t, "first device put in -> ready", func() { reaches(t, n.Guest, accel.Ready, 5*time.Minute) })
}
