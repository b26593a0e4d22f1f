package deviceplugin

import (
	"sync"

	"github.com/acceld/acceld/accel"
)

// pluginState is what the plugin knows about the kubelet's view and reports to the agent.
type pluginState struct {
	mu      sync.Mutex
	have    accel.PluginHave
	problem *accel.Problem
	changed chan struct{}
}

func newPluginState() *pluginState {
	return &pluginState{changed: make(chan struct{}, 1)}
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
	other := !sameProblem(s.problem, problem)
	if have == s.have && !other {
		return false
	}
	s.have, s.problem = have, problem
	select {
	case s.changed <- struct{}{}:
	default: // the pending report will read this state too
	}
	return other
}

// report calls onChange after each change until over is closed, and once more if a change is still pending then.
func (s *pluginState) report(over <-chan struct{}, onChange func(accel.PluginHave)) {
	for {
		select {
		case <-s.changed:
		case <-over:
			select {
			case <-s.changed:
			default:
				return
			}
		}
		if onChange != nil {
			have, _ := s.get()
			onChange(have)
		}
	}
}

func sameProblem(a, b *accel.Problem) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Reason == b.Reason && a.Message == b.Message
}
