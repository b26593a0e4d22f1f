package holders

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/exporter"
)

// holds is a container that has a device through the device plugin.
func holds(id, pod string) said {
	return said{Hold: Hold{id, exporter.Holder{
		Namespace: "ns", Pod: pod, Container: "main",
		Resource: "example.com/thing",
	}}, slot: "example.com/thing\n" + id}
}

// claims is a pod, or one of its containers, that has a device through a claim.
func claims(id, pod, container string) said {
	return said{
		Hold: Hold{id, exporter.Holder{
			Namespace: "ns", Pod: pod, Container: container, Resource: "thing.example.com",
			Claim: "c",
		}},
		slot: "claim\n" + id + "\nns\nc\n" + pod, vague: container == "",
	}
}

// TestBook: what is reported at which second, and who is shown to hold what after that.
func TestBook(t *testing.T) {
	type event struct {
		at    time.Duration
		said  []said // nil: no report, only a look
		uids  map[string]string
		again bool // the first answer after a kubelet's start
		want  []string
	}
	const s = time.Second
	known := map[string]string{"p": "u1", "q": "u2"}
	nobody := []said{}
	for name, events := range map[string][]event{
		"a pod's life": {
			{at: 0, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 15 * s, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 30 * s, said: nobody, want: []string{"a ns/p/main u1"}},
			{at: 32 * s, said: nobody},
		},
		"missing once is not the end": {
			{at: 0, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 15 * s, said: nobody, want: []string{"a ns/p/main u1"}},
			{at: 16 * s, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 40 * s, want: []string{"a ns/p/main u1"}},
		},
		"the device is another's at once": {
			{at: 0, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 1 * s, said: []said{holds("a", "q")}, uids: known, want: []string{"a ns/q/main u2"}},
		},
		"the same name again": {
			{at: 0, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{
				at: 1 * s, said: []said{holds("a", "p")}, uids: map[string]string{"p": "u9"},
				want: []string{"a ns/p/main u9"},
			},
		},
		"a UID that comes late": {
			{at: 0, said: []said{holds("a", "p")}},
			{at: 1 * s, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 2 * s, said: []said{holds("a", "p")}, want: []string{"a ns/p/main u1"}},
		},
		"a UID that never comes": {
			{at: 0, said: []said{holds("a", "p")}},
			{at: 2 * s, said: []said{holds("a", "p")}},
			{at: 3 * s, want: []string{"a ns/p/main "}},
		},
		"refused before it was shown": {
			{at: 0, said: []said{holds("a", "p")}},
			{at: 1 * s, said: nobody},
			{at: 9 * s},
		},
		"a kubelet that comes back without its pods": {
			{at: 0, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 10 * s, said: nobody, again: true, want: []string{"a ns/p/main u1"}},
			{at: 25 * s, said: nobody, want: []string{"a ns/p/main u1"}},
			{at: 26 * s, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 60 * s, want: []string{"a ns/p/main u1"}},
		},
		"a pod that ended while the kubelet was away": {
			{at: 0, said: []said{holds("a", "p")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 10 * s, said: nobody, again: true, want: []string{"a ns/p/main u1"}},
			{at: 39 * s, said: nobody, want: []string{"a ns/p/main u1"}},
			{at: 40 * s, said: nobody},
		},
		"two containers of one device": {
			{
				at: 0, said: []said{holds("a", "p"), {Hold: holds("a", "q").Hold, slot: "example.com/thing\na::1"}},
				uids: known, want: []string{"a ns/p/main u1", "a ns/q/main u2"},
			},
		},
		"two parts of one device in one container": {
			{
				at: 0, said: []said{holds("a", "p"), {Hold: holds("a", "p").Hold, slot: "example.com/thing\na::1"}},
				uids: known, want: []string{"a ns/p/main u1"},
			},
		},
		"a claim whose container is named a moment later": {
			{at: 0, said: []said{claims("a", "p", "")}, uids: known},
			{at: 1 * s, said: []said{claims("a", "p", "main")}, uids: known, want: []string{"a ns/p/main u1"}},
		},
		"a kubelet that does not tell of claims": {
			{at: 0, said: []said{claims("a", "p", "")}, uids: known},
			{at: 3 * s, said: []said{claims("a", "p", "")}, uids: known, want: []string{"a ns/p/ u1"}},
		},
		"a claim over a restart of the kubelet": {
			{at: 0, said: []said{claims("a", "p", "main")}, uids: known, want: []string{"a ns/p/main u1"}},
			{
				at: 10 * s, said: []said{claims("a", "p", "")}, uids: known, again: true,
				want: []string{"a ns/p/main u1"},
			},
			{at: 20 * s, said: []said{claims("a", "p", "main")}, uids: known, want: []string{"a ns/p/main u1"}},
			{at: 60 * s, want: []string{"a ns/p/main u1"}},
		},
		"a claim that is taken back after a restart of the kubelet": {
			{at: 0, said: []said{claims("a", "p", "main")}, uids: known, want: []string{"a ns/p/main u1"}},
			{
				at: 10 * s, said: []said{claims("a", "p", "main"), claims("b", "q", "")}, uids: known, again: true,
				want: []string{"a ns/p/main u1"},
			},
			{
				at: 14 * s, said: []said{claims("b", "q", "")}, uids: known, want: []string{"b ns/q/ u2"},
			},
			{at: 15 * s, said: nobody},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(usual())
			begin := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
			for _, e := range events {
				now := begin.Add(e.at)
				if e.again {
					b.returned = now
				}
				if e.said != nil {
					b.take(e.said, func(_, pod string) string { return e.uids[pod] }, now)
				}
				by, _ := b.holders(now)
				if diff := cmp.Diff(e.want, lines(by)); diff != "" {
					t.Errorf("after %v (-want +got):\n%s", e.at, diff)
				}
			}
		})
	}
}

// TestBookDoesNotGrow: a day of pods leaves nothing behind.
func TestBookDoesNotGrow(t *testing.T) {
	b := newBook(usual())
	now := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	for i := range 10_000 {
		pod := time.Duration(i).String()
		b.take([]said{holds("a", pod), holds("b", pod)}, func(string, string) string { return "u" }, now)
		if by, _ := b.holders(now); len(by["a"]) != 1 || len(b.notes) != 2 {
			t.Fatalf("after %d pods: %v, %d notes", i, by, len(b.notes))
		}
		now = now.Add(8 * time.Second)
	}
}

// lines are the holders as text, in order.
func lines(by map[string][]exporter.Holder) []string {
	var out []string
	for _, id := range []string{"a", "b", "c", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
		for _, h := range by[id] {
			out = append(out, id+" "+h.Namespace+"/"+h.Pod+"/"+h.Container+" "+h.UID)
		}
	}
	return out
}
