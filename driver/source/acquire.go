package source

import (
	"context"
	"fmt"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Acquire asks the sources for a driver, in order, and returns it judged good, open and ready to load. Its user space,
// if the kind has one, is in the store by then. It changes only the store. The problem's Tried, or tried if there is a
// plan, lists what each source answered.
func (x *Sources) Acquire(ctx context.Context, def *accel.Definition, facts accel.Facts, o Options) (p *kmod.Plan,
	tried []string, problem *accel.Problem,
) {
	p, tried, problem = first(ctx, def, facts, x.For(def, facts, o), "loaded: unavailable: the modules are not loaded")
	if problem == nil {
		problem = x.UserSpace(ctx, def, facts, p.Version(), o)
	}
	if problem != nil && p != nil {
		p.Close()
		problem.Tried = slices.Concat(tried, problem.Tried)
		return nil, tried, problem
	}
	return p, tried, problem
}

// Preflight is Acquire for a kernel that may not be running, whatever driver is loaded now.
func (x *Sources) Preflight(ctx context.Context, def *accel.Definition, facts accel.Facts) (*kmod.Plan,
	*accel.Problem,
) {
	p, _, problem := first(ctx, def, facts, x.For(def, facts, Options{}))
	if problem != nil {
		return nil, problem
	}
	if problem := x.UserSpace(ctx, def, facts, p.Version(), Options{}); problem != nil {
		p.Close()
		return nil, problem
	}
	return p, nil
}

// first returns the plan of the first source that has one, and adds what the others answered to tried.
func first(ctx context.Context, def *accel.Definition, facts accel.Facts, all []Source, tried ...string) (*kmod.Plan,
	[]string, *accel.Problem,
) {
	last := accel.Problemf(accel.NoDriverSource, "no source has a driver of %q for kernel %q", def.Kind,
		facts.Kernel.Release)
	for _, s := range all {
		a := s.Ask(ctx)
		if a.Note != "" {
			tried = append(tried, fmt.Sprintf("%s: %s", s.Name, a.Note))
		}
		switch a.Verdict {
		case Satisfied:
			return a.Plan, tried, nil
		case Unavailable:
			if ctx.Err() != nil { // called off: the next source would be too
				return nil, tried, a.Problem
			}
			tried = append(tried, Sentence(s.Name, Unavailable, a.Problem))
			last = telling(last, a.Problem)
		default:
			a.Problem.Tried = slices.Concat(tried, []string{Sentence(s.Name, a.Verdict, a.Problem)})
			return nil, tried, a.Problem
		}
	}
	return nil, tried, &accel.Problem{Reason: last.Reason, Message: last.Message, Tried: tried}
}

// telling chooses the reason if no source has a driver. It is the later one, except in two cases: the earlier one is
// about access or a signature, which a person must see, or the earlier one may resolve itself and the later one is
// permanent.
func telling(before, after *accel.Problem) *accel.Problem {
	switch {
	case after.Reason == accel.NoDriverSource:
		return before
	case slices.Contains([]accel.Reason{accel.RegistryDenied, accel.SignatureInvalid}, before.Reason):
		return before
	case before.Reason != accel.NoDriverSource && !before.Reason.Doc().Permanent && after.Reason.Doc().Permanent:
		return before
	}
	return after
}

// Sentence describes an answer for people: "<source>: <verdict>: <message>".
func Sentence(source string, v Verdict, p *accel.Problem) string {
	return fmt.Sprintf("%s: %s: %s", source, v, p.Message)
}
