package runtime

import (
	"github.com/acceld/acceld/accel"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Edits renders what a container gets with an accelerator, as in the CDI spec of its kind: the edits that the kind
// shares, and the accelerator's own, which include the gate if want asks for it. It writes nothing.
func (r *Runtime) Edits(def *accel.Definition, a accel.Accelerator, want accel.Want) (shared, own specs.ContainerEdits,
	problem *accel.Problem,
) {
	defer r.begin()()
	program, _, problem := r.program.locate(want)
	if problem != nil {
		return shared, own, problem
	}
	shared, problem = r.specs.sharedEdits(def)
	return shared, r.specs.own(def, a, program, shared), problem
}
