package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/stage/programs"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestOnGPU is what `make on-gpu` does on a machine with devices, here with QEMU's: an agent takes them from a bare
// kernel to ready, the report says so and names no device by its serial number, and the machine is as before.
func TestOnGPU(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true})
	g := n.Guest
	program := filepath.Join(t.TempDir(), "ongpu")
	cmd := exec.Command("go", "build", "-o", program, "./test/ongpu")
	cmd.Dir, cmd.Env = s.File("."), programs.Compiler()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	stage.Check(t, s.Source(t.Context(), g))
	for name, local := range map[string]string{
		"acceld": s.Program("acceld"), "acceld-hook": s.Program("acceld-hook"), "ongpu": program,
	} {
		stage.Check(t, g.Put(t.Context(), local, "/opt/trial/"+name, 0o755))
	}
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	before := snapshot(t, g)
	report := stage.Sh(t, g, 15*time.Minute,
		"cd /opt/trial && ./ongpu -kind qemu-edu -bin . -out /root/report.md >/root/said 2>&1 || cat /root/said; cat /root/report.md")
	t.Logf("%s", report)
	for _, want := range []string{
		"# acceld with qemu-edu", "## verdict\n\n```text\nready ", "2 of 2 devices usable", "accelerator_up{", `"cdiVersion"`,
		"not done: there is no podman",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	// The log says so in its line about the start, or, if the compile outlasts the wait for that line, as a change.
	if !regexp.MustCompile(`kind=qemu-edu (state|from=\S+ to)=ready `).MatchString(report) {
		t.Error("the report lacks the agent's line that the kind is ready")
	}
	if strings.Contains(report, "EDU-0000") {
		t.Error("the report has a serial number")
	}
	// A driver that the run itself has loaded goes with it.
	sh(t, g, "rm /root/report.md /root/said; ! grep -w ^edu /proc/modules")
	if diff := stage.Unlike(before, snapshot(t, g)); diff != "" {
		t.Errorf("the host is not as it was:\n%s", diff)
	}
	out := stage.Sh(t, g, 5*time.Minute, "cd /opt/trial && ./ongpu -bin . -out /root/report.md 2>&1 || echo ended $?")
	if !strings.Contains(out, `no device of kind "nvidia-gpu"`) || !strings.Contains(out, "ended 1") {
		t.Errorf("without a device it says %s", out)
	}
}
