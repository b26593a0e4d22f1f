package fleet

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/page"
)

func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

// node returns a node with a kind whose driver is in a phase.
func node(name string, phase accel.Phase, change ...func(*policy.NodeView)) policy.NodeView {
	n := policy.NodeView{
		Name: name, Up: true, Ready: "True",
		Kinds: []policy.KindView{{
			Kind: "qemu-edu", Count: "2", Version: "1.0.0",
			States: map[accel.Published]accel.Phase{accel.DriverContainer: phase},
		}},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

func says(reason, message string) func(*policy.NodeView) {
	return func(n *policy.NodeView) { n.Ready, n.Reason, n.Message = "False", reason, message }
}

func waiting(pod string) extender.Waiting {
	w := extender.Waiting{Asked: noon().Add(-time.Minute)}
	w.Pod, w.Containers = pod, []extender.ContainerNeed{{
		Name: "main", Cards: 1,
		PerCard: map[string]int64{"memory": 5},
	}}
	w.Verdicts = map[string]int{fit.NoRoom.String(): 2, fit.Fits.String(): 1}
	w.Nodes = []fit.Report{{
		Node: "n1", Verdict: fit.NoRoom.String(),
		Cards: []fit.CardReport{{
			Card: "card0", Verdict: "too little memory",
			Resources: []fit.ResourceReport{{Name: "memory", Capacity: 8, Used: 5, Free: 3, Need: 5}},
			Pods:      []fit.HolderReport{{Pod: "ml/other"}},
		}},
	}}
	return w
}

// served requests path from a page.
func served(t *testing.T, o Options, path string) (int, string) {
	t.Helper()
	if o.Now == nil {
		o.Now = noon
	}
	w := httptest.NewRecorder()
	New(o).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	d := xml.NewDecoder(strings.NewReader(w.Body.String()))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return w.Code, w.Body.String()
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func options(nodes []policy.NodeView, pods ...extender.Waiting) Options {
	return Options{
		Overview: func() (policy.Overview, bool) { return policy.Overview{Nodes: nodes}, true },
		Waiting:  func(int) ([]extender.Waiting, int, bool) { return pods, len(pods), true },
		Explain: func(pod string, _ int) (extender.Waiting, bool) {
			return waiting(pod), pod == "ml/train"
		},
	}
}

func TestVerdicts(t *testing.T) {
	well := node("a", accel.PhaseReady)
	for want, o := range map[string]Options{
		"The one node with accelerators is ready.": options([]policy.NodeView{well}),
		"All 2 nodes with accelerators are ready.": options([]policy.NodeView{well, well}),
		"No node has accelerators.":                options(nil),
		"ready, unchecked":                         options([]policy.NodeView{node("a", accel.PhaseUnchecked)}),
		"1 of 2 nodes ready, 1 need attention.": options([]policy.NodeView{
			well,
			node("b", accel.PhaseFailed, says("HeadersMissing", "x")),
		}),
		"1 of 2 nodes ready.": options([]policy.NodeView{
			well,
			node("b", accel.PhasePending),
		}),
		"1 of 1 node ready, 1 pod waiting.": options([]policy.NodeView{well}, waiting("ml/train")),
		"0 of 1 node ready, 1 need attention.": options([]policy.NodeView{node("b", accel.PhaseReady,
			says("DeviceFault", "x"))}),
		"0 of 1 node ready, 1 need attention, 1 pod waiting": options([]policy.NodeView{node("b", accel.PhaseReady,
			func(n *policy.NodeView) { n.Up = false })}, waiting("ml/train")),
		"No pod waits for cards.": {Waiting: func(int) ([]extender.Waiting, int, bool) { return nil, 0, true }},
	} {
		if status, body := served(t, o, "/"); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("status %d: no %q in\n%s", status, want, body)
		}
	}
	for holder, want := range map[string]string{
		"":  "the leader, or the cluster has not been read",
		"b": "the leader: b.",
	} {
		o := Options{Overview: func() (policy.Overview, bool) {
			return policy.Overview{}, false
		}, Waiting: func(int) ([]extender.Waiting, int, bool) { return nil, 0, false }}
		o.Holder = func() string { return holder }
		if status, body := served(t, o, "/"); status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
			t.Errorf("not the leader: %d, no %q in %s", status, want, body)
		}
	}
}

// TestPage: the page shows why nodes are not ready and what to do, nodes by status, policies with what blocks them,
// and why a pod waits.
func TestPage(t *testing.T) {
	nodes := []policy.NodeView{
		node("b1", accel.PhaseFailed, says("HeadersMissing", "the headers are not installed")),
		node("b2", accel.PhaseFailed, says("HeadersMissing", "the same")),
		node("u1", accel.PhaseReady, func(n *policy.NodeView) {
			n.Kinds[0].UpgradeReport, n.Cordoned, n.CordonedBy = accel.UpgradeReport{
				Phase:   accel.ReportUpgrading,
				Version: "2.0.0",
			}, true,
				"edu"
		}),
		node("r1", accel.PhaseReady),
	}
	o := options(nodes, waiting("ml/train"))
	o.Overview = func() (policy.Overview, bool) {
		return policy.Overview{
			Nodes: nodes, Problem: "connection refused",
			Policies: []policy.PolicyView{{Name: "edu", Kinds: []string{"qemu-edu"}, Status: policy.Status{
				Nodes: policy.Nodes{Matched: 4, Ready: 1, Upgrading: 1, Waiting: 1, Failed: 1},
				Slots: []policy.Slot{{
					Node: "u1", Kind: "qemu-edu", Version: "2.0.0",
					Since: noon().Add(-time.Minute),
				}},
				Blocked: []policy.Blocked{{Reason: "WaitingForSlot", Count: 1, Example: "b1: qemu-edu"}},
				Conditions: []policy.Condition{{
					Type: policy.ConditionReady, Status: "False", Reason: "Progressing",
					Message: "1 of 4", LastTransitionTime: noon().Add(-time.Hour),
				}, {
					Type:   policy.ConditionConflict,
					Status: "True", Reason: "EqualPriority", Message: "another one",
				}},
			}}},
		}, true
	}
	_, body := served(t, o, "/?pod=ml%2Ftrain")
	for _, want := range []string{
		`>HeadersMissing</th>`, `data-name="Nodes">2</td>`, accel.HeadersMissing.Doc().Remedy,
		`<span class="nw">b1</span>, <span class="nw">b2</span>`, `upgrading 2.0.0`, `cordoned by policy edu`,
		`<details id="ready"><summary>1 node ready`,
		`Policy edu`, `u1 may replace the driver of qemu-edu by 2.0.0`, `>WaitingForSlot</th>`,
		`Conflict: EqualPriority`, `1 as asked, 1 upgrading, 1 waiting, 1 failed`,
		`The API server is not followed`, `connection refused`,
		`<a href="?pod=ml%2Ftrain#pods">ml/train</a>`, `main: 1 card with memory 5 each`, `2 nodes: not enough room`,
		`1 node: cards have room`,
		`Why ml/train waits`, `memory: 3 of 8 free, 5 needed`, `held by ml/other`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q on the page\n%s", want, body)
		}
	}
	if _, body := served(t, o, "/?pod=%3Cscript%3Ealert(1)%3C%2Fscript%3E"); strings.Contains(body, "<script>alert") ||
		!strings.Contains(body, "has not asked about a pod") {
		t.Error("an unknown pod")
	}
	if _, body := served(t, Options{Overview: o.Overview}, "/"); !strings.Contains(body,
		"does not answer the scheduler") {
		t.Error("without an extender it is not said that nobody knows the pods")
	}
}

