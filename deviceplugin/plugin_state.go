package deviceplugin

import (
	"context"
	"reflect"
	"sync"

	"github.com/acceld/acceld/accel"
)

// pluginState is what the plugin knows about the kubelet's view and reports to the agent.
type pluginState struct {
	mu      sync.Mutex
	have    accel.PluginHave
	problem *accel.Problem
	changed chan struct{} // a value is a report that is due; it includes all changes until then
}

func (s *pluginState) get() (accel.PluginHave, *accel.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.have, s.problem
}

// set changes the state and reports whether the problem is a different one now.
func (s *pluginState) set(problem *accel.Problem, change func(*accel.PluginHave)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.have
	if change != nil {
		change(&have)
	}
	other := !reflect.DeepEqual(s.problem, problem)
	if have == s.have && !other {
		return false
	}
	s.have, s.problem = have, problem
	signal(s.changed)
	return other
}

// report calls onChange after each change until ctx ends, and after the last one before that.
func (s *pluginState) report(ctx context.Context, onChange func()) {
	for {
		select {
		case <-s.changed:
			onChange()
		case <-ctx.Done():
			select {
			case <-s.changed:
				onChange()
			default:
			}
			return
		}
	}
}
