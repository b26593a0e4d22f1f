package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// podsOf makes containers from words such as "*pod/container=card,card". The cards follow "=". Marks come first: "*"
// for a pod that the kubelet has taken, "^" for an init container that ends, "2" for one that requests two devices.
func podsOf(words string) []Bound {
	var all []Bound
	for _, w := range strings.Fields(words) {
		name, cards, chosen := strings.Cut(w, "=")
		b := Bound{Count: 1, Taken: strings.Contains(name, "*"), Passing: strings.Contains(name, "^")}
		if strings.Contains(name, "2") {
			b.Count = 2
		}
		if chosen {
			b.Cards = strings.Split(cards, ",")
		}
		b.Pod, b.Container, _ = strings.Cut(strings.Trim(name, "*^2"), "/")
		b.UID = "uid-" + b.Pod
		all = append(all, b)
	}
	return all
}

// choosing returns a chooser for these pods, with a kubelet that reports these holders: "id=pod/container".
func choosing(pods, held string) *chooser {
	return &chooser{
		resource: testResource, log: slog.New(slog.DiscardHandler), given: map[containerKey]bool{},
		bound: func(string) ([]Bound, <-chan struct{}, bool) { return podsOf(pods), nil, true },
		holders: func(context.Context) (heldRefs, error) {
			h := heldRefs{now: map[string]PodRef{}}
			for _, w := range strings.Fields(held) {
				id, who, _ := strings.Cut(w, "=")
				pod, container, _ := strings.Cut(who, "/")
				h.now[id] = PodRef{Pod: pod, Container: container}
			}
			return h, nil
		},
	}
}

func TestChosen(t *testing.T) {
	devices := on("a@0 b@0 c@1 d@1!")
	for _, c := range []struct {
		name       string
		pods, held string
		free, must string
		size       int
		want       string // the preferred devices; empty: no preference
		refuses    string // devices that are refused, empty: none
		takes      string // devices that are not
	}{
		{name: "one pod", pods: "p/m=b", free: "a b c", size: 1, want: "b", takes: "b", refuses: "a"},
		{name: "nobody chose", pods: "p/m", free: "a b c", size: 1, takes: "a"},
		{name: "the kubelet has taken it", pods: "*p/m=b", free: "a b c", size: 1, takes: "a"},
		{name: "it has its device", pods: "p/m=b", held: "b=p/m", free: "a c", size: 1, takes: "a"},
		{name: "not free", pods: "p/m=b", free: "a c", size: 1, refuses: "a", takes: "b"},
		{name: "ill", pods: "p/m=d", free: "a d", size: 1, takes: "d", refuses: "a"},
		{name: "of another resource", pods: "p/m=x", free: "a b", size: 1, takes: "a"},
		{name: "two devices", pods: "2p/m=c,a", free: "a b c", size: 2, want: "c a", takes: "a c", refuses: "a b"},
		{name: "another number", pods: "2p/m=c,a", free: "a b c", size: 1, takes: "b"},
		{name: "what must be included is chosen", pods: "2p/m=c,a", free: "a b c", must: "a", size: 2, want: "c a"},
		{name: "what must be included is not", pods: "2p/m=c,a", free: "a b c", must: "b", size: 2},
		{
			name: "two pods of different sizes", pods: "2p/m=c,a q/m=b", free: "a b c", size: 1, want: "b", takes: "b",
			refuses: "a",
		},
		{
			name: "two pods: the one that was chosen for first", pods: "p/m=b q/m=a", free: "a b c", size: 1, want: "b",
			takes: "a", refuses: "c",
		},
		{
			name: "two pods, one has its device", pods: "p/m=b q/m=a", held: "b=p/m", free: "a c", size: 1, want: "a",
			takes: "a", refuses: "c",
		},
		{name: "a pod without a choice beside it", pods: "q/m p/m=b", free: "a b c", size: 1, want: "b", takes: "c"},
		{
			name: "the second container of a pod", pods: "p/m=b p/n=c", held: "b=p/m", free: "a c", size: 1, want: "c",
			takes: "c", refuses: "a",
		},
		{name: "the first container comes first", pods: "p/m=b p/n=c", free: "a b c", size: 1, want: "b", refuses: "c"},
		{
			name: "an init container that has ended", pods: "^p/i=b p/m=b p/n=c", held: "b=p/m", free: "a c", size: 1,
			want: "c",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := choosing(c.pods, c.held)
			if got := strings.Join(x.prefer(t.Context(), devices, strings.Fields(c.free), strings.Fields(c.must),
				c.size), " "); got != c.want {
				t.Errorf("prefers %q, want %q", got, c.want)
			}
			for given, refused := range map[string]bool{c.refuses: true, c.takes: false} {
				ids := strings.Fields(given)
				if err := x.check(t.Context(), devices, ids, len(ids)); given != "" && (err != nil) != refused {
					t.Errorf("%s: %v", given, err)
				}
			}
		})
	}
}

