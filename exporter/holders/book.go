package holders

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/exporter"
)

// Hold says that a container has an accelerator.
type Hold struct {
	Accelerator string
	exporter.Holder
}

// said is a hold as the kubelet or a claim's record reports it, without the pod's UID.
type said struct {
	Hold
	// slot identifies what only one hold can have at a time: if another hold has it, this one has certainly ended.
	slot string
	// vague is true if the kubelet has not reported the container yet.
	vague bool
}

// note is what is known about one hold over time.
type note struct {
	uid     string
	since   time.Time // when it was first reported
	missing time.Time // since when it is no longer reported; zero while it is
	shown   bool
}

// book records who holds what. It is plain data: what was reported and when goes in, who holds what comes out. A
// series must not change its identity or vanish and come back. So an incomplete hold waits a little before it is
// shown, and a hold that is no longer reported ends only when it has been missing for a while, another hold has its
// slot, or its claim is no longer prepared: the kubelet takes back a claim only after its containers have ended.
type book struct {
	timing timing
	notes  map[said]*note
	// returned is when a kubelet answered for the first time since its start: it does not know all pods at once.
	returned time.Time
}

func newBook(t timing) *book { return &book{timing: t, notes: map[said]*note{}} }

// take records an answer. uid returns the UID of a pod, or empty if it is not known.
func (b *book) take(all []said, uid func(namespace, pod string) string, now time.Time) {
	present, slots := map[said]bool{}, map[string]bool{}
	for _, s := range all {
		known := s.UID
		s.UID = ""
		present[s] = true
		slots[s.slot] = slots[s.slot] || !s.vague
		n := b.notes[s]
		if n == nil {
			n = &note{since: now}
			b.notes[s] = n
		}
		n.missing = time.Time{}
		// The record has the pods of the time when the claim was prepared: one of that name may have another UID now.
		n.uid = cmp.Or(uid(s.Namespace, s.Pod), known, n.uid)
		n.shown = n.shown || n.uid != "" && !s.vague
	}
	for s, n := range b.notes {
		named, prepared := slots[s.slot]
		switch {
		case present[s]:
		case named || !n.shown || s.Claim != "" && !prepared:
			delete(b.notes, s)
		case n.missing.IsZero():
			n.missing = now
		}
	}
}

// holders returns who holds what, by accelerator and sorted, and when that may change without a new report; zero for
// never.
func (b *book) holders(now time.Time) (by map[string][]exporter.Holder, due time.Time) {
	by = map[string][]exporter.Holder{}
	b.forget(now)
	named := map[string]bool{}
	for s := range b.notes {
		named[s.slot] = named[s.slot] || !s.vague
	}
	soonest := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	for s, n := range b.notes {
		if !n.missing.IsZero() {
			soonest(n.missing.Add(b.patience(n.missing)))
		}
		if s.vague && named[s.slot] {
			continue // the container is known, and missing for the moment
		}
		if complete := n.since.Add(b.timing.complete); !n.shown && now.Before(complete) {
			soonest(complete)
			soonest(now.Add(b.timing.again))
			continue
		}
		n.shown = true
		h := s.Holder
		h.UID = n.uid
		by[s.Accelerator] = append(by[s.Accelerator], h)
	}
	for id, all := range by {
		slices.SortFunc(all, compare)
		by[id] = slices.Compact(all)
	}
	return by, due
}

// forget drops holds that have been missing for long enough.
func (b *book) forget(now time.Time) {
	for s, n := range b.notes {
		if !n.missing.IsZero() && !now.Before(n.missing.Add(b.patience(n.missing))) {
			delete(b.notes, s)
		}
	}
}

// patience returns how long a hold that is missing since then is kept.
func (b *book) patience(missing time.Time) time.Duration {
	if until := b.returned.Add(b.timing.returned); missing.Before(until) && !b.returned.IsZero() {
		return max(until.Sub(missing), b.timing.confirm)
	}
	return b.timing.confirm
}

// empty reports whether no hold is known.
func (b *book) empty() bool { return len(b.notes) == 0 }

func compare(a, b exporter.Holder) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
		strings.Compare(a.Container, b.Container),
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Claim, b.Claim), strings.Compare(a.UID, b.UID))
}
