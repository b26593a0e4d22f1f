package accel

import (
	"errors"
	"fmt"
	"strings"
)

// Problem is a failure with a typed reason: the only kind of error that states are decided on.
type Problem struct {
	Reason Reason `json:"reason"`
	// Message is one sentence, lower case, naming the thing that failed.
	Message string `json:"message"`
	// Tried lists what was tried before, one sentence each, in order.
	Tried []string `json:"tried,omitempty"`
}

// Error makes a Problem an error: "<message> (<Reason>)".
func (p *Problem) Error() string {
	s := p.Message + " (" + string(p.Reason) + ")"
	if len(p.Tried) > 0 {
		s += "; tried: " + strings.Join(p.Tried, "; ")
	}
	return s
}

// Problemf returns a Problem whose message is formatted like fmt.Sprintf.
func Problemf(r Reason, format string, args ...any) *Problem {
	return &Problem{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// AsProblem returns the Problem in err's chain, or one with reason InternalError and err's own text.
func AsProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return &Problem{Reason: InternalError, Message: err.Error()}
}
