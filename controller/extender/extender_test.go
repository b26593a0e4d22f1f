package extender

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/fleet"
)

// lab is an extender that leads, with the pods that its API server has.
type lab struct {
	*Extender
	cache *Cache
	mu    sync.Mutex
	pods  map[string]*corev1.Pod
	// after is the API server's error after it has bound a pod. before is its error instead of binding it.
	before, after error
	// during is called once, after the API server has received a binding and before it writes it.
	during func()
	bound  []*corev1.Binding
	// end ends the term. over is closed when the extender no longer leads and another may take over.
	end  context.CancelFunc
	over chan struct{}
}

// leading starts a leader with one node of two cards with 8 of memory each, and pods.
func leading(t *testing.T, pods ...*corev1.Pod) *lab {
	t.Helper()
	rules, err := fit.Rules{Prefix: fleet.Prefix, Cards: []string{"shares"}, Tiles: "tiles"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{pods: map[string]*corev1.Pod{}}
	for _, p := range pods {
		l.pods[p.Name] = p
	}
	l.elect(t, &rules)
	return l
}

// elect replaces the extender by a new leader that knows nothing yet.
func (l *lab) elect(t *testing.T, rules *fit.Rules) {
	e, b := New(rules, API{Pod: l.get, Bind: l.write}, Pack, slog.New(slog.DiscardHandler)), NewCache(rules)
	ctx, end := context.WithCancel(t.Context())
	up, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		e.During(ctx, b, func(ctx context.Context) {
			close(up)
			<-ctx.Done()
		})
	}()
	<-up
	l.Extender, l.cache, l.end, l.over = e, b, end, over
	t.Cleanup(func() {
		end()
		<-over
	})
}

// list fills the cache.
func (l *lab) list(nodes ...*corev1.Node) {
	var facts []*Facts
	for _, n := range nodes {
		facts = append(facts, TrimNode(l.rules, n))
	}
	l.cache.ListNodes(facts)
	l.cache.ListPods(l.shown())
}

// shown returns the pods of [BoundPods] as the API server lists them now.
func (l *lab) shown() (out []*Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pods {
		if trimmed := l.cache.Trim(p); trimmed != nil && trimmed.Node != "" && !trimmed.Over {
			out = append(out, trimmed)
		}
	}
	return out
}

func (l *lab) get(_ context.Context, _, name string) (*corev1.Pod, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pods[name]; p != nil {
		return p.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

func (l *lab) write(_ context.Context, b *corev1.Binding) error {
	l.mu.Lock()
	during := l.during
	l.during = nil
	l.mu.Unlock()
	if during != nil {
		during()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before != nil {
		return l.before
	}
	if p := l.pods[b.Name]; p.Spec.NodeName != "" || b.UID != p.UID ||
		b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, b.Name,
			errors.New("it is another one, or bound"))
	}
	l.bound = append(l.bound, b)
	p := l.pods[b.Name].DeepCopy()
	p.Spec.NodeName = b.Target.Name
	maps.Copy(p.Annotations, b.Annotations)
	l.pods[b.Name] = p
	return l.after
}

func (l *lab) post(verb string, body any) (int, string) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/scheduler/"+verb,
		bytes.NewReader(data))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	l.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (l *lab) passes(p *corev1.Pod) bool {
	_, body := l.post("filter", map[string]any{"Pod": p, "NodeNames": []string{"n1"}})
	return strings.Contains(body, `"NodeNames":["n1"]`)
}

func (l *lab) tryBind(p *corev1.Pod) string {
	_, body := l.post("bind", map[string]any{
		"PodName": p.Name, "PodNamespace": p.Namespace, "PodUID": p.UID,
		"Node": "n1",
	})
	var got struct{ Error string }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		panic(err)
	}
	return got.Error
}

func twoCards() *corev1.Node {
	return fleet.Node("n1", 2, fleet.Amounts{"shares": "20", "memory": "16G"})
}

func five(name string) *corev1.Pod {
	return fleet.Pod(name, "", "", fleet.Amounts{"shares": "1", "memory": "5G"})
}

