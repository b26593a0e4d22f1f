package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
)

// giveBack does what a purge does between BeforePurge and AfterPurge.
func giveBack(t *testing.T, r *Runtime) {
	t.Helper()
	if p := r.BeforePurge([]string{"/etc/containerd/config.toml"}); p != nil {
		t.Fatal(p)
	}
	out, err := r.ledger.Undo(ledger.UndoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out {
		if o.Action == ledger.Left {
			t.Errorf("%+v", o)
		}
	}
}

func TestPurgeRestartsWhatHasReadOurs(t *testing.T) {
	for policy, want := range map[Restart]accel.Reason{RestartNow: "", RestartNever: accel.RuntimeRestartNeeded} {
		d := newDaemon(t, "containerd", "/etc/containerd/config.toml", old)
		if _, p := d.agent(RestartNow).ApplyConfig(t.Context()); p != nil {
			t.Fatal(p)
		}
		d.calls = nil
		giveBack(t, d.agent(policy))
		// If it is killed here, the next purge has no file to restore, and continues anyway.
		r := d.agent(policy)
		if p := r.BeforePurge(nil); p != nil {
			t.Fatal(p)
		}
		p := r.AfterPurge(t.Context())
		if reason(p) != want || (want == "") != (len(d.calls) == 1) || d.file("/etc/containerd/config.toml") != old {
			t.Errorf("%s: %v, calls %q, the file is %q", policy, p, d.calls, d.file("/etc/containerd/config.toml"))
		}
		if p != nil && !strings.Contains(p.Message, "/etc/containerd/config.toml") {
			t.Errorf("%v does not name the file", p)
		}
	}
}

// The ledger knows a file without the links in its directory, which the runtime's own name for it may have.
func TestPurgeThroughALink(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/containerd/config.toml", old)
	if err := os.Symlink("etc/containerd", filepath.Join(d.root, "conf")); err != nil {
		t.Fatal(err)
	}
	d.e.Config = "/conf/config.toml"
	if _, p := d.agent(RestartNow).ApplyConfig(t.Context()); p != nil {
		t.Fatal(p)
	}
	r := d.agent(RestartNever)
	giveBack(t, r)
	if p := r.AfterPurge(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
		t.Errorf("the running daemon has read what acceld wrote: got %v", p)
	}
}

// A runtime that was never restarted has already read what is there again.
func TestPurgeOfWhatNobodyHasRead(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/containerd/config.toml", old)
	if _, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
		t.Fatal(p)
	}
	giveBack(t, d.agent(RestartNever))
	if p := d.agent(RestartNever).AfterPurge(t.Context()); p != nil || d.calls != nil ||
		d.file("/etc/containerd/config.toml") != old {
		t.Errorf("%v, calls %q, the file is %q", p, d.calls, d.file("/etc/containerd/config.toml"))
	}
}

// None of the runtime's files was changed, so nothing is restarted.
func TestPurgeOfOtherFiles(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/containerd/config.toml", old)
	r := d.agent(RestartNow)
	if p := r.BeforePurge([]string{"/etc/cdi/x.json"}); p != nil {
		t.Fatal(p)
	}
	if p := r.AfterPurge(t.Context()); p != nil || d.calls != nil {
		t.Errorf("%v, calls %q", p, d.calls)
	}
}
