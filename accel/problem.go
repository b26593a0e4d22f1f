package accel

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Problem is a failure with a typed reason: the only kind of error that decides states.
type Problem struct {
	Reason Reason `json:"reason"`
	// Message is one sentence, lower case, naming the thing that failed.
	Message string `json:"message"`
	// Tried lists what was tried before, in order, one sentence each.
	Tried []string `json:"tried,omitempty"`
	// Do says what to do, if the reason's remedy does not fit this cause.
	Do string `json:"do,omitempty"`
}

// Remedy says what to do about the problem.
func (p *Problem) Remedy() string { return cmp.Or(p.Do, p.Reason.Doc().Remedy) }

// ToDo returns the problem with what to do about this cause.
func (p *Problem) ToDo(format string, args ...any) *Problem {
	p.Do = fmt.Sprintf(format, args...)
	return p
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

// ReasonForError returns the reason for an error of a file or system call: NoSpace, ReadOnly or PermissionDenied
// according to its errno, else otherwise.
func ReasonForError(err error, otherwise Reason) Reason {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return NoSpace
	case errors.Is(err, syscall.EROFS):
		return ReadOnly
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return PermissionDenied
	}
	return otherwise
}

// ProblemOf turns an error of a file or a process into a Problem: the one in its chain, or a new one with the
// formatted sentence and the error. The errno decides the reason; it is InternalError if the errno has none.
func ProblemOf(err error, format string, args ...any) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return Problemf(ReasonForError(err, InternalError), "%s: %v", fmt.Sprintf(format, args...), err)
}

// ProblemOr is like ProblemOf, with a reason to use instead of InternalError.
func ProblemOr(err error, otherwise Reason, format string, args ...any) *Problem {
	p := ProblemOf(err, format, args...)
	if p.Reason == InternalError {
		p.Reason = otherwise
	}
	return p
}
