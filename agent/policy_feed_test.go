package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// Policies are taken over without a restart. They rank between definition and file and are kept on disk. Until they
// are known, no working driver is replaced.
func TestPoliciesTakenOver(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	o := options(root, filepath.Join(dir, "config.yaml"))
	file := func(text string) {
		t.Helper()
		if err := os.WriteFile(o.ConfigFile, []byte("logLevel: error\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const credentials = "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"
	file(credentials)
	s, problem := Open(o)
	if problem != nil {
		t.Fatal(problem)
	}
	command := o // a command has no feed
	feed, problem := NewPolicyFeed(s.Host, s.Config)
	if problem != nil {
		t.Fatal(problem)
	}
	o.Policies = feed
	if s, problem = Open(o); problem != nil || !s.PoliciesUnknown {
		t.Fatalf("%v, unknown %v", problem, s.PoliciesUnknown)
	}
	a := reloading(t, o, s)
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
		if problem := feed.setPolicies(all); problem != nil {
			t.Fatal(problem)
		}
	}
	policies(
		`[{"name":"fleet","spec":{"nodeSelector":{"pool":"a"},"kinds":{"qemu-edu":{"driver":{"version":"9.9"}}},"upgrade":{}}}]`)
	if _, known := feed.Now(); known {
		t.Error("known before anybody has seen the node's labels, which select among them")
	}
	if problem := feed.setLabels(map[string]string{"pool": "a", "noise": "x"}); problem != nil {
		t.Fatal(problem)
	}
	eventually("the policy is in force", func(w accel.Want, d *accel.Definition) bool {
		return d.Driver.Version == "9.9" && d.Driver.Upgrade.By == "fleet" && !w.PoliciesUnknown
	})
	kept, known, problem := ReadPolicies(s.Host, s.Config.StateDir)
	if problem != nil || !known || len(kept.All) != 1 || len(kept.Labels) != 1 {
		t.Errorf("kept: %+v %v", kept, problem)
	}
	again := o // an agent that starts while the API server is away
	if again.Policies, problem = NewPolicyFeed(s.Host, s.Config); problem != nil {
		t.Error(problem)
	}
	if _, known := again.Policies.Now(); !known {
		t.Error("what was kept is not known")
	}
	if problem := again.Policies.setPolicies([]accel.Policy{{Name: "other"}}); problem != nil {
		t.Error(problem)
	}
	if p, _ := again.Policies.Now(); len(p.All) != 1 || p.All[0].Name != "fleet" {
		t.Errorf("other policies are in force with the labels that were kept for the last ones: %+v", p)
	}
	if q, problem := Open(again); problem != nil || q.PoliciesUnknown ||
		q.Kinds["qemu-edu"].Driver.Upgrade.By != "fleet" {
		t.Errorf("%v", problem)
	}
	file(credentials + "kinds: {qemu-edu: {driver: {version: '1.2'}}}\n")
	eventually("the file goes before the policy", func(_ accel.Want, d *accel.Definition) bool {
		return d.Driver.Version == "1.2" && d.Driver.Upgrade.By == "fleet"
	})
	policies(
		`[{"name":"fleet","spec":{"kinds":{"qemu-edu":{"driver":{"parameters":{"nothing":{"a":"b"}}}}}}},{"name":"bad","spec":{"definitions":[{"kind":"x"}]}}]`)
	eventually("what does not fit is left out, and said", func(w accel.Want, d *accel.Definition) bool {
		return d.Driver.Version == "1.2" && d.Driver.Upgrade.By == "" && w.Problem != nil &&
			w.Problem.Reason == accel.PolicyInvalid
	})
	policies(
		`[{"name":"new","spec":{"definitions":[{"kind":"example-npu","resource":"example.com/npu","match":[{"vendor":"f00d","device":"0001"}],"driver":{"binds":"npu","modules":[{"name":"npu"}]}}]}}]`)
	eventually("a kind that a policy describes", func(w accel.Want, _ *accel.Definition) bool {
		return w.Kinds["example-npu"] != nil
	})
	file("kubernetes: {kubeconfig: /etc/acceld/kubeconfig, policies: 'off'}\n")
	if q, problem := Open(command); problem != nil || q.Kinds["example-npu"] != nil {
		t.Errorf("%v: policies are off and hold", problem)
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/acceld/policies.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	file(credentials)
	if q, problem := Open(command); problem != nil || len(q.Unfit) != 1 {
		t.Errorf("%v: what cannot be read is not said", problem)
	}
}
