package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// TestOneCompile: two nodes with one kernel and an empty registry. One of them builds and publishes, the other waits
// for that, and says so.
func TestOneCompile(t *testing.T) {
	first, second, s := stage.StartPair(t, bed.Options{Accelerators: 1})
	registry, err := image.Serve(0)
	stage.Check(t, err)
	t.Cleanup(registry.Close)
	nodes := []*bed.Node{first, second}
	for _, n := range nodes {
		stage.Check(t, s.Source(t.Context(), n.Guest))
		stage.Check(t, s.Prebuilt(t.Context(), n.Guest, registry, true))
	}
	stage.Check(t, s.Deploy(t.Context(), first))
	waits := make(chan error, len(nodes))
	timed(t, "DaemonSet applied -> both nodes ready, driver built once", func() {
		for _, n := range nodes {
			go func() {
				_, err := stage.WaitMachine(stage.Within(t, 10*time.Minute), n.Guest, "node "+n.Name()+" to be ready",
					stage.InState(accel.Ready))
				waits <- err
			}()
		}
		for range nodes {
			stage.Check(t, <-waits)
		}
	})
	built, waited := 0, 0
	for _, n := range nodes {
		m, err := stage.Machine(t.Context(), n.Guest)
		stage.Check(t, err)
		pod, err := first.Kubectl(t.Context(), nil, "-n", "acceld-system", "get", "pods", "-o", "name",
			"--field-selector", "spec.nodeName="+n.Name())
		stage.Check(t, err)
		log, err := first.Kubectl(t.Context(), nil, "-n", "acceld-system", "logs", strings.TrimSpace(pod))
		stage.Check(t, err)
		compiles := strings.Count(log, "driver build started")
		t.Logf("%s: driver from %q, %d builds", n.Name(), m.Have[stage.Kind].Driver.Source, compiles)
		built += compiles
		if compiles == 0 && strings.Contains(log, string(accel.BuildElsewhere)) {
			waited++
		}
	}
	if built != 1 || waited != 1 {
		t.Errorf("%d builds, want exactly 1; %d nodes said that another one builds, want 1", built, waited)
	}
	t.Logf("the registry was asked:\n  %s", strings.Join(registry.Requests(), "\n  "))
}
