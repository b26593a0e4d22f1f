package progress

import (
	"time"

	"github.com/acceld/acceld/accel"
)

// Teller is told how far the work is, by several goroutines at once; it must be quick.
type Teller func(accel.Progress)

// Stage is one stage of the work, from its begin to its end. It is one goroutine's.
type Stage struct {
	accel.Progress
	tell Teller
}

// Begin tells of a stage that begins.
func (t Teller) Begin(p accel.Progress) *Stage {
	p.Since = time.Now()
	s := &Stage{p, t}
	s.tell(p)
	return s
}

// At tells how far the stage is.
func (s *Stage) At(done int, what string) {
	s.Done, s.What = int64(done), what
	s.tell(s.Progress)
}

// End tells of the end; problem is nil when all of it was done.
func (s *Stage) End(problem *accel.Problem) {
	s.Ended = true
	if problem != nil {
		s.Problem = problem.Message
	}
	s.tell(s.Progress)
}
