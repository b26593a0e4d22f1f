// Package driver measures how long a driver takes to be there: built, pulled and from the store, and the build itself
// beside plain make and DKMS, the same source in the same guest. It prints figures and ratios; it asserts none of the
// times, because the machine is emulated and shared.
package driver

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// patience is for a build in an emulated guest.
const patience = 10 * time.Minute

// way is one way to get the same kernel module from the same source.
type way struct {
	name, prepare, build string
}

func ways() []way {
	return []way{
		{
			"make -j", `rm -rf /root/plain; cp -a /usr/src/edu-1.0.0 /root/plain; sync`,
			`make -s -j "$(nproc)" -C "/lib/modules/$(uname -r)/build" M=/root/plain modules >/dev/null 2>&1; test -s /root/plain/edu.ko`,
		},
		{
			"acceld", `rm -rf /var/lib/acceld; sync`,
			`acceld driver build qemu-edu >/dev/null 2>&1; test -s /var/lib/acceld/kmod/*/edu.ko`,
		},
		{
			"dkms", `dkms remove edu/1.0.0 --all >/dev/null 2>&1 || true; sync`,
			`dkms build edu/1.0.0 >/dev/null 2>&1; test -s /var/lib/dkms/edu/1.0.0/*/*/module/edu.ko*`,
		},
	}
}

// TestBuild: the wall time of a build over that of plain make and of DKMS. ACCELD_ROUNDS is how often each is done; the
// quickest counts.
func TestBuild(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, NoKubernetes: true, MemoryMiB: 2048})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, s.Source(t.Context(), g))
	took := map[string]time.Duration{}
	do := func(w way) time.Duration {
		stage.Sh(t, g, patience, w.prepare)
		begin := time.Now()
		stage.Sh(t, g, patience, w.build)
		return time.Since(begin)
	}
	t.Logf("%-10s %7.1f s, with cold caches, not counted", "make -j", do(ways()[0]).Seconds())
	for range rounds() {
		for _, w := range ways() {
			once := do(w)
			t.Logf("%-10s %7.1f s", w.name, once.Seconds())
			if best, known := took[w.name]; !known || once < best {
				took[w.name] = once
			}
		}
	}
	for _, other := range []string{"make -j", "dkms"} {
		t.Logf("acceld / %-10s %6.2f", other, took["acceld"].Seconds()/took[other].Seconds())
	}
}

func rounds() int {
	n, err := strconv.Atoi(os.Getenv("ACCELD_ROUNDS"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// TestReady: from the start of the agent to a device that computed, with the driver built, pulled, and from the store.
func TestReady(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, NoKubernetes: true})
	g := n.Guest
	registry, err := image.Serve(0)
	stage.Check(t, err)
	t.Cleanup(registry.Close)
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, s.Source(t.Context(), g))
	stage.Check(t, s.Prebuilt(t.Context(), g, registry, true))
	took := map[string]time.Duration{}
	for _, from := range []struct{ source, before string }{
		{string(accel.SourceBuild), "true"},
		{string(accel.SourceOCI), "rm -rf /var/lib/acceld"},
		{string(accel.SourceStore), "true"},
	} {
		stage.Sh(t, g, patience, "systemctl stop acceld.socket acceld.service; rmmod edu 2>/dev/null || true; sync; "+
			from.before)
		begin := time.Now()
		stage.Sh(t, g, patience, "systemctl start acceld.socket acceld.service")
		m, err := stage.WaitMachine(stage.Within(t, patience), g, "ready", stage.InState(accel.Ready))
		stage.Check(t, err)
		took[from.source] = time.Since(begin)
		if got := m.Have[stage.Kind].Driver.Source; got != from.source {
			t.Errorf("the driver is from %q, want %q", got, from.source)
		}
		t.Logf("agent started -> ready, driver from %-8s %7.2f s", from.source, took[from.source].Seconds())
		if from.source == string(accel.SourceBuild) {
			await(t, "the driver is published", func() bool {
				return slices.ContainsFunc(registry.Requests(), func(r string) bool {
					return strings.HasPrefix(r, "PUT /v2/drivers/edu/manifests/")
				})
			})
		}
	}
	t.Logf("built / from the store %6.1f, pulled / from the store %6.1f",
		took["build"].Seconds()/took["store"].Seconds(), took["oci"].Seconds()/took["store"].Seconds())
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := stage.Within(t, time.Minute)
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("cannot wait any longer until %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
