package transfer

import (
	"cmp"
	"io"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// tellEvery is the minimum time between two progress reports of a transfer.
const tellEvery = 200 * time.Millisecond

// Meter reports the progress of one transfer. Its reader may run in a goroutine of a decoder or of an
// HTTP client, which may outlive the transfer.
type Meter struct {
	tell func(accel.Progress)

	mu   sync.Mutex
	p    accel.Progress
	base int64 // bytes of the completed parts
	turn int   // number of the current reader; only its bytes count
	said time.Time
}

// Begin reports a transfer whose size is not known yet.
func Begin(tell func(accel.Progress), stage accel.Stage, what string) *Meter {
	t := &Meter{tell: tell, p: accel.Progress{Stage: stage, What: what, Since: time.Now()}}
	t.say()
	return t
}

// say reports the progress; the caller holds the lock, or has not shared t yet.
func (t *Meter) say() {
	t.said = time.Now()
	t.tell(t.p)
}

// Size sets the size in bytes, and what is transferred unless that is empty.
func (t *Meter) Size(what string, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.What, t.p.Total = cmp.Or(what, t.p.What), total
	t.say()
}

// Again reports that an attempt failed, why, and that another one begins.
func (t *Meter) Again(attempt int, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.p.Stage == accel.StagePull { // a pull starts over
		t.base, t.p.Again = 0, time.Now()
	}
	t.p.Attempt, t.p.Problem, t.p.Done = attempt, why, t.base
	t.say()
}

// Resume is [Meter.Again] for an attempt that continues with the part that failed.
func (t *Meter) Resume(attempt int, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.Attempt, t.p.Problem, t.p.Done = attempt, why, t.base
	t.say()
}

// Part reports that a part of n bytes is complete, even if it did not have to be transferred.
func (t *Meter) Part(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base += n
	t.p.Done = t.base
	t.say()
}

// Reader returns r and counts its bytes until there is another reader.
func (t *Meter) Reader(r io.ReadCloser) io.ReadCloser {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn++
	return counted{r, t, t.turn}
}

// add counts bytes that a reader has read.
func (t *Meter) add(turn, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.p.Ended || turn != t.turn {
		return
	}
	t.p.Done += int64(n)
	if time.Since(t.said) >= tellEvery {
		t.say()
	}
}

// End reports the end, and what went wrong; empty if everything was transferred.
func (t *Meter) End(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.Ended, t.p.Problem = true, problem
	t.say()
}

// counted is a reader that counts its bytes for a transfer.
type counted struct {
	io.ReadCloser
	t    *Meter
	turn int
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.t.add(c.turn, n)
	return n, err
}
