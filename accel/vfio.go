package accel

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// VFIO gives out whole devices of a kind with VFIO, as virtual machines and drivers in user space need them. acceld
// then binds the device to another driver: for as long as a claim has it, or for as long as the configuration sets it
// aside for pods that ask for an extended resource.
type VFIO struct {
	// Driver is the PCI driver that the device gets; vfio-pci when empty.
	Driver string `json:"driver,omitempty"`
	// Modules must be live for that, in load order; vfio_iommu_type1 and the driver's own when empty. They are those of
	// the kernel.
	Modules []string `json:"modules,omitempty"`
	// Ask says whose parameters may ask for it; class when empty.
	Ask VFIOAsk `json:"ask,omitempty"`
	// Devices are the PCI addresses of devices that are set aside: the device plugin gives them out with VFIO, as
	// Resource, and not otherwise. "*" sets all aside. They need the allocation devicePlugin.
	Devices []string `json:"devices,omitempty"`
	// Resource is the extended resource of these devices; that of the kind and "-vfio" when empty.
	Resource string `json:"resource,omitempty"`
}

// VFIOAsk is whose parameters may ask for a device with VFIO.
type VFIOAsk string

// The values of VFIOAsk.
const (
	AskByClass VFIOAsk = "class" // those of a device class, which an administrator writes
	AskByClaim VFIOAsk = "claim" // also those of a claim, which whoever may create pods writes
)

// DriverName returns the PCI driver that a device gets.
func (v VFIO) DriverName() string { return cmp.Or(v.Driver, "vfio-pci") }

// ModuleNames returns the modules that must be live, in load order.
func (v VFIO) ModuleNames() []string {
	if len(v.Modules) > 0 {
		return v.Modules
	}
	return []string{"vfio_iommu_type1", strings.ReplaceAll(v.DriverName(), "-", "_")}
}

// AskedByClaims reports whether the parameters of a claim may ask for it.
func (v VFIO) AskedByClaims() bool { return v.Ask == AskByClaim }

// vfioWord is what the name of a module or a driver looks like; it becomes part of paths.
var vfioWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Problems returns the errors in v, each as "<field>: <sentence>".
func (v VFIO) Problems() (out []string) {
	if d := v.DriverName(); !vfioWord.MatchString(d) || !strings.Contains(d, "vfio") {
		out = append(out, fmt.Sprintf("driver: %.80q is not the name of a VFIO driver, such as vfio-pci", d))
	}
	for i, m := range v.Modules {
		if !vfioWord.MatchString(m) {
			out = append(out, fmt.Sprintf("modules[%d]: %.80q is not the name of a module", i, m))
		}
	}
	for i, id := range v.Devices {
		if id != AllDevices && !asideWord.MatchString(id) {
			out = append(out, fmt.Sprintf("devices[%d]: %.80q is not a PCI address such as 0000:3b:00.0, or %q", i, id,
				AllDevices))
		}
	}
	if v.Resource != "" {
		if text := ResourceProblem(v.Resource); text != "" {
			out = append(out, "resource: "+text)
		}
	}
	if !slices.Contains([]VFIOAsk{"", AskByClass, AskByClaim}, v.Ask) {
		out = append(out, fmt.Sprintf("ask: %q is not one of %s, %s", v.Ask, AskByClass, AskByClaim))
	}
	return out
}

// vfioMisfit says why devices of the kind cannot be given out with VFIO, as "<field>: <sentence>"; empty if they can,
// or are not meant to be.
func vfioMisfit(def *Definition) string {
	switch {
	case def.VFIO == nil:
		return ""
	case def.Driver.Binds == "":
		return "vfio: the kind names no driver (driver.binds) that devices go back to"
	case len(def.VFIO.Devices) > 0 && def.AllocatedBy() != AllocateByPlugin:
		return "vfio.devices: only a device plugin gives out devices that are set aside; the kind has another allocation"
	case len(def.VFIO.Devices) > 0 && def.VFIO.Resource == def.Offered():
		return "vfio.resource: it is the resource of the devices that are not set aside"
	case def.Driver.Override, def.Driver.Binds == def.VFIO.DriverName():
		return "vfio: the kind's own driver is bound by driver_override (driver.override), or is the one for VFIO"
	}
	return ""
}

// VFIOProblems returns the errors in what a definition says about VFIO, each as "<field>: <sentence>".
func (def *Definition) VFIOProblems() (out []string) {
	if def.VFIO == nil {
		return nil
	}
	out = under("vfio.", def.VFIO.Problems())
	if text := vfioMisfit(def); text != "" {
		out = append(out, text)
	}
	return out
}