func TestNotReady(t *testing.T) {
	p := five("p")
	l := leading(t, p)
	if status, _ := l.post("filter",
		map[string]any{"Pod": p, "NodeNames": []string{"n1"}}); status != http.StatusServiceUnavailable {
		t.Errorf("without a cache: status %d", status)
	}
	l.cache.ListNodes(nil)
	if status, body := l.post("bind", map[string]any{
		"PodName": "p", "PodNamespace": "default", "PodUID": p.UID,
		"Node": "n1",
	}); status != http.StatusServiceUnavailable {
		t.Errorf("with half of the cache: status %d: %s", status, body)
	}
	l.list(twoCards())
	if !l.passes(p) {
		t.Error("with the whole cache: the pod does not pass")
	}
	l.term.Store(nil)
	if status, _ := l.post("filter",
		map[string]any{"Pod": p, "NodeNames": []string{"n1"}}); status != http.StatusServiceUnavailable {
		t.Errorf("not the leader: status %d", status)
	}
}

func TestArguments(t *testing.T) {
	l := leading(t)
	l.list(twoCards())
	for body, want := range map[string]int{
		`{"NodeNames":["n1"]}`:        http.StatusBadRequest,
		`{"Pod":null,"NodeNames":[]}`: http.StatusBadRequest, `{"Pod":{}}`: http.StatusOK,
		`[]`: http.StatusBadRequest,
	} {
		if status, answer := l.post("filter", json.RawMessage(body)); status != want ||
			!strings.Contains(answer, `"Error":"`) {
			t.Errorf("%s: status %d, want %d: %s", body, status, want, answer)
		}
	}
}

