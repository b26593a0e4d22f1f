// Package agent measures the running agent on a guest of the test bed: beside node_exporter in the same run, and on its
// way from start to allocatable. It prints figures and ratios; it asserts none of the times, because the machine is
// emulated and shared.
package agent

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

// idleFor is how long the processor time of an idle process is counted.
const idleFor = 60 * time.Second

// rssLimit is the design's budget for an idle agent with eight devices, in KiB.
const rssLimit = 40 << 10

// figures are one process's.
type figures struct {
	rss      float64 // KiB
	private  float64 // KiB of it that are not pages of a file
	cpu      float64 // ticks of 10 ms in idleFor
	switches float64 // voluntary context switches in idleFor: wakeups
	start    float64 // seconds from fork to the first answer
	size     float64 // bytes of the program
}

// TestBesideNodeExporter measures the idle agent beside a peer, and beside another version of itself if ACCELD_BEFORE
// is the path of its program.
func TestBesideNodeExporter(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 8, NoKubernetes: true})
	g := n.Guest
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	stage.Check(t, s.Units(ctx, g, ""))
	stage.Check(t, s.Store(ctx, g, stage.Version))
	c, err := cache.Open(nil)
	stage.Check(t, err)
	set, err := parts.Build(ctx, c, progress.New(os.Stderr), parts.NodeExporter)
	stage.Check(t, err)
	stage.Check(t, g.Put(ctx, set.Path("node_exporter"), "/usr/bin/node_exporter", 0o755))
	stage.Check(t, s.Enable(ctx, g))
	_, err = stage.WaitMachine(ctx, g, "ready", stage.InState(accel.Ready))
	stage.Check(t, err)
	sh(t, g, "systemctl disable --now acceld.socket acceld.service")
	ours := measure(t, g, "/usr/bin/acceld", "run", "http://127.0.0.1:9480/livez")
	peer := measure(t, g, "/usr/bin/node_exporter", "--web.listen-address=127.0.0.1:9100", "http://127.0.0.1:9100/")
	t.Logf("%-32s %14s %14s %8s", "8 devices, idle "+idleFor.String(), "acceld", "node_exporter", "ratio")
	row := func(what string, a, b float64) { t.Logf("%-32s %14.2f %14.2f %8.2f", what, a, b, a/max(b, 0.01)) }
	compare := func() {
		row("resident memory, MiB", ours.rss/1024, peer.rss/1024)
		row("of it private, MiB", ours.private/1024, peer.private/1024)
		row("processor, % of a core", ours.cpu/idleFor.Seconds(), peer.cpu/idleFor.Seconds())
		row("wakeups a second", ours.switches/idleFor.Seconds(), peer.switches/idleFor.Seconds())
		row("start to first answer, s", ours.start, peer.start)
		row("program, MiB", ours.size/(1<<20), peer.size/(1<<20))
	}
	compare()
	if before := os.Getenv("ACCELD_BEFORE"); before != "" {
		stage.Check(t, g.Put(ctx, before, "/usr/bin/acceld-before", 0o755))
		peer = measure(t, g, "/usr/bin/acceld-before", "run", "http://127.0.0.1:9480/livez")
		t.Logf("%-32s %14s %14s %8s", "8 devices, idle "+idleFor.String(), "acceld", "before", "ratio")
		compare()
	}
	if ours.rss > rssLimit {
		t.Errorf("the idle agent has %.0f KiB resident, the budget is %d", ours.rss, rssLimit)
	}
}

