package artifact

import (
	"io"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// tellEvery is the shortest time between two reports of a transfer.
const tellEvery = 200 * time.Millisecond

// transfer tells how far an artifact is on its way. What reads it may be a goroutine of a decoder or of an HTTP client,
// which may outlive the transfer.
type transfer struct {
	tell func(accel.Progress)

	mu   sync.Mutex
	p    accel.Progress
	base int64 // what the parts before have
	turn int   // of the reader whose bytes count
	said time.Time
}

// begin tells of a transfer whose size is not known yet.
func (c *Client) begin(stage accel.Stage, what string) *transfer {
	t := &transfer{tell: c.o.Progress, p: accel.Progress{Stage: stage, What: what, Since: time.Now()}}
	t.say()
	return t
}

// say tells how far it is; the lock is held, or nobody else has t yet.
func (t *transfer) say() {
	t.said = time.Now()
	t.tell(t.p)
}

// size says what it is that is transferred, and how many bytes it has.
func (t *transfer) size(what string, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.What, t.p.Total = what, total
	t.say()
}

// again says that the attempt failed and another one begins.
func (t *transfer) again(attempt int, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.p.Stage == accel.StagePull { // all of it
		t.base, t.p.Again = 0, time.Now()
	}
	t.p.Attempt, t.p.Problem, t.p.Done = attempt, explain(why).Message, t.base
	t.say()
}

// part says that a part of n bytes is there, also when none of them had to be transferred.
func (t *transfer) part(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base += n
	t.p.Done = t.base
	t.say()
}

// reader returns r with its bytes counted, until there is another reader.
func (t *transfer) reader(r io.ReadCloser) io.ReadCloser {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn++
	return counted{r, t, t.turn}
}

// add counts bytes of a reader.
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

// end tells of the end; err is nil when all of it was transferred.
func (t *transfer) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.Ended, t.p.Problem = true, ""
	if err != nil {
		t.p.Problem = explain(err).Message
	}
	t.say()
}

// counted is a reader whose bytes count.
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
