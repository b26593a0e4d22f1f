package history

import (
	"time"

	"github.com/acceld/acceld/accel"
)

// Resets returns how often a device was reset, or that was begun, since a moment. Known is false until the records are
// read.
func (b *Book) Resets(kind string, a accel.Accelerator, since time.Time) (times int, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, r := b.find(kind, a); r != nil {
		for _, e := range r.Entries {
			if e.What == Reset && !e.At.Before(since) {
				times++
			}
			if e.What == Reset && !e.Last.Before(since) {
				times += max(0, e.Times-1)
			}
		}
	}
	return times, b.loaded
}

// Attempt writes down that a device is about to be reset, and why, and returns when the disk has it. Over is to be
// called when the reset has ended: until then [Book.See] does not take it for another one.
func (b *Book) Attempt(kind string, a accel.Accelerator, now time.Time, why string,
) (over func(), problem *accel.Problem) {
	b.mu.Lock()
	name, r := b.find(kind, a)
	if r != nil {
		r.add(Entry{What: Reset, At: now, Address: r.Address, Message: "by acceld: " + why})
		b.changed[name], b.noted[name] = true, true
	}
	b.mu.Unlock()
	over = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.noted, name)
	}
	if r == nil || !b.write() {
		return over, accel.Problemf(accel.CannotReset, "device %q: it cannot be written down that it is reset", a.ID)
	}
	return over, nil
}
