package runtime

import (
	"strings"

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
	if a.InOtherUse() {
		return specs.ContainerEdits{}, r.specs.vfio(a, program), nil
	}
	shared, problem = r.specs.sharedEdits(def)
	return shared, r.specs.own(def, a, program, shared), problem
}

// vfio renders the edits of an accelerator that is given out with VFIO: the nodes of VFIO and of its IOMMU group, and
// its PCI address. What its kind's containers get belongs to the kind's driver, which does not have the device now.
func (w *specWriter) vfio(a accel.Accelerator, program string) specs.ContainerEdits {
	name := strings.ToUpper(strings.NewReplacer(":", "_", ".", "_").Replace(a.ID))
	a.Env = []string{"ACCELD_VFIO_" + name + "=" + a.ID}
	e := w.own(&accel.Definition{Kind: a.Switched.Kind}, a, program, specs.ContainerEdits{})
	e.DeviceNodes = append([]*specs.DeviceNode{w.node(accel.VFIONode, "rw")}, e.DeviceNodes...)
	return e
}
