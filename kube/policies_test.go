package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
)

// shelf is an API of one collection: it answers with its items, and the test sends the events of its watches.
type shelf struct {
	mu      sync.Mutex
	items   []string // JSON
	version int
	err     error // answer of the next requests
	deaf    error // answer of the next watches
	asked   []string
	watches []*io.PipeWriter
	limit   int // items in a page; 0 for all
}

func (s *shelf) Do(_ context.Context, method, path string, query url.Values, _, into any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, method+" "+path)
	if s.err != nil {
		return s.err
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	to, next := len(s.items), ""
	if s.limit > 0 && from+s.limit < to {
		to = from + s.limit
		next = strconv.Itoa(to)
	}
	text := fmt.Sprintf(`{"metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`, s.version, next,
		strings.Join(s.items[from:to], ","))
	return json.Unmarshal([]byte(text), into)
}

func (s *shelf) Watch(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, "WATCH "+path+" from "+query.Get("resourceVersion"))
	if s.err != nil && !apierrors.IsNotFound(s.err) { // a NotFound concerns the policies, not their CRD
		return nil, s.err
	}
	if s.deaf != nil {
		return nil, s.deaf
	}
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	s.watches = append(s.watches, w)
	return r, nil
}

// event sends an event to the newest watch; an empty kind ends the watch.
func (s *shelf) event(t *testing.T, kind, object string) {
	t.Helper()
	s.mu.Lock()
	w := s.watches[len(s.watches)-1]
	s.mu.Unlock()
	if kind == "" {
		_ = w.Close()
	} else if _, err := fmt.Fprintf(w, `{"type":%q,"object":%s}`, kind, object); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// requests returns the requests since the last call.
func (s *shelf) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.asked
	s.asked = nil
	return all
}

