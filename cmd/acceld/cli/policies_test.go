package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
)

// What policies ask is taken over without a restart, between definition and file; it is kept, and until it is known no driver
// that serves is replaced.
func TestPoliciesTakenOver(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	c := &common{hostRoot: root, config: filepath.Join(dir, "config.yaml"), asked: true}
	file := func(text string) {
		t.Helper()
		if err := os.WriteFile(c.config, []byte("logLevel: error\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const credentials = "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"
	file(credentials)
	p, problem := c.open()
	if problem != nil {
		t.Fatal(problem)
	}
	if problem := c.follow(p.host, p.config); problem != nil {
		t.Fatal(problem)
	}
	if p, problem = c.open(); problem != nil || !p.unsure {
		t.Fatalf("%v, unsure %v", problem, p.unsure)
	}
	a := reloading(t, c, p)
	eventually := func(what string, holds func(w accel.Want, d *accel.Definition) bool) {
		t.Helper()
		for range 500 {
			if w := a.loop.Machine().Want; holds(w, w.Kinds["qemu-edu"]) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("never: %s; %+v", what, a.loop.Machine().Want.Kinds["qemu-edu"].Driver)
	}
	policies := func(text string) {
		t.Helper()
		var all []accel.Policy
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		a.hear(c.followed, func() { c.followed.now.All, c.followed.listed = all, true })
	}
	policies(`[{"name":"fleet","spec":{"nodeSelector":{"pool":"a"},"kinds":{"qemu-edu":{"driver":{"version":"9.9"}}},"upgrade":{}}}]`)
	if _, known, _ := c.policies(p.host, p.config); known {
		t.Error("known before anybody has seen the node's labels, which select among them")
	}
	a.hear(c.followed, func() { c.followed.now.Labels, c.followed.seen = map[string]string{"pool": "a", "noise": "x"}, true })
	eventually("the policy is in force", func(w accel.Want, d *accel.Definition) bool {
		return d.Driver.Version == "9.9" && d.Driver.Upgrade.By == "fleet" && !w.Unsure
	})
	kept, known, problem := agent.ReadPolicies(p.host, p.config.StateDir)
	if problem != nil || !known || len(kept.All) != 1 || len(kept.Labels) != 1 {
		t.Errorf("kept: %+v %v", kept, problem)
	}
	again := &common{hostRoot: root, config: c.config, asked: true} // an agent that starts while the API server is away
	if problem := again.follow(p.host, p.config); problem != nil || !again.followed.known {
		t.Errorf("%v", problem)
	}
	if q, problem := again.open(); problem != nil || q.unsure || q.defs["qemu-edu"].Driver.Upgrade.By != "fleet" {
		t.Errorf("%v", problem)
	}
	file(credentials + "kinds: {qemu-edu: {driver: {version: '1.2'}}}\n")
	eventually("the file goes before the policy", func(_ accel.Want, d *accel.Definition) bool {
		return d.Driver.Version == "1.2" && d.Driver.Upgrade.By == "fleet"
	})
	policies(`[{"name":"fleet","spec":{"kinds":{"qemu-edu":{"driver":{"parameters":{"nothing":{"a":"b"}}}}}}},{"name":"bad","spec":{"definitions":[{"kind":"x"}]}}]`)
	eventually("what does not fit is left out, and said", func(w accel.Want, d *accel.Definition) bool {
		return d.Driver.Version == "1.2" && d.Driver.Upgrade.By == "" && w.Problem != nil && w.Problem.Reason == accel.PolicyInvalid
	})
	policies(`[{"name":"new","spec":{"definitions":[{"kind":"example-npu","resource":"example.com/npu","match":[{"vendor":"f00d","device":"0001"}],"driver":{"binds":"npu","modules":[{"name":"npu"}]}}]}}]`)
	eventually("a kind that a policy describes", func(w accel.Want, _ *accel.Definition) bool { return w.Kinds["example-npu"] != nil })
	file("kubernetes: {kubeconfig: /etc/acceld/kubeconfig, policies: 'off'}\n")
	if q, problem := (&common{hostRoot: root, config: c.config, asked: true}).open(); problem != nil || q.defs["example-npu"] != nil {
		t.Errorf("%v: policies are off and hold", problem)
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/acceld/policies.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	file(credentials)
	if q, problem := (&common{hostRoot: root, config: c.config, asked: true}).open(); problem != nil || len(q.unfit) != 1 {
		t.Errorf("%v: what cannot be read is not said", problem)
	}
}