// TestRepairsOnPage: the page shows what is repaired, and why not.
func TestRepairsOnPage(t *testing.T) {
	ill := func(report string, may bool) func(n *policy.NodeView) {
		return func(n *policy.NodeView) {
			n.Kinds[0].RepairReport, n.Kinds[0].MayRepair = accel.ParseRepairReport(report), may
		}
	}
	nodes := []policy.NodeView{
		node("a", accel.PhaseReady, ill("repairing 1/8", true)), node("b", accel.PhaseReady, ill("waiting 2/8", false)),
		node("c", accel.PhaseReady, ill("waiting 3/8", true)), node("d", accel.PhaseReady, ill("ill 4/8", false)),
		node("e", accel.PhaseReady, ill("soon", false)), node("f", accel.PhaseReady),
	}
	o := options(nodes)
	repair := policy.Condition{Type: policy.ConditionRepair, Status: "True", Reason: "Idle", Message: "nothing to do"}
	o.Overview = func() (policy.Overview, bool) {
		return policy.Overview{Nodes: nodes, Policies: []policy.PolicyView{{Name: "edu", Status: policy.Status{
			Slots:      []policy.Slot{{Node: "a", Kind: "qemu-edu", Repair: true, Since: noon().Add(-time.Minute)}},
			Conditions: []policy.Condition{{Type: policy.ConditionReady, Status: "True", Reason: "Ready"}, repair},
		}}}}, true
	}
	_, body := served(t, o, "/")
	for _, want := range []string{
		"1 of 8 qemu-edu to reset: being repaired", "2 of 8 qemu-edu to reset: waits for the policy",
		"3 of 8 qemu-edu to reset: the node may begin", "4 of 8 qemu-edu to reset: not possible now",
		"what the node says of its repairs cannot be read", "a may repair devices of qemu-edu, since",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q on the page\n%s", want, body)
		}
	}
	if strings.Contains(body, "nothing to do") || !strings.Contains(body, `<section class="good" id="policy-edu">`) {
		t.Errorf("an idle condition is news\n%s", body)
	}
	repair.Reason = "Repairing"
	if _, body = served(t, o, "/"); !strings.Contains(body, `<section class="busy" id="policy-edu">`) ||
		!strings.Contains(body, "… </span>Repairing") {
		t.Errorf("a policy that repairs looks as if there were nothing to do\n%s", body)
	}
	repair.Status, repair.Reason, repair.Message = "False", "Breaker", "40 nodes have devices that need a reset"
	_, body = served(t, o, "/")
	if !strings.Contains(body, "Repair: Breaker") || !strings.Contains(body, repair.Message) {
		t.Errorf("the breaker is not on the page\n%s", body)
	}
}