func (s *shelf) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func aPolicy(name string, generation, version int, more string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%q,"uid":%q,"generation":%d,"resourceVersion":"%d","creationTimestamp":"2026-03-04T12:00:00Z"%s},"spec":{"priority":%d}}`,
		name, "uid-"+name, generation, version, more, generation)
}

// follow runs the task and passes what it reports to check.
func follow(t *testing.T, s *shelf, kept bool, check func(reported func() [][]accel.Policy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all [][]accel.Policy
		p := &Policies{
			API: s, Outlines: s, Log: slog.New(slog.DiscardHandler), Kept: kept, ready: make(chan struct{}),
			Tell: func(x []accel.Policy) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, x)
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		check(func() [][]accel.Policy {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A changed status is no news and costs no request. A new generation is news, and so is a requested deletion.
func TestPoliciesAreFollowed(t *testing.T) {
	s := &shelf{version: 7, items: []string{aPolicy("a", 1, 5, "")}}
	follow(t, s, false, func(reported func() [][]accel.Policy) {
		want := accel.Policy{
			Name: "a", Created: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC),
			Spec: accel.PolicySpec{Priority: 1},
		}
		if diff := cmp.Diff([][]accel.Policy{{want}}, reported()); diff != "" {
			t.Fatal(diff)
		}
		s.requests()
		for i := range 5 {
			s.event(t, "MODIFIED", aPolicy("a", 1, 8+i, ""))
			s.event(t, "BOOKMARK", `{"metadata":{"resourceVersion":"20"}}`)
		}
		time.Sleep(time.Hour)
		if got := s.requests(); len(got) != 0 || len(reported()) != 1 {
			t.Errorf("%v, told %d times", got, len(reported()))
		}
		s.event(t, "", "") // the API server ends the watch: the next one resumes
		time.Sleep(time.Minute)
		if got := s.requests(); !slices.Equal(got, []string{"WATCH " + PoliciesPath + " from 20"}) {
			t.Errorf("%v", got)
		}
		s.set(func() { s.items = []string{aPolicy("a", 2, 30, "")} })
		s.event(t, "MODIFIED", aPolicy("a", 2, 30, ""))
		time.Sleep(time.Minute)
		if all := reported(); len(all) != 2 || all[1][0].Spec.Priority != 2 {
			t.Errorf("%+v", all)
		}
		s.set(func() { s.items = []string{aPolicy("a", 2, 31, `,"deletionTimestamp":"2026-03-04T13:00:00Z"`)} })
		s.event(t, "MODIFIED", s.items[0])
		time.Sleep(time.Minute)
		if all := reported(); len(all) != 3 || len(all[2]) != 0 {
			t.Errorf("%+v", all)
		}
		s.event(t, "ERROR", `{"code":410,"reason":"Expired","message":"too old"}`)
		time.Sleep(time.Minute)
		if all := reported(); len(all) != 4 {
			t.Errorf("not read again after a watch that was too old: %d", len(all))
		}
	})
}

// In a cluster without policies, they are read when their CRD arrives, even if it is not served at once.
func TestPoliciesToCome(t *testing.T) {
	lacking := apierrors.NewNotFound(schema.GroupResource{Group: "acceld.dev", Resource: "acceleratorpolicies"}, "")
	s := &shelf{err: lacking}
	follow(t, s, true, func(reported func() [][]accel.Policy) {
		time.Sleep(time.Hour)
		want := []string{"GET " + PoliciesPath, "WATCH " + policiesCRD + " from "}
		if diff := cmp.Diff(want, s.requests()); diff != "" || len(reported()) != 1 {
			t.Errorf("told %d times, asked in an hour:\n%s", len(reported()), diff)
		}
		s.event(t, "ADDED", `{"metadata":{"name":"acceleratorpolicies.acceld.dev"}}`)
		time.Sleep(10 * time.Second)
		if diff := cmp.Diff(want, s.requests()); diff != "" {
			t.Errorf("a definition that is not served yet:\n%s", diff)
		}
		s.set(func() { s.err, s.items, s.version = nil, []string{aPolicy("a", 1, 4, "")}, 4 })
		s.event(t, "MODIFIED", `{"metadata":{"name":"acceleratorpolicies.acceld.dev"}}`)
		time.Sleep(10 * time.Second)
		if all := reported(); len(all[len(all)-1]) != 1 {
			t.Errorf("told %v", all)
		}
		s.requests()
	})
}

// If the arrival of policies cannot be watched, they are requested rarely. If the API server does not answer, the
// last ones apply. If it refuses, an agent that knows none does not wait.
func TestPoliciesThatAreNotThere(t *testing.T) {
	resource := schema.GroupResource{Group: "acceld.dev", Resource: "acceleratorpolicies"}
	for _, c := range []struct {
		name     string
		err      error
		kept     bool
		reported int
		requests [2]int // within an hour, at least and at most
	}{
		{"no definition", apierrors.NewNotFound(resource, ""), true, 4, [2]int{8, 10}},
		{"away", errors.New("connection refused"), false, 0, [2]int{40, 90}},
		{"refused, known", apierrors.NewForbidden(resource, "", nil), true, 0, [2]int{40, 90}},
		{"refused, unknown", apierrors.NewForbidden(resource, "", nil), false, 40, [2]int{40, 90}},
	} {
		s := &shelf{err: c.err, deaf: apierrors.NewForbidden(resource, "", nil)}
		follow(t, s, c.kept, func(reported func() [][]accel.Policy) {
			time.Sleep(time.Hour - time.Minute)
			if n := len(s.requests()); n < c.requests[0] || n > c.requests[1] || len(reported()) < c.reported ||
				c.reported == 0 &&
					len(reported()) > 0 {
				t.Errorf("%s: %d requests, told %d times", c.name, n, len(reported()))
			}
		})
	}
}

// TestPolicyThatCannotBeRead: a policy with a field of the wrong type stays as it was, also as it was kept from
// earlier. The others are followed.
func TestPolicyThatCannotBeRead(t *testing.T) {
	unreadable := func(name string) string {
		return strings.Replace(aPolicy(name, 9, 20, ""), `"spec":{`, `"spec":{"kinds":7,`, 1)
	}
	s := &shelf{items: []string{unreadable("a"), aPolicy("b", 2, 21, ""), unreadable("c")}}
	var reported []accel.Policy
	p := &Policies{
		API: s, Log: slog.New(slog.DiscardHandler), Kept: true,
		Last: []accel.Policy{{Name: "a", Spec: accel.PolicySpec{Priority: 3}}, {Name: "gone"}},
		Tell: func(all []accel.Policy) { reported = all },
	}
	for _, want := range []string{"a 3 b 2 ", "a 3 b 5 "} {
		generations, _, err := p.read(t.Context())
		got := ""
		for _, x := range reported {
			got += fmt.Sprint(x.Name, " ", x.Spec.Priority, " ")
		}
		if err != nil || got != want || len(generations) != 3 || generations["uid-a"] != (&Meta{Generation: 9}).asked() {
			t.Errorf("%q, want %q; %v, %v", got, want, generations, err)
		}
		s.items[1] = aPolicy("b", 5, 22, "")
	}
}

// TestPolicyThatIsNotSettled: while the status of a policy has another text than the policy pins, the version from
// before stays; a policy from which nothing is known is taken as it is.
func TestPolicyThatIsNotSettled(t *testing.T) {
	const right = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // of "x"
	pinned := func(digest string) string {
		return strings.TrimSuffix(strings.Replace(aPolicy("a", 9, 20, ""), `"spec":{`,
			`"spec":{"definitionsFrom":[{"configMap":"m","key":"k","digest":"`+digest+`"}],`, 1), "}") +
			`,"status":{"definitions":[{"name":"m/k","text":"x"}]}}`
	}
	for _, c := range []struct {
		digest string
		last   []accel.Policy
		want   int
	}{
		{right, []accel.Policy{{Name: "a", Spec: accel.PolicySpec{Priority: 3}}}, 9},
		{"sha256:0", []accel.Policy{{Name: "a", Spec: accel.PolicySpec{Priority: 3}}}, 3},
		{"sha256:0", nil, 9},
	} {
		var reported []accel.Policy
		p := &Policies{
			API: &shelf{items: []string{pinned(c.digest)}}, Log: slog.New(slog.DiscardHandler),
			Kept: true, Last: c.last,
			Tell: func(all []accel.Policy) { reported = all },
		}
		if _, _, err := p.read(t.Context()); err != nil || len(reported) != 1 || reported[0].Spec.Priority != c.want {
			t.Errorf("%s after %v: %+v, %v", c.digest, c.last, reported, err)
		}
	}
}

type item struct {
	Meta Meta `json:"metadata"`
	Spec struct {
		X int `json:"x"`
	} `json:"spec"`
}

func (x *item) Identify() Identity { return x.Meta.Identity }
func (x *item) Adopt(m *Meta)      { x.Meta = *m }
func (x *item) Same(o *item) bool  { return x.Spec == o.Spec }
func aThing(name string, version, x int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"},"spec":{"x":%d}}`, name, name, version,
		x)
}

// A reflector reads in pages, then watches. It knows its own writes before the watch does, and events without news wake
// nobody.
func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{version: 9, limit: 2, items: []string{aThing("a", 1, 1), aThing("b", 2, 1), aThing("c", 3, 1)}}
		woken := 0
		m := &Reflector[item, *item]{API: s, Path: "/items", Changed: func() { woken++ }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		all, synced := m.All()
		if got := s.requests(); len(all) != 3 || !synced || woken != 1 ||
			!slices.Equal(got, []string{"GET /items", "GET /items", "WATCH /items from 9"}) {
			t.Errorf("%v %v, woken %d times", all, got, woken)
		}
		own := &item{}
		if err := json.Unmarshal([]byte(aThing("a", 12, 2)), own); err != nil {
			t.Fatal(err)
		}
		m.Put(own)
		s.event(t, "MODIFIED", aThing("a", 11, 9)) // from before the own write
		s.event(t, "MODIFIED", aThing("a", 13, 2)) // a heartbeat
		if all, _ := m.All(); all["a"].Spec.X != 2 || all["a"].Meta.ResourceVersion != "13" || woken != 1 {
			t.Errorf("%+v, woken %d times", all["a"], woken)
		}
		s.event(t, "DELETED", aThing("b", 14, 1))
		s.event(t, "ADDED", aThing("d", 15, 1))
		if all, _ := m.All(); len(all) != 3 || all["b"] != nil || woken != 3 {
			t.Errorf("%v, woken %d times", all, woken)
		}
		s.requests()
		s.event(t, "", "")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := s.requests(); !slices.Equal(got, []string{"WATCH /items from 15"}) {
			t.Errorf("after a watch that ended: %v", got)
		}
		s.set(func() { s.items = []string{aThing("e", 20, 1)}; s.version = 21 })
		s.event(t, "ERROR", `{"code":410,"reason":"Expired"}`)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if all, _ := m.All(); len(all) != 1 || all["e"] == nil {
			t.Errorf("after one that was too old: %v", all)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestMirrorCannotRead: an object that cannot be read keeps its content and is named, and the others are followed.
func TestMirrorCannotRead(t *testing.T) {
	unreadable := func(name string, version int) string {
		return strings.Replace(aThing(name, version, 7), `"x":7`, `"x":"seven"`, 1)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{version: 9, items: []string{aThing("a", 1, 1), unreadable("b", 2), aThing("c", 3, 1)}}
		woken := 0
		m := &Reflector[item, *item]{API: s, Path: "/items", Changed: func() { woken++ }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		check := func(when, want, problem string) {
			t.Helper()
			synctest.Wait()
			all, _ := m.All()
			got := ""
			for _, key := range slices.Sorted(maps.Keys(all)) {
				got += fmt.Sprint(key, all[key].Meta.ResourceVersion, "=", all[key].Spec.X, " ")
			}
			if err := fmt.Sprint(m.Err()); got != want || !strings.Contains(err, problem) {
				t.Errorf("%s: %s, want %s; %s, want %s", when, got, want, err, problem)
			}
		}
		check("listed", "a1=1 c3=1 ", `cannot read "b" of /items`)
		s.event(t, "MODIFIED", unreadable("a", 11))
		s.event(t, "ADDED", aThing("d", 12, 1))
		check("one event cannot be read", "a11=1 c3=1 d12=1 ", `cannot read "a" of /items`)
		s.requests()
		s.event(t, "", "")
		time.Sleep(5 * time.Second)
		if got := s.requests(); !slices.Equal(got, []string{"WATCH /items from 12"}) {
			t.Errorf("%v", got)
		}
		before := woken
		s.event(t, "MODIFIED", aThing("a", 13, 1))
		s.event(t, "DELETED", unreadable("b", 14))
		if check("all can be read", "a13=1 c3=1 d12=1 ", "<nil>"); woken != before+2 {
			t.Errorf("woken %d times", woken-before)
		}
		s.set(func() {
			s.items, s.version = []string{unreadable("a", 20), unreadable("c", 21), aThing("d", 22, 2)}, 23
		})
		s.event(t, "ERROR", `{"code":410,"reason":"Expired"}`)
		time.Sleep(10 * time.Second)
		check("listed again", "a20=1 c21=1 d22=2 ", `cannot read "a" of /items`)
		s.event(t, "DELETED", unreadable("a", 24))
		s.event(t, "DELETED", aThing("c", 25, 1))
		check("deleted", "d22=2 ", "<nil>")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestMirrorMayNotRead: objects that have been read stay when they may not be read any more. Objects that were never
// read count as none, and the reflector says why. If the API server has no such resource, there are none.
func TestMirrorMayNotRead(t *testing.T) {
	resource := schema.GroupResource{Resource: "items"}
	refused, unknown := apierrors.NewForbidden(resource, "", nil), apierrors.NewNotFound(resource, "")
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{version: 9, err: refused}
		m := &Reflector[item, *item]{API: s, Path: "/items", Changed: func() {}, Optional: true}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		check := func(when string, want int, problem bool) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if all, synced := m.All(); len(all) != want || !synced || (m.Err() != nil) != problem {
				t.Errorf("%s: %v, read %v, error %v", when, all, synced, m.Err())
			}
		}
		check("never read", 0, true)
		s.set(func() { s.err, s.items = nil, []string{aThing("a", 1, 1), aThing("b", 2, 1), aThing("c", 3, 1)} })
		check("read", 3, false)
		s.set(func() { s.err = refused })
		s.event(t, "", "")
		check("refused", 3, true)
		s.set(func() { s.err = nil })
		check("allowed", 3, false)
		s.set(func() { s.err, s.deaf = unknown, unknown })
		s.event(t, "", "")
		check("unknown", 0, false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The node's upgrade report is an annotation, and so is what it serves. They are written only if the node is still the
// one that was read. An unknown one leaves the annotation, and the annotations of a removed kind are deleted.
func TestWordOfTheNode(t *testing.T) {
	node := freshNode()
	node.Annotations = map[string]string{
		accel.ReportAnnotation + "old-kind": "waiting 1", accel.ServedAnnotation + "old-kind": "one",
		accel.ServedAnnotation + "qemu-edu": "one",
		accel.GrantAnnotation + "qemu-edu":  "2.0.0", accel.ReportAnnotation + "qemu-edu": "upgrading 2.0.0",
	}
	word := func(w accel.Answer[accel.UpgradeReport]) change {
		return func(m *accel.Machine) {
			h := m.Have["qemu-edu"]
			h.UpgradeReport = w
			if w.Known {
				h.ServedDigest = accel.Known("two")
			}
			m.Have["qemu-edu"] = h
		}
	}
	inCluster(t, node, func(c *cluster) {
		c.k.Publish(readyMachine(word(accel.Answer[accel.UpgradeReport]{})))
		c.after(5 * time.Second)
		want := map[string]string{
			accel.GrantAnnotation + "qemu-edu":  "2.0.0",
			accel.ReportAnnotation + "qemu-edu": "upgrading 2.0.0", OriginAnnotation: OriginPod,
			accel.ServedAnnotation + "qemu-edu": "one",
		}
		if diff := cmp.Diff(want, c.node().Annotations); diff != "" {
			t.Error(diff)
		}
		text := "failed 2.0.0 RolledBack"
		c.patches()
		c.k.Publish(readyMachine(word(accel.Known(accel.ParseUpgradeReport(text)))))
		c.after(5 * time.Second)
		if got := c.k.State().NodeAnnotations; got[accel.ReportAnnotation+"qemu-edu"] != text ||
			got[accel.ServedAnnotation+"qemu-edu"] != "two" || len(c.patches()) != 1 {
			t.Errorf("the node says %q", got)
		}
		c.k.Publish(readyMachine(word(accel.Known(accel.UpgradeReport{}))))
		c.after(5 * time.Second)
		if got, there := c.node().Annotations[accel.ReportAnnotation+"qemu-edu"]; there {
			t.Errorf("the node says %q", got)
		}
	}, func(c *Config) { c.Origin = OriginPod })
	r := render(readyMachine(word(accel.Answer[accel.UpgradeReport]{})))
	if p := metadataPatch(node, r, everything, false); !strings.Contains(string(p), `"resourceVersion"`) {
		t.Errorf("%s", p)
	}
}
