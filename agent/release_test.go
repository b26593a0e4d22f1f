package agent

import (
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestForceKnown: nothing is given back before it is known which kinds are in force.
func TestForceKnown(t *testing.T) {
	now := time.Now()
	problem := func(r accel.Reason) accel.Want { return accel.Want{Problem: &accel.Problem{Reason: r}} }
	for name, c := range map[string]struct {
		machine accel.Machine
		want    bool
	}{
		"known":        {accel.Machine{Taken: now}, true},
		"not read yet": {accel.Machine{}, false},
		"policies":     {accel.Machine{Taken: now, Want: accel.Want{PoliciesUnknown: true}}, false},
		"an error in a file": {
			accel.Machine{Taken: now, Want: problem(accel.DefinitionInvalid)}, false,
		},
		"an error in a policy": {
			accel.Machine{Taken: now, Want: problem(accel.PolicyInvalid)}, false,
		},
		"a policy that is refused": {
			accel.Machine{Taken: now, Want: problem(accel.PolicyRefused)}, true,
		},
	} {
		if got := forceKnown(c.machine); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