// TestMany: thousands of nodes do not make an endless page.
func TestMany(t *testing.T) {
	var nodes []policy.NodeView
	for range 5000 {
		nodes = append(nodes, node("n", accel.PhaseFailed, says("NoSpace", "full")))
	}
	if _, body := served(t, options(nodes), "/"); len(body) > 200_000 ||
		!strings.Contains(body, "4900 more are not shown") || !strings.Contains(body, "and 4997 more") {
		t.Errorf("%d bytes", len(body))
	}
}

// TestWaits: a client that has the newest page is answered when it changes, and one read serves all clients.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var phase atomic.Value
		phase.Store(accel.PhasePending)
		looks := 0
		o := options(nil)
		o.Overview = func() (policy.Overview, bool) {
			looks++
			return policy.Overview{Nodes: []policy.NodeView{node("a", phase.Load().(accel.Phase))}}, true
		}
		p := New(o)
		ask := func(tag, prefer string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Header.Set("If-None-Match", tag)
			r.Header.Set("Prefer", prefer)
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w
		}
		tag := ask("", "").Header().Get("ETag")
		begin := time.Now()
		if w := ask(tag, "wait=20"); w.Code != http.StatusNotModified || time.Since(begin) != 20*time.Second {
			t.Errorf("status %d after %v", w.Code, time.Since(begin))
		}
		if w := ask(tag, ""); w.Code != http.StatusNotModified {
			t.Errorf("status %d without a wish to wait", w.Code)
		}
		go func() {
			time.Sleep(3500 * time.Millisecond)
			phase.Store(accel.PhaseReady)
		}()
		begin = time.Now()
		if w := ask(tag, "respond-async, wait=20"); w.Code != http.StatusOK || time.Since(begin) > 5*time.Second ||
			w.Header().Get("ETag") == tag {
			t.Errorf("status %d after %v", w.Code, time.Since(begin))
		}
		before := looks
		for range 50 {
			ask("", "")
		}
		if looks-before > 1 {
			t.Errorf("%d looks for 50 requests at once", looks-before)
		}
		for range maxWaiting {
			p.waiting <- struct{}{}
		}
		begin = time.Now()
		if ask(ask("", "").Header().Get("ETag"), "wait=20"); time.Since(begin) > time.Second {
			t.Error("with too many waiting it waits too")
		}
	})
}

