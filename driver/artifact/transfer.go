package artifact

import (
	"io"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// tellEvery is the minimum time between two progress reports of a transfer.
const tellEvery = 200 * time.Millisecond

// transfer reports the progress of one artifact's transfer. Its reader may run in a goroutine of a decoder or of an
// HTTP client, which may outlive the transfer.
type transfer struct {
	tell func(accel.Progress)

	mu   sync.Mutex
	p    accel.Progress
	base int64 // bytes of the completed parts
	turn int   // number of the current reader; only its bytes count
	said time.Time
}

// begin reports a transfer whose size is not known yet.
func (c *Client) begin(stage accel.Stage, what string) *transfer {
	t := &transfer{tell: c.o.Progress, p: accel.Progress{Stage: stage, What: what, Since: time.Now()}}
	t.say()
	return t
}

// say reports the progress; the caller holds the lock, or has not shared t yet.
func (t *transfer) say() {
	t.said = time.Now()
	t.tell(t.p)
}

// size sets what is transferred, and its size in bytes.
func (t *transfer) size(what string, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.What, t.p.Total = what, total
	t.say()
}

// again reports that an attempt failed and another one begins.
func (t *transfer) again(attempt int, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.p.Stage == accel.StagePull { // a pull starts over
		t.base, t.p.Again = 0, time.Now()
	}
	t.p.Attempt, t.p.Problem, t.p.Done = attempt, explain(why).Message, t.base
	t.say()
}

// part reports that a part of n bytes is complete, even if it did not have to be transferred.
func (t *transfer) part(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base += n
	t.p.Done = t.base
	t.say()
}

// reader returns r and counts its bytes until there is another reader.
func (t *transfer) reader(r io.ReadCloser) io.ReadCloser {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn++
	return counted{r, t, t.turn}
}

// add counts bytes that a reader has read.
func (t *transfer) add(turn, n int) {
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

// end reports the end; err is nil if everything was transferred.
func (t *transfer) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.Ended, t.p.Problem = true, ""
	if err != nil {
		t.p.Problem = explain(err).Message
	}
	t.say()
}

// counted is a reader that counts its bytes for a transfer.
type counted struct {
	io.ReadCloser
	t    *transfer
	turn int
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.t.add(c.turn, n)
	return n, err
}