// measure starts a program five times, keeps the median start, and then watches it idle.
func measure(t *testing.T, g *bed.Guest, program, argument, url string) figures {
	t.Helper()
	out := sh(t, g, `
		for i in 1 2 3 4 5; do
			a=$(date +%s%N)
			"$1" "$2" >/dev/null 2>&1 &
			pid=$!
			until curl -fs -o /dev/null "$3"; do sleep 0.01; done
			b=$(date +%s%N)
			echo $(( (b - a) / 1000000 ))
			if [ $i != 5 ]; then kill $pid; wait $pid 2>/dev/null || true; fi
		done | sort -n | sed -n 3p
		sleep 20
		pid=$(pgrep -o -f "^$1 $2")
		read_stat() { sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f12,13 | tr ' ' '+'; }
		switches() { cat /proc/$pid/task/*/status | awk '/^voluntary/ {n += $2} END {print n}'; }
		c0=$(( $(read_stat) )); s0=$(switches)
		sleep `+fmt.Sprint(int(idleFor.Seconds()))+`
		c1=$(( $(read_stat) )); s1=$(switches)
		echo $(( c1 - c0 )) $(( s1 - s0 )) $(awk '/^(VmRSS|RssAnon)/ {print $2}' /proc/$pid/status) $(stat -c %s "$1")
		kill $pid
	`, program, argument, url)
	var f figures
	if _, err := fmt.Sscan(out, &f.start, &f.cpu, &f.switches, &f.rss, &f.private, &f.size); err != nil {
		t.Fatalf("%s: %q: %v", program, out, err)
	}
	f.start /= 1000
	return f
}

// TestStartToAllocatable: the module is in the store and not loaded, the agent starts, the kubelet offers the devices.
func TestStartToAllocatable(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	stage.Check(t, s.Units(ctx, g, ""))
	stage.Check(t, s.Store(ctx, g, stage.Version))
	stage.Check(t, s.Enable(ctx, g))
	_, err := stage.WaitMachine(ctx, g, "ready", stage.InState(accel.Ready))
	stage.Check(t, err)
	for i := range 3 {
		sh(t, g, "systemctl stop acceld.socket acceld.service; rmmod edu")
		insmod := seconds(t, g, "insmod /var/lib/acceld/kmod/*/edu.ko; until test -c /dev/edu1; do sleep 0.01; done")
		sh(t, g, "rmmod edu")
		start := seconds(t, g, "systemctl start acceld.socket acceld.service")
		m, err := stage.WaitMachine(ctx, g, "ready", stage.InState(accel.Ready))
		stage.Check(t, err)
		took := m.Status[stage.Kind].Took
		total := m.Status[stage.Kind].Since.Sub(m.Agent.Started).Seconds()
		kubelet := (took[accel.PluginMissing] + took[accel.KubeletPending]).Seconds()
		t.Logf(
			"run %d: start of the agent -> ready %.3f s; insmod alone %.3f s; with the kubelet %.3f s; acceld's own share %.3f s (%.0f %%); process start until READY=1 %.3f s",
			i+1, total, insmod, kubelet, total-kubelet-insmod, 100*(total-kubelet-insmod)/total, start)
		for _, state := range []accel.State{
			accel.Absent, accel.DriverMissing, accel.DriverUnproven,
			accel.RuntimeMissing, accel.PluginMissing, accel.KubeletPending, accel.Unwatched,
		} {
			t.Logf("    in %-16s %7.3f s", state, took[state].Seconds())
		}
		if m.Have[stage.Kind].Driver.Source != "store" || !m.Have[stage.Kind].Plugin.Allocatable.Is(2) {
			t.Errorf("driver from %q, allocatable %v", m.Have[stage.Kind].Driver.Source,
				m.Have[stage.Kind].Plugin.Allocatable)
		}
	}
}

// seconds returns how long a fixed script takes in the guest, in seconds.
func seconds(t *testing.T, g *bed.Guest, script string) float64 {
	t.Helper()
	var ms float64
	out := sh(t, g, "a=$(date +%s%N); "+script+"; b=$(date +%s%N); echo $(( (b - a) / 1000000 ))")
	if _, err := fmt.Sscan(out, &ms); err != nil {
		t.Fatal(err)
	}
	return ms / 1000
}

func sh(t *testing.T, g *bed.Guest, script string, args ...string) string {
	t.Helper()
	return stage.Sh(t, g, 5*time.Minute, script, args...)
}
