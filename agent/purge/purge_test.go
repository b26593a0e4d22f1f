package purge

import (
	"log/slog"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/host/ledger"
)

// TestPurgeOfNodes: device nodes stay as long as their driver stays.
func TestPurgeOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		outcome ledger.Outcome
		stays   bool
	}{
		"the driver is in use": {
			ledger.Outcome{Path: "/sys/module/edu", Action: ledger.Left, Reason: accel.InUse},
			true,
		},
		"the driver is gone":      {ledger.Outcome{Path: "/sys/module/edu", Action: ledger.Removed}, false},
		"something else was left": {ledger.Outcome{Path: "/sys/modules-of-somebody", Action: ledger.Left}, false},
	} {
		m := hosttest.New(t)
		m.Dir("/dev")
		l, err := ledger.Open(m.Host, "/var/lib/acceld", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.WriteFile("/dev/edu0", []byte("a node"), 0o600); err != nil {
			t.Fatal(err)
		}
		g := &purge{Setup: &agent.Setup{Host: m.Host, Ledger: l}, outcomes: []ledger.Outcome{c.outcome}}
		if problem := g.nodes(); problem != nil {
			t.Fatal(problem)
		}
		if m.Host.Exists("/dev/edu0") != c.stays {
			t.Errorf("%s: the node stays %t", name, !c.stays)
		}
	}
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/sys", "/sys", true},
		{"/sys/x", "/sys", true},
		{"/system/x", "/sys", false},
		{"/", "/sys", false},
		{"/devices", "/dev", false},
	} {
		if hasDir(c.path, c.dir) != c.want {
			t.Errorf("%s in %s: %t", c.path, c.dir, !c.want)
		}
	}
}
