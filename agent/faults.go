package agent

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/acceld/acceld/accel"
)

// faults are the parts of the agent that do not work now, and why. It is safe for concurrent use.
type faults struct {
	changed func() // called after each change
	log     *slog.Logger

	mu  sync.Mutex
	now map[string]*accel.Problem
}

// note takes over why a part does not work; nil if it does. It logs the difference.
func (f *faults) note(part string, err error) {
	var problem *accel.Problem
	if err != nil && !errors.As(err, &problem) {
		problem = accel.Problemf(accel.PartFailed, "%v", err)
	}
	f.mu.Lock()
	before := f.now[part]
	if f.now == nil {
		f.now = map[string]*accel.Problem{}
	}
	if f.now[part] = problem; problem == nil {
		delete(f.now, part)
	}
	f.mu.Unlock()
	switch {
	case problem != nil && (before == nil || differs(before, problem)):
		f.log.Error("a part of the agent does not work, and is started again", "part", part, "reason", problem.Reason,
			"message", problem.Message)
	case problem == nil && before != nil:
		f.log.Info("a part of the agent does not fail any more", "part", part)
	default:
		return
	}
	f.changed()
}

// list returns them in order of their names.
func (f *faults) list() (all []accel.PartProblem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, part := range slices.Sorted(maps.Keys(f.now)) {
		all = append(all, accel.PartProblem{Part: part, Problem: *f.now[part]})
	}
	return all
}
