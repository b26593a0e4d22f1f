package driver

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// verify reads a module as the kernel and its policy would, and stricter: a kernel with symbol versions loads a module
// of another release, and every kernel ignores a parameter that it does not know. Own are the flags of
// the kernel's own modules, empty when they need not be compared; ours are the symbols of the modules that are loaded
// with it. A refusal here means that the kernel is not asked.
func (d *Driver) verify(m *image, name string, parameters map[string]string, k accel.Kernel, own string, ours map[string]bool) *accel.Problem {
	if machine, _, known := elfMachine(k.Arch); known && m.machine != machine {
		return accel.Problemf(accel.ArchMismatch, "module file %q is for %v, the machine is %s", m.path, m.machine, k.Arch)
	}
	if m.name != "" && m.name != normal(name) {
		return accel.Problemf(accel.ModuleInvalid, "module file %q holds module %q, not %q", m.path, m.name, name)
	}
	m.name = normal(name)
	if p := checkVermagic(m, k, own); p != nil {
		return p
	}
	for _, parameter := range sortedKeys(parameters) {
		if !m.parameters[parameter] {
			return accel.Problemf(accel.ParameterUnknown, "module %q has no parameter %q", name, parameter)
		}
	}
	if p := checkPolicy(m, k); p != nil {
		return p
	}
	return d.checkSymbols(m.moduleFile, k, ours)
}

// checkVermagic compares the release, which must be the running one, and the flags, which must be those that the
// kernel's own modules have.
func checkVermagic(m *image, k accel.Kernel, own string) *accel.Problem {
	release, flags, _ := strings.Cut(m.vermagic, " ")
	if release != k.Release {
		return accel.Problemf(accel.KernelMismatch, "module file %q was built for kernel %q, running is %q", m.path, release, k.Release)
	}
	if own != "" && strings.Join(strings.Fields(flags), " ") != own {
		return accel.Problemf(accel.KernelMismatch, "module file %q was built with %q, the kernel's own modules with %q", m.path, flags, own)
	}
	return nil
}

// checkPolicy predicts whether the kernel's policy refuses the module.
func checkPolicy(m *image, k accel.Kernel) *accel.Problem {
	switch {
	case k.ModulesDisabled:
		return accel.Problemf(accel.ModulesDisabled, "kernel.modules_disabled is 1: module %q cannot be loaded until the next boot", m.name)
	case m.signed:
		return nil
	case k.SigEnforce:
		return accel.Problemf(accel.Unsigned, "module file %q is unsigned and the kernel enforces signatures", m.path)
	case k.Lockdown != "" && k.Lockdown != "none":
		return accel.Problemf(accel.LockedDown, "module file %q is unsigned and the kernel is locked down (%s)", m.path, k.Lockdown)
	}
	return nil
}

// checkFirmware looks for the firmware files that a module will ask for, where the kernel itself looks
// (drivers/base/firmware_loader/main.c).
func (d *Driver) checkFirmware(m accel.Module, release string) *accel.Problem {
	dirs := []string{"/lib/firmware/updates/" + release, "/lib/firmware/updates", "/lib/firmware/" + release, "/lib/firmware"}
	if custom, err := d.h.ReadString("/sys/module/firmware_class/parameters/path"); err == nil && custom != "" {
		dirs = append([]string{custom}, dirs...)
	}
	for _, file := range m.Firmware {
		if file == "" {
			continue // its template says that nothing is needed
		}
		there := slices.ContainsFunc(dirs, func(dir string) bool {
			return slices.ContainsFunc([]string{"", ".xz", ".zst"}, func(suffix string) bool { return d.h.Exists(path.Join(dir, file+suffix)) })
		})
		if !there {
			return accel.Problemf(accel.FirmwareMissing, "module %q needs firmware %q, which is not below /lib/firmware", m.Name, file)
		}
	}
	return nil
}