// plain returns names as a JSON decoder reads them.
func plain(t *testing.T, all *names) []string {
	out := make([]string, len(all.at))
	for i := range out {
		if err := json.Unmarshal(all.quoted(i), &out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// FuzzArgs compares what the scanner finds with what encoding/json reads.
func FuzzArgs(f *testing.F) {
	for _, text := range []string{
		`{"Pod":{"metadata":{"name":"p\"}","uid":"u"}},"Nodes":null,"NodeNames":["a","b"]}`,
		` { "nodenames" : [ "a" , "b" ] , "pod" : null } `,
		`{"NodeNames":[]}`, `{"NodeNames":null}`, `{"NodeNames":["a\u0062"]}`, `{"NodeNames":["a",]}`,
		`{"NodeNames":["a"]}x`, `{"Pod":{}`, `{"Pod":1}`, `{"a":[{"b":"]"}],"NodeNames":["x"]}`,
		`{"NodeNames":["a"],}`, `{}`, `{"NodeNames":"a"}`, `{"x":tru,"NodeNames":["a"]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got, want args
		err := readArgs([]byte(text), nil, &got)
		if json.Unmarshal([]byte(text), &want) != nil {
			return // skipped values are not validated
		}
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ NodeNames *[]string }
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		if (got.NodeNames == nil) != (list.NodeNames == nil) || list.NodeNames != nil &&
			!slices.Equal(plain(t, got.NodeNames), *list.NodeNames) {
			t.Errorf("got %v, want %v", got.NodeNames, list.NodeNames)
		}
		if (got.Pod == nil) != (want.Pod == nil) || got.Pod != nil && got.Pod.Metadata.Name != want.Pod.Metadata.Name {
			t.Errorf("got %v, want %v", got.Pod, want.Pod)
		}
	})
}

// TestMemory: concurrent and successive answers do not mix.
func TestMemory(t *testing.T) {
	l := leading(t)
	var all []*corev1.Node
	for i := range 64 {
		all = append(all, fleet.Node(fmt.Sprint("node-", i), 2,
			fleet.Amounts{"shares": "20", "memory": fmt.Sprint(2*(1+i%3), "G")}))
	}
	l.list(all...)
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for round := range 50 {
				var names, fit []string
				for i := w; i < 64; i += 1 + (w+round)%7 {
					names = append(names, fmt.Sprint("node-", i))
					if i%3 == 2 {
						fit = append(fit, names[len(names)-1])
					}
				}
				names = append(names, "gh<st")
				body := map[string]any{
					"Pod":       fleet.Pod("p", "", "", fleet.Amounts{"shares": "1", "memory": "3G"}),
					"NodeNames": names,
				}
				_, text := l.post("filter", body)
				var got struct {
					NodeNames   []string
					FailedNodes map[string]string
				}
				if err := json.Unmarshal([]byte(text), &got); err != nil || !slices.Equal(got.NodeNames, fit) ||
					len(got.FailedNodes) != len(names)-len(fit) || got.FailedNodes["gh<st"] == "" {
					t.Errorf("of %v: %v, %s", names, err, text)
				}
				_, text = l.post("prioritize", body)
				var scores []struct{ Host string }
				if err := json.Unmarshal([]byte(text), &scores); err != nil || len(scores) != len(names) ||
					scores[0].Host != names[0] || scores[len(names)-1].Host != "gh<st" {
					t.Errorf("of %v: %v, %s", names, err, text)
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkFilter filters some or all of 5,000 nodes with eight cards, without a connection: for a pod that fits on
// the first card of each (A), and for one that fits on none (B).
func BenchmarkFilter(b *testing.B) {
	for _, c := range []struct {
		name, cores string
		nodes       int
	}{
		{"A/500", "300", 500},
		{"A/1000", "300", 1000},
		{"A/5000", "300", 5000},
		{"B/500", "500", 500},
		{"B/1000", "500", 1000},
		{"B/5000", "500", 5000},
	} {
		b.Run(c.name, func(b *testing.B) {
			rules, err := fit.Rules{Prefix: fleet.Prefix, Cards: []string{"shares"}}.Complete()
			if err != nil {
				b.Fatal(err)
			}
			cache := NewCache(&rules)
			var facts []*Facts
			var pods []*Pod
			var names []string
			for i := range 5000 {
				n := fleet.Node(fmt.Sprintf("node-%05d.cluster.example", i), 8,
					fleet.Amounts{"shares": "80", "millicores": "8000"})
				facts, names = append(facts, TrimNode(&rules, n)), append(names, n.Name)
				for c := range 8 {
					pods = append(pods, cache.Trim(fleet.Pod(fmt.Sprint(i, "-", c), n.Name, fmt.Sprint("card", c),
						fleet.Amounts{"shares": "1", "millicores": "600"})))
				}
			}
			cache.ListNodes(facts)
			cache.ListPods(pods)
			e := New(&rules, API{}, Pack, slog.New(slog.DiscardHandler))
			e.term.Store(&term{cache: cache, ctx: b.Context()})
			body, err := json.Marshal(map[string]any{"Pod": fleet.Pod("p", "", "",
				fleet.Amounts{"shares": "1", "millicores": c.cores}), "NodeNames": names[:c.nodes]})
			if err != nil {
				b.Fatal(err)
			}
			handler := e.Handler()
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/scheduler/filter",
					bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}

// TestConcurrentBinds: more pods are bound at once than there is room for.
func TestConcurrentBinds(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 200 {
		pods = append(pods, fleet.Pod(fmt.Sprint("p", i), "", "", fleet.Amounts{"shares": "1", "memory": "3"}))
	}
	l := leading(t, pods...)
	l.list(fleet.Node("n1", 8, fleet.Amounts{"shares": "800", "memory": "160"})) // six pods on each card
	var done sync.WaitGroup
	for _, p := range pods {
		done.Go(func() {
			if l.passes(p) {
				_ = l.tryBind(p)
			}
		})
	}
	done.Wait()
	cards, times := map[string]int{}, map[string]bool{}
	for _, b := range l.bound {
		cards[b.Annotations["gas-container-cards"]]++
		times[b.Annotations["gas-ts"]] = true
	}
	if len(l.bound) != 48 || len(times) != 48 {
		t.Errorf("%d pods are bound, at %d times, want 48", len(l.bound), len(times))
	}
	for card, n := range cards {
		if n != 6 {
			t.Errorf("%s has %d pods, want 6", card, n)
		}
	}
}

// TestRefusedBind: a refused binding frees the cards and says why.
func TestRefusedBind(t *testing.T) {
	p, q := five("p"), five("q")
	l := leading(t, p, q)
	l.list(fleet.Node("n1", 1, fleet.Amounts{"shares": "20", "memory": "8G"}))
	l.before = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("it is another one"))
	if got := l.tryBind(p); !strings.Contains(got, "it is another one") {
		t.Errorf("error %q", got)
	}
	if l.before = nil; !l.passes(q) {
		t.Error("the cards are held for a pod that was refused")
	}
	other := five("p")
	other.UID = "other"
	if got := l.tryBind(other); got != "cannot bind pod default/p: it is gone" {
		t.Errorf("a pod of another UID: %q", got)
	}
}

// TestLostAnswer: the cards stay reserved while it is unknown whether a pod is bound, and the API server is asked.
func TestLostAnswer(t *testing.T) {
	for _, wrote := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, q := five("p"), five("q")
			l := leading(t, p, q)
			l.list(fleet.Node("n1", 1, fleet.Amounts{"shares": "20", "memory": "8G"}))
			go l.cache.check(t.Context(), l.api, func(err error) { t.Error(err) })
			lost := apierrors.NewTimeoutError("the answer was lost", 1)
			if l.after = lost; !wrote {
				l.before = lost
			}
			if l.tryBind(p) == "" {
				t.Fatal("a lost answer is taken for a good one")
			}
			l.before, l.after = nil, nil
			if l.passes(q) {
				t.Fatal("the cards are given away while nobody knows")
			}
			time.Sleep(unconfirmedAfter + 2*checkEvery)
			synctest.Wait()
			if l.passes(q) == wrote {
				t.Errorf("written %v: the other pod passes %v", wrote, !wrote)
			}
			if got := l.cache.corrections.Load(); (got == 1) == wrote {
				t.Errorf("%d corrections", got)
			}
		})
	}
}

// TestListWhileBinding: a list that the API server made before it wrote a binding does not show it. The cards stay
// reserved anyway: while the binding is being written, when it is written, and when the answer was lost.
func TestListWhileBinding(t *testing.T) {
	for name, after := range map[string]error{
		"written":     nil,
		"answer lost": apierrors.NewTimeoutError("the answer was lost", 1),
	} {
		t.Run(name, func(t *testing.T) {
			p, q := five("p"), five("q")
			l := leading(t, p, q)
			l.list(fleet.Node("n1", 1, fleet.Amounts{"shares": "20", "memory": "8G"}))
			old := l.shown()
			l.after = after
			l.during = func() {
				l.cache.ListPods(old)
				if l.passes(q) {
					t.Error("the card of a pod that is being bound is free")
				}
				if err := l.tryBind(q); err == "" {
					t.Error("it is given to another pod")
				}
			}
			if err := l.tryBind(p); (err == "") != (after == nil) {
				t.Fatal(err)
			}
			l.cache.ListPods(old)
			if l.after = nil; l.tryBind(q) == "" {
				t.Error("the card of a pod that was bound is given to another one")
			}
			if len(l.bound) != 1 {
				t.Errorf("%d pods are bound to a card that has room for one", len(l.bound))
			}
		})
	}
}

// TestTermEndsWhileBinding: the term does not end, and no other replica begins, before the API server has answered
// the last binding. The next leader would not see it in its lists and would give the card away.
func TestTermEndsWhileBinding(t *testing.T) {
	p, q := five("p"), five("q")
	l := leading(t, p, q)
	node := fleet.Node("n1", 1, fleet.Amounts{"shares": "20", "memory": "8G"})
	l.list(node)
	l.during = func() {
		l.end()
		time.Sleep(100 * time.Millisecond) // what was sent is written, even if the client has gone
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		l.tryBind(p)
	}()
	<-l.over
	l.elect(t, l.rules)
	l.list(node)
	if err := l.tryBind(q); err == "" {
		t.Error("the next replica gives the card to another pod")
	}
	<-answered
	if len(l.bound) != 1 || l.bound[0].Name != "p" {
		t.Errorf("%d pods are bound to a card that has room for one", len(l.bound))
	}
}

// TestOwnWord: later edits of annotations free nothing; pods that are gone do.
func TestOwnWord(t *testing.T) {
	p, q := five("p"), five("q")
	l := leading(t, p, q)
	l.list(fleet.Node("n1", 1, fleet.Amounts{"shares": "20", "memory": "8G"}))
	if err := l.tryBind(p); err != "" {
		t.Fatal(err)
	}
	if err := l.tryBind(p); err == "" {
		t.Error("a pod is bound twice")
	}
	changed := l.pods["p"].DeepCopy()
	changed.Annotations["gas-container-cards"] = "card7"
	l.cache.SetPod(l.cache.Trim(changed))
	if l.passes(q) {
		t.Error("a changed annotation freed a card")
	}
	if n := l.cache.disputed(); n != 1 {
		t.Errorf("%d pods are disputed", n)
	}
	l.cache.SetPod(l.cache.Trim(l.pods["p"]))
	if n := l.cache.disputed(); n != 0 {
		t.Errorf("%d pods are disputed when all is as it was", n)
	}
	l.cache.ListPods(nil)
	if !l.passes(q) {
		t.Error("a pod that is in no list any more holds its card")
	}
	if got := l.cache.corrections.Load(); got != 1 {
		t.Errorf("%d corrections", got)
	}
}

func TestPrioritize(t *testing.T) {
	p := five("p")
	l := leading(t, p, fleet.Pod("x", "n1", "card0", fleet.Amounts{"shares": "1", "memory": "8G"}))
	preferred := fleet.Node("n2", 2, fleet.Amounts{"shares": "20", "memory": "16G"})
	preferred.Labels["telemetry.aware.scheduling.p/gas-prefer-gpu"] = "card1"
	l.list(twoCards(), preferred, fleet.Node("n3", 2, fleet.Amounts{"shares": "20", "memory": "16G"}))
	body := map[string]any{"Pod": p, "NodeNames": []string{"n1", "n2", "n3", "ghost"}}
	if _, got := l.post("prioritize",
		body); got !=
		`[{"Host":"n1","Score":4},{"Host":"n2","Score":3},{"Host":"n3","Score":0},{"Host":"ghost","Score":0}]` {
		t.Error(got)
	}
}

// TestUnresolvable: the answer separates nodes on which evictions could make room from the others.
func TestUnresolvable(t *testing.T) {
	p := five("p")
	l := leading(t, p, fleet.Pod("x", "n1", "card0", fleet.Amounts{"shares": "1", "memory": "8G"}))
	l.list(fleet.Node("n1", 1, fleet.Amounts{"shares": "20", "memory": "8G"}),
		fleet.Node("n2", 2, fleet.Amounts{"shares": "20", "memory": "9G"}))
	_, body := l.post("filter", map[string]any{"Pod": p, "NodeNames": []string{"n1", "n2"}})
	var got struct {
		FailedNodes, FailedAndUnresolvableNodes map[string]string
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.FailedNodes) != 2 || !slices.Equal(slices.Collect(maps.Keys(got.FailedAndUnresolvableNodes)),
		[]string{"n2"}) {
		t.Errorf("%+v", got)
	}
}

func TestExplain(t *testing.T) {
	p := five("p")
	l := leading(t, p, fleet.Pod("x", "n1", "card0", fleet.Amounts{"shares": "1", "memory": "5G"}),
		fleet.Pod("y", "n1", "", fleet.Amounts{"shares": "1", "memory": "5G"}))
	l.list(twoCards())
	ask := func(query string) (int, string) {
		w := httptest.NewRecorder()
		l.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/explain"+query,
			http.NoBody))
		return w.Code, w.Body.String()
	}
	status, body := ask("?pod=default/p")
	var got Explanation
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	n := got.Nodes[0]
	if n.Fits || len(n.Cards) != 2 || n.Cards[0].Pods[0].Pod != "default/x" || n.Cards[0].Pods[0].Presumed ||
		n.Unplaced[0] != "default/y" || n.Cards[1].Pods[0].Pod != "default/y" || !n.Cards[1].Pods[0].Presumed {
		t.Errorf("%s", body)
	}
	if r := n.Cards[0].Resources[0]; n.Cards[0].Verdict != "too little memory" || r.Free != 3e9 || r.Need != 5e9 {
		t.Errorf("card0: %+v", n.Cards[0])
	}
	for query, want := range map[string]int{
		"": http.StatusBadRequest, "?pod=p": http.StatusBadRequest,
		"?pod=default/z": http.StatusNotFound,
	} {
		if status, _ := ask(query); status != want {
			t.Errorf("%q: status %d, want %d", query, status, want)
		}
	}
}

// TestWaiting: pods wait if the scheduler has asked about them recently and they are not bound. The reasons are given
// without a request to the API server.
func TestWaiting(t *testing.T) {
	p, big := five("p"), fleet.Pod("big", "", "", fleet.Amounts{"shares": "1", "memory": "50G"})
	p.UID, big.UID = "u1", "u2"
	l := leading(t, p, big)
	if _, _, ok := l.Waiting(9); ok {
		t.Error("without a cache somebody waits")
	}
	l.list(twoCards())
	if pods, total, ok := l.Waiting(9); !ok || total != 0 || len(pods) != 0 {
		t.Errorf("%v %d %t", pods, total, ok)
	}
	l.passes(p)
	l.passes(big)
	l.Extender.api.Pod = nil // no request is made
	pods, total, _ := l.Waiting(1)
	if total != 2 || len(pods) != 1 || pods[0].Pod != "default/big" || pods[0].Verdicts[fit.TooMuch.String()] != 1 ||
		pods[0].Nodes != nil {
		t.Errorf("%d: %+v", total, pods)
	}
	w, ok := l.Explain("default/p", 9)
	if !ok || len(w.Nodes) != 1 || !w.Nodes[0].Fits {
		t.Errorf("%+v", w)
	}
	if _, ok := l.Explain("default/none", 9); ok {
		t.Error("a pod that nobody asked about is explained")
	}
	l.Extender.api.Pod = l.get
	if err := l.tryBind(p); err != "" {
		t.Fatal(err)
	}
	if pods, total, _ := l.Waiting(9); total != 1 || pods[0].Pod != "default/big" {
		t.Errorf("after a binding: %d %+v", total, pods)
	}
	l.seenMu.Lock()
	old := l.seen[fit.NewUID("u2")]
	old.at = time.Now().Add(-recent)
	l.seen[fit.NewUID("u2")] = old
	l.seenMu.Unlock()
	if _, total, _ := l.Waiting(9); total != 0 {
		t.Error("a pod waits that the scheduler does not ask about any more")
	}
}

func TestMetrics(t *testing.T) {
	l := leading(t, fleet.Pod("x", "n1", "card0", fleet.Amounts{"shares": "1", "memory": "5G"}))
	l.list(twoCards())
	l.passes(five("p"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(l.Metrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, strings.TrimPrefix(f.GetName(), "acceld_extender_"))
	}
	want := []string{
		"broken_nodes", "cache_age_seconds", "capacity", "card_capacity", "card_used", "corrections_total",
		"disputed_pods", "largest_free", "nodes", "ready", "request_seconds", "used",
	}
	if !slices.Equal(names, want) {
		t.Errorf("metrics %v, want %v", names, want)
	}
}

// TestCertificates replaces the files under a running server.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	cert, key, err := fleet.Certificate(dir, "server")
	if err != nil {
		t.Fatal(err)
	}
	files := Files{Cert: cert, Key: key, ClientCA: cert}
	config, err := files.TLS(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, http.NotFoundHandler(), config, slog.New(slog.DiscardHandler)) }()
	serial := func(client ...tls.Certificate) (string, error) {
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: client}}).DialContext(
			t.Context(), "tcp", l.Addr().String())
		if err != nil {
			return "", err
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
			return "", err
		}
		_, err = c.Read(make([]byte, 1)) // a refused certificate is reported here
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), err
	}
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	first, err := serial(own)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := serial(); err == nil {
		t.Error("a client without a certificate is answered")
	}
	if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := serial(own); err != nil || again != first {
		t.Errorf("with a broken key: %v", err)
	}
	if _, _, err := fleet.Certificate(dir, "server"); err != nil {
		t.Fatal(err)
	}
	if own, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	if second, err := serial(own); err != nil || second == first {
		t.Errorf("with new files: %v, the same certificate %v", err, second == first)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := (Files{Cert: cert, Key: dir + "/none"}).TLS(slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing key is no error")
	}
}
