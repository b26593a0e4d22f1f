// Package bench measures what the hook adds to the start of a container: the time from fork to exit of the static
// program, as the container runtime starts it, beside that of a program that does nothing. It touches no device and no
// runtime.
package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/runtime/gate"
)

// rounds is how often each contender runs; they take turns, so that a noisy moment hits all alike.
const rounds = 1000

// contender is one way to be started.
type contender struct {
	name string
	args []string
	in   []byte
	took []time.Duration
}

func (c *contender) quantile(q float64) time.Duration {
	slices.Sort(c.took)
	return c.took[min(len(c.took)-1, int(q*float64(len(c.took))))]
}

func TestHookCost(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
	dir := t.TempDir()
	hook := filepath.Join(dir, "acceld-hook")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", hook, "../../../cmd/acceld-hook")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const id, node = "0000:01:00.0", "/dev/edu0"
	ready, err := gate.Encode(gate.File{Devices: []gate.Device{{
		ID: id, Kind: "qemu-edu", Ready: true,
		Nodes: []gate.Node{{Path: node, Major: 240, Minor: 0}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	readiness := filepath.Join(dir, "ready.json")
	if err := os.WriteFile(readiness, ready, 0o644); err != nil {
		t.Fatal(err)
	}
	contenders := []*contender{
		{name: "/bin/true", args: []string{"/bin/true"}},
		{
			name: "hook, a device by CDI", args: []string{hook, "createRuntime", "--device", id, "--state", readiness},
			in: state(t, dir, "device", node),
		},
		{
			name: "hook, asked by annotation", args: []string{hook, "createRuntime", "--state", readiness},
			in: state(t, dir, "annotated", node),
		},
		{
			name: "hook, a bundle without a device", args: []string{hook, "createRuntime", "--state", readiness},
			in: state(t, dir, "none", ""),
		},
	}
	for range rounds {
		for _, c := range contenders {
			cmd := exec.Command(c.args[0], c.args[1:]...)
			cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
			cmd.Stdin = bytes.NewReader(c.in)
			start := time.Now()
			out, err := cmd.CombinedOutput()
			c.took = append(c.took, time.Since(start))
			if err != nil {
				t.Fatalf("%s: %v\n%s", c.name, err, out)
			}
		}
	}
	base := contenders[0]
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s %10s %10s %12s %10s\n", "", "p50", "p99", "added p99", "x of true")
	for _, c := range contenders {
		p50, p99 := c.quantile(0.5), c.quantile(0.99)
		fmt.Fprintf(&b, "%-34s %10s %10s %12s %10.2f\n", c.name, p50.Round(time.Microsecond),
			p99.Round(time.Microsecond),
			(p99 - base.quantile(0.99)).Round(time.Microsecond), float64(p99)/float64(base.quantile(0.99)))
	}
	t.Logf("%d rounds in turn\n%s", rounds, b.String())
	for _, c := range contenders[1:] {
		// A container's start is hundreds of milliseconds; the hook may not be seen in it on any machine.
		if added := c.quantile(0.99) - base.quantile(0.99); added > 50*time.Millisecond {
			t.Errorf("%s adds %s at the 99th percentile", c.name, added)
		}
	}
}

// state writes a bundle of the size that Kubernetes makes and returns the state that the runtime gives to its hooks.
func state(t *testing.T, dir, name, node string) []byte {
	t.Helper()
	bundle := filepath.Join(dir, name)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	linux := map[string]any{"seccomp": map[string]any{"syscalls": make([]map[string]string, 1500)}}
	if node != "" {
		linux["devices"] = []map[string]any{{"path": node, "type": "c", "major": 240, "minor": 0}}
	}
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.2.0", "linux": linux,
		"mounts": make([]map[string]string, 30),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{
		"ociVersion": "1.2.0", "id": name, "status": "created", "pid": os.Getpid(),
		"bundle": bundle,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