// TestStanding: only what is known to be well has the colour of it.
func TestStanding(t *testing.T) {
	well := map[accel.Published]accel.Phase{accel.DriverContainer: accel.PhaseReady}
	for name, tt := range map[string]struct {
		node policy.NodeView
		kind policy.KindView
		tone page.Tone
		word string
	}{
		"well":       {policy.NodeView{Up: true, Ready: "True"}, policy.KindView{States: well}, page.Good, "ready"},
		"down":       {policy.NodeView{Ready: "True"}, policy.KindView{States: well}, page.Idle, "unknown"},
		"a sick one": {policy.NodeView{Up: true, Ready: "False", Message: "npu 0000:40:00.0 is unhealthy"}, policy.KindView{Kind: "npu", States: well}, page.Bad, "needs attention"},
		"another kind's": {
			policy.NodeView{Up: true, Ready: "False", Message: "fpga 0000:40:00.0 is unhealthy"}, policy.KindView{Kind: "npu", States: well}, page.Good, "ready",
		},
		"upgrading": {
			policy.NodeView{Up: true, Ready: "True"},
			policy.KindView{States: well, UpgradeReport: accel.UpgradeReport{Phase: accel.ReportUpgrading}},
			page.Busy, "upgrading",
		},
	} {
		if tone, word := standing(tt.node, tt.kind); tone != tt.tone || word != tt.word {
			t.Errorf("%s: %s %s, want %s %s", name, tone, word, tt.tone, tt.word)
		}
	}
}

// TestCount: each device counts once, and none of a node that is down counts as offered or sick.
func TestCount(t *testing.T) {
	states := func(driver accel.Phase) map[accel.Published]accel.Phase {
		return map[accel.Published]accel.Phase{accel.DriverContainer: driver, accel.RuntimeEnablement: accel.PhaseReady}
	}
	kind := func(count string, sick, withheld int, driver accel.Phase) []policy.KindView {
		return []policy.KindView{{Kind: "npu", Count: count, Sick: sick, Withheld: withheld, States: states(driver)}}
	}
	got := count([]policy.NodeView{
		{Name: "a", Up: true, Kinds: kind("8", 1, 2, accel.PhaseReady)},
		{Name: "b", Up: true, Kinds: kind("8", 0, 0, accel.PhaseUnchecked)},
		{Name: "c", Up: false, Kinds: kind("4", 1, 1, accel.PhaseReady)},
		{Name: "d", Up: true, Kinds: kind("2", 0, 0, accel.PhasePending)},
		{Name: "e", Up: true, Kinds: kind("many", 0, 0, accel.PhaseReady)},
		{Name: "f", Up: true, Kinds: kind("1", 9, 9, accel.PhaseReady)},
	})
	if want := (devicesTally{offered: 13, withheld: 2, sick: 2, waiting: 2, unknown: 4, all: 23}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for want, k := range map[string]policy.KindView{
		"":                             {},
		"NPU 400, 80 GiB each":         {Product: "NPU_400", Memory: "81920"},
		"80 GiB each, 1 sick":          {Memory: "81920", Sick: 1},
		"NPU 400, 1 sick, 2 held back": {Product: "NPU_400", Sick: 1, Withheld: 2},
		"2 held back":                  {Withheld: 2, Memory: "much"},
	} {
		if got := model(k); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
