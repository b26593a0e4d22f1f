package dra

import (
	"reflect"
	"sync"

	"github.com/acceld/acceld/accel"
)

// pluginState is what the plugin knows about the kubelet and the API server and reports to the agent.
type pluginState struct {
	changed func() // called without holding a lock

	mu   sync.Mutex
	have accel.PluginHave
	// registration and publication are the current problem with each; registration comes first.
	registration, publication *accel.Problem
	// ahead is [accel.PluginHave.NotAhead].
	ahead *accel.Problem
}

func (s *pluginState) get() (accel.PluginHave, *accel.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.have
	have.NotAhead = s.ahead
	if s.registration != nil {
		return have, s.registration
	}
	return have, s.publication
}

// setRegistration records the state of the kubelet and reports whether the problem is a different one now.
func (s *pluginState) setRegistration(problem *accel.Problem, change func(*accel.PluginHave)) bool {
	return s.set(&s.registration, problem, change)
}

// setPublication does the same for the API server.
func (s *pluginState) setPublication(problem *accel.Problem, change func(*accel.PluginHave)) bool {
	return s.set(&s.publication, problem, change)
}

// setAhead records why claims may not be followed, nil if they may, and reports whether that has changed.
func (s *pluginState) setAhead(err error) bool {
	var problem *accel.Problem
	if err != nil {
		problem = accel.Problemf(accel.APIForbidden, "parts are not made before pods are bound: cannot follow claims: %v", err)
	}
	return s.set(&s.ahead, problem, nil)
}

func (s *pluginState) set(into **accel.Problem, problem *accel.Problem, change func(*accel.PluginHave)) bool {
	s.mu.Lock()
	have := s.have
	if change != nil {
		change(&have)
	}
	if !have.Registered { // a publication that was in progress may only now report its count
		have.Allocatable = accel.Answer[int]{}
	}
	other := !reflect.DeepEqual(*into, problem)
	news := other || have != s.have
	s.have, *into = have, problem
	s.mu.Unlock()
	if news {
		s.changed()
	}
	return other
}
