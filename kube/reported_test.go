package kube

import (
	"errors"
	"testing"
)

func TestReported(t *testing.T) {
	var r Reported
	one, other := errors.New("one"), errors.New("other")
	for i, step := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{one, true},
		{one, false},
		{other, true},
		{one, true},
		{nil, false},
		{one, true},
	} {
		if got := r.New(step.err); got != step.want {
			t.Errorf("step %d: New(%v) = %v, want %v", i, step.err, got, step.want)
		}
	}
}
