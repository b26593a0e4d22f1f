package driver

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
)

// stage tells of one stage of the work, from its begin to its end. It is one goroutine's.
type stage struct {
	accel.Progress
	tell func(accel.Progress)
}

// begin tells of a stage that begins.
func (d *Driver) begin(p accel.Progress) *stage {
	p.Since = time.Now()
	s := &stage{p, d.o.Progress}
	s.tell(p)
	return s
}

// at tells how far it is.
func (s *stage) at(done int, what string) {
	s.Done, s.What = int64(done), what
	s.tell(s.Progress)
}

// end tells of the end; problem is nil when all of it was done.
func (s *stage) end(problem *accel.Problem) {
	s.Ended = true
	if problem != nil {
		s.Problem = problem.Message
	}
	s.tell(s.Progress)
}

// lockFile takes a lock for the work on a kind, and tells when it has to wait for it.
func (d *Driver) lockFile(ctx context.Context, kind, name string) (release func(), err error) {
	release, err = d.h.TryLock(name, lockText(d.h))
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return release, err
	}
	s := d.begin(accel.Progress{Kind: kind, Stage: accel.StageWait, What: holderOf(d.h, name)})
	release, err = d.h.Lock(ctx, name, lockText(d.h))
	if err != nil {
		s.Problem = err.Error()
	}
	s.end(nil)
	return release, err
}
