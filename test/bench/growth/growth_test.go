// Package growth measures the controller at a real API server while the cluster grows: the program as its own process,
// with the rights of the manifests, policies and the scheduler's extender both at work, and nodes of eight cards that
// have all that kubelets, Node Feature Discovery and agents write about a node. For each size it prints how soon the
// first right answer comes, how long answers take beside a program that only decodes the same request and encodes the
// same answer, the memory, and the requests and writes at the API server, at the start and while kubelets report.
//
// No time is asserted, except that answers take less of the processor than decoding and encoding. ACCELD_LIMITS=1, for
// an idle machine, asserts the limit in milliseconds too, and that the median is below that of decoding and encoding.
// Memory, requests and right answers are asserted on any machine.
package growth

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Flags may make it smaller to try something.
var (
	sizes    = flag.String("sizes", "5000,10000,15000", "how many nodes the cluster has, one after the other")
	podsEach = flag.Int("pods", 8, "how many pods with a card a node has, at most one for each card")
	requests = flag.Int("requests", 200, "how many requests of each kind are timed")
	steady   = flag.Duration("steady", time.Minute, "how long nothing but heartbeats happens")
	patience = flag.Duration("patience", 15*time.Minute, "how long it may take to make the nodes and pods of one size")
)

// Limits of what is measured.
const (
	// limitAnswer is for the median of an answer about all nodes of the largest cluster, on an idle machine.
	limitAnswer = 8 * time.Millisecond
	// limitMemory is for the resident memory of the controller, in MB.
	limitMemory = 100.0
	// judgedFrom is the size from which answers are compared with decoding and encoding: about fewer nodes, an answer
	// takes as long as a round trip of TLS.
	judgedFrom = 1000
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// figures are what is measured of one size.
type figures struct {
	nodes, pods   int
	made          time.Duration // how long it took to make what this size adds
	first, policy time.Duration // from the start to the first right answer, and to the policy's status
	reading       time.Duration // how long the processor has run until then
	answers       []answers
	// In MB: when the first right answer was there, when all answers were timed, after the heartbeats, of that pages of
	// the program's file, and at most.
	memoryFirst, memoryAnswers, memorySteady, memoryFile, memoryPeak float64
	// Requests of the controller at the start and while nothing but heartbeats happens; leases apart.
	startAll, startWrites, steadyAll, steadyWrites, leases int
	heartbeats                                             int
	processor                                              float64 // percent of a core, during the heartbeats
}

// TestGrowth grows a cluster and starts the controller at each size.
func TestGrowth(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" || os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_BENCH=1 and ACCELD_TESTBED=1 are not set: it measures at a real API server, as root")
	}
	var all []int
	for text := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(text)
		check(t, err)
		all = append(all, n)
	}
	slices.Sort(all)
	r := newRig(t)
	least := r.floor()
	r.precede()
	var found []figures
	for _, n := range all {
		found = append(found, r.measure(n, least))
		t.Log("\n" + table(found))
	}
	for _, f := range found {
		f.judge(t, f.nodes == all[len(all)-1])
	}
}

// measure grows the cluster to n nodes and measures a controller that begins there.
func (r *rig) measure(n int, least *server) figures {
	r.t.Helper()
	f := figures{nodes: n, pods: n * (*podsEach + 1)}
	began := time.Now()
	r.grow(n)
	f.made = time.Since(began)
	r.t.Logf("%d nodes and %d pods after %.0f s", n, f.pods, f.made.Seconds())
	from := r.counts(0).End
	c := r.controller()
	defer c.stop()
	f.first = c.firstRight(n)
	f.memoryFirst, _ = c.memory()
	f.policy = c.policed(n)
	f.reading = c.processor(r.t)
	start := r.counts(from)
	f.startAll, f.startWrites = start.All, start.Writes
	r.t.Logf("at the start: %v", start.ByKind)
	f.answers = r.compare(n, c.server, least)
	f.memoryAnswers, _ = c.memory()
	r.t.Logf("with whole nodes (nodeCacheCapable: false): %s", c.wholeNodes())
	from = r.counts(start.End).End
	before := c.processor(r.t)
	began = time.Now()
	stop := c.scraped()
	f.heartbeats = r.heartbeats(n, *steady)
	stop()
	f.processor = 100 * (c.processor(r.t) - before).Seconds() / time.Since(began).Seconds()
	calm := r.counts(from)
	f.steadyAll, f.steadyWrites, f.leases = calm.All, calm.Writes, calm.Leases
	r.t.Logf("in %.0f s with %d heartbeats: %v", time.Since(began).Seconds(), f.heartbeats, calm.ByKind)
	f.memorySteady, f.memoryPeak = c.memory()
	f.memoryFile = c.file()
	return f
}

// limit is for the median, on an idle machine.
func (a *answers) limit() time.Duration { return time.Duration(a.requests) * limitAnswer }

