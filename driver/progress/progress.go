package progress

import (
	"time"

	"github.com/acceld/acceld/accel"
)

// Teller receives progress reports, from several goroutines at once; it must return quickly.
type Teller func(accel.Progress)

// Of passes on reports in which only the kind is missing.
func (t Teller) Of(kind string) func(accel.Progress) {
	return func(p accel.Progress) {
		p.Kind = kind
		t(p)
	}
}

// Stage is one stage of the work, from beginning to end. Only one goroutine may use it.
type Stage struct {
	accel.Progress
	tell Teller
}

// Begin reports that a stage begins.
func (t Teller) Begin(p accel.Progress) *Stage {
	p.Since = time.Now()
	s := &Stage{p, t}
	s.tell(p)
	return s
}

// At reports how much of the stage is done.
func (s *Stage) At(done int, what string) {
	s.Done, s.What = int64(done), what
	s.tell(s.Progress)
}

// End reports the end of the stage; problem is nil if it succeeded.
func (s *Stage) End(problem *accel.Problem) {
	s.Ended = true
	if problem != nil {
		s.Problem = problem.Message
	}
	s.tell(s.Progress)
}