// TestChosenPassing: the kubelet never reports the devices of an init container that ends; they are remembered.
func TestChosenPassing(t *testing.T) {
	devices := on("a@0 b@0 c@1")
	x := choosing("^p/i=b p/m=c", "")
	for _, want := range []string{"b", "c"} {
		if got := x.prefer(t.Context(), devices, []string{"a", "b", "c"}, nil, 1); len(got) != 1 || got[0] != want {
			t.Fatalf("prefers %v, want %s", got, want)
		}
		if err := x.check(t.Context(), devices, []string{want}, 1); err != nil {
			t.Fatal(err)
		}
	}
	x.bound = func(string) ([]Bound, <-chan struct{}, bool) { return podsOf("q/m"), nil, true }
	x.next(t.Context(), 1)
	if len(x.given) != 0 {
		t.Errorf("a pod that has gone is remembered: %v", x.given)
	}
}

// TestChosenLate: the API server's watch may report a pod here later than at the kubelet.
func TestChosenLate(t *testing.T) {
	devices := on("a@0 b@0")
	for _, c := range []struct {
		name  string
		comes time.Duration
		known bool
		want  string
		took  time.Duration
	}{
		{"soon", 100 * time.Millisecond, true, "b", 100 * time.Millisecond},
		{"never", time.Hour, true, "", watchLag},
		{"nobody can tell yet", 100 * time.Millisecond, false, "b", 100 * time.Millisecond},
		{"nobody can tell", time.Hour, false, "", watchLag},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, changed := time.Now(), make(chan struct{})
				var came atomic.Bool
				x := choosing("", "")
				x.bound = func(string) ([]Bound, <-chan struct{}, bool) {
					if came.Load() {
						return podsOf("p/m=b"), nil, true
					}
					return nil, changed, c.known
				}
				timer := time.AfterFunc(c.comes, func() { came.Store(true); close(changed) })
				got := x.prefer(t.Context(), devices, []string{"a", "b"}, nil, 1)
				timer.Stop()
				if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" || time.Since(began) != c.took {
					t.Errorf("after %s: %s", time.Since(began), diff)
				}
			})
		})
	}
}

// TestChosenWithoutAnswer: a kubelet that does not say who holds devices is asked again for a while; then its last
// answer is used.
func TestChosenWithoutAnswer(t *testing.T) {
	devices := on("a@0 b@0")
	for _, c := range []struct {
		name     string
		refusals int // before the answer that p has b
		want     string
		took     time.Duration
	}{{"at once", 0, "a", 0}, {"too many questions at first", 2, "a", 2 * askAgain}, {"never", 1000, "b", askHolder}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := choosing("p/m=b q/m=a", "b=p/m")
				answer := x.holders
				x.holders = func(ctx context.Context) (heldRefs, error) {
					if c.refusals--; c.refusals >= 0 {
						return heldRefs{}, errors.New("too many questions")
					}
					return answer(ctx)
				}
				began := time.Now()
				got := x.prefer(t.Context(), devices, []string{"a", "b"}, nil, 1)
				if len(got) != 1 || got[0] != c.want || time.Since(began) != c.took {
					t.Errorf("prefers %v after %s", got, time.Since(began))
				}
			})
		})
	}
}

// TestChosenReplicas: any free replica of a card will do.
func TestChosenReplicas(t *testing.T) {
	accs := []accel.Accelerator{thing("0000:01:00.0", 0, accel.Healthy), thing("0000:02:00.0", 0, accel.Healthy)}
	devices := shared(2, accs).load().devices
	x := choosing("p/m=0000-02-00.0", "")
	if got := x.prefer(t.Context(), devices, []string{"0000:01:00.0", "0000:01:00.0::1", "0000:02:00.0::1"}, nil,
		1); len(got) != 1 || got[0] != "0000:02:00.0::1" {
		t.Errorf("prefers %v", got)
	}
	if err := x.check(t.Context(), devices, []string{"0000:02:00.0"}, 1); err != nil {
		t.Error(err)
	}
	err := x.check(t.Context(), devices, []string{"0000:01:00.0"}, 1)
	if err == nil || !strings.Contains(err.Error(), `the scheduler chose 0000-02-00.0 for container "m" of pod /p`) {
		t.Error(err)
	}
}

// TestChosenNobody: if the pods of the node are not followed, no call waits.
func TestChosenNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		x := choosing("", "")
		x.bound = func(string) ([]Bound, <-chan struct{}, bool) { return nil, nil, false }
		devices := on("a@0 b@0")
		if got := x.prefer(t.Context(), devices, []string{"a", "b"}, nil, 1); got != nil ||
			x.check(t.Context(), devices, []string{"a"}, 1) != nil || time.Since(began) != 0 {
			t.Errorf("prefers %v after %s", got, time.Since(began))
		}
	})
}