// judge compares figures with the limits. Those in milliseconds are for the largest cluster.
func (f *figures) judge(t *testing.T, largest bool) {
	for _, a := range f.answers {
		if f.nodes >= judgedFrom && a.oursCPU >= a.floorCPU {
			t.Errorf("%d nodes, %s: %v of the processor are not below %v, which decoding and encoding alone take", f.nodes,
				a.name, a.oursCPU, a.floorCPU)
		}
		if os.Getenv("ACCELD_LIMITS") != "1" || f.nodes < judgedFrom {
			continue
		}
		if a.ours.at(.5) >= a.floor.at(.5) {
			t.Errorf("%d nodes, %s: %v is not below %v, which decoding and encoding alone take", f.nodes, a.name,
				a.ours.at(.5), a.floor.at(.5))
		}
		if largest && a.ours.at(.5) > a.limit() {
			t.Errorf("%d nodes, %s: the median is %v, more than %v", f.nodes, a.name, a.ours.at(.5), a.limit())
		}
	}
	if f.memoryPeak > limitMemory {
		t.Errorf("%d nodes: the controller has had %.0f MB of memory, more than %.0f", f.nodes, f.memoryPeak, limitMemory)
	}
	if f.steadyWrites > 0 {
		t.Errorf("%d nodes: %d writes although nothing but heartbeats happened", f.nodes, f.steadyWrites)
	}
}

// table prints the figures of all sizes so far.
func table(all []figures) string {
	var out strings.Builder
	row := func(name string, cell func(f figures) string) {
		fmt.Fprintf(&out, "%-46s", name)
		for _, f := range all {
			fmt.Fprintf(&out, "%22s", cell(f))
		}
		out.WriteByte('\n')
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	row("nodes with 8 cards", func(f figures) string { return strconv.Itoa(f.nodes) })
	row("pods", func(f figures) string { return strconv.Itoa(f.pods) })
	row("start to first right answer", func(f figures) string { return seconds(f.first) })
	row("start to status of the policy", func(f figures) string { return seconds(f.policy) })
	row("  processor until then", func(f figures) string { return seconds(f.reading) })
	for i := range all[0].answers {
		name := all[0].answers[i].name
		row(name+": p50, p99", func(f figures) string {
			return fmt.Sprintf("%.2f, %.2f ms", ms(f.answers[i].ours.at(.5)), ms(f.answers[i].ours.at(.99)))
		})
		row("  decode and encode as a server: p50, p99", func(f figures) string {
			return fmt.Sprintf("%.2f, %.2f ms", ms(f.answers[i].floor.at(.5)), ms(f.answers[i].floor.at(.99)))
		})
		row("  decode and encode, no connection: p50", func(f figures) string {
			return fmt.Sprintf("%.2f ms", ms(f.answers[i].alone.at(.5)))
		})
		row("  p50: ratio to the server, to the other", func(f figures) string {
			a := f.answers[i]
			return fmt.Sprintf("%.2f, %.2f", ms(a.ours.at(.5))/ms(a.floor.at(.5)), ms(a.ours.at(.5))/ms(a.alone.at(.5)))
		})
		row("  processor: each, the server, ratio", func(f figures) string {
			a := f.answers[i]
			return fmt.Sprintf("%.2f, %.2f ms, %.2f", ms(a.oursCPU), ms(a.floorCPU), ms(a.oursCPU)/ms(a.floorCPU))
		})
		row(fmt.Sprintf("  at most %.0f ms p50", ms(all[0].answers[i].limit())), func(f figures) string {
			return met(f.answers[i].ours.at(.5) <= f.answers[i].limit())
		})
	}
	megabytes := func(mb float64) string { return fmt.Sprintf("%.0f MB", mb) }
	row("resident memory at the first right answer", func(f figures) string { return megabytes(f.memoryFirst) })
	row("  after the requests", func(f figures) string { return megabytes(f.memoryAnswers) })
	row("  after the heartbeats", func(f figures) string { return megabytes(f.memorySteady) })
	row("    of which pages of the program's file", func(f figures) string { return megabytes(f.memoryFile) })
	row("  at most", func(f figures) string { return megabytes(f.memoryPeak) })
	row(fmt.Sprintf("  at most %.0f MB", limitMemory), func(f figures) string { return met(f.memoryPeak <= limitMemory) })
	row("requests at the start, of which writes", func(f figures) string {
		return fmt.Sprintf("%d, %d", f.startAll, f.startWrites)
	})
	row(fmt.Sprintf("heartbeats in %v, metrics read each %v", *steady, scraping), func(f figures) string { return strconv.Itoa(f.heartbeats) })
	row("  requests meanwhile, of which writes", func(f figures) string {
		return fmt.Sprintf("%d, %d", f.steadyAll, f.steadyWrites)
	})
	row("  requests about the leader's lease", func(f figures) string { return strconv.Itoa(f.leases) })
	row("  processor", func(f figures) string { return fmt.Sprintf("%.1f %% of a core", f.processor) })
	return out.String()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func met(yes bool) string {
	if yes {
		return "met"
	}
	return "NOT MET"
}
