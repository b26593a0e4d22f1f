package devices

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// BlameFirmware checks, for devices that the driver refused, whether the kernel log blames missing firmware. If the
// definition knows the package that has the firmware, the problem names it.
func (s *Devices) BlameFirmware(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	problem *accel.Problem,
) *accel.Problem {
	if problem == nil {
		return nil
	}
	told := *problem
	if told.Reason == accel.ProbeFailed {
		s.refusedForFirmware(&told, def, facts.Kernel.Release, accs)
	}
	name := firmwarePackage(def, facts.OS)
	if told.Reason != accel.FirmwareMissing || name == "" {
		return &told
	}
	if hint := fmt.Sprintf("package %q has it", name); !strings.Contains(told.Message, hint) {
		told.Message += "; " + hint
	}
	return &told
}

// refusedForFirmware turns a problem into FirmwareMissing if the last such message in the kernel log about a device
// without a driver says that a firmware file is missing, and it is still missing.
func (s *Devices) refusedForFirmware(problem *accel.Problem, def *accel.Definition, release string,
	accs []accel.Accelerator,
) {
	var refused []string
	for _, v := range s.Observe(def, accs) {
		if v.Bound == "" {
			refused = append(refused, v.ID)
		}
	}
	if len(refused) == 0 {
		return
	}
	lines, err := s.h.Kernel().Lines()
	if err != nil {
		return // without the right to read the log, the problem stays unchanged
	}
	// The first form is from drivers/base/firmware_loader/main.c, with ENOENT. The other two are from Debian's
	// kernels, which also log a message of their own. If a driver's whole firmware directory is missing, they refuse
	// a device without looking for a file, and do not name the device.
	said := regexp.MustCompile(
		`Direct firmware load for (\S+) failed with error -2|firmware: failed to load (\S+) \(-2\)|requires firmware installed`)
	for _, line := range slices.Backward(lines) {
		m := said.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		file := cmp.Or(m[1], m[2])
		i := slices.IndexFunc(refused, func(id string) bool { return strings.Contains(line, id) })
		if file == "" && strings.Contains(line, "["+def.Driver.Binds+"]") {
			i = max(i, 0)
		}
		if i < 0 {
			continue
		}
		if file != "" && kmod.FindFirmware(s.h, file, release) != "" {
			return // it has been installed since: the next attempt finds it
		}
		problem.Reason = accel.FirmwareMissing
		problem.Message = fmt.Sprintf("driver %q refuses device %q: no firmware for it is installed", def.Driver.Binds,
			refused[i])
		if file != "" {
			problem.Message = fmt.Sprintf(
				"driver %q refuses device %q: it needs firmware %q, which is not below /lib/firmware", def.Driver.Binds,
				refused[i], file)
		}
		return
	}
}

// firmwarePackage is the package that has a driver's firmware on a distribution; empty if the definition names none.
func firmwarePackage(def *accel.Definition, os accel.OS) string {
	id, _ := os.Base()
	all := def.Driver.FirmwarePackages
	return cmp.Or(all[os.Major()], all[id], all["*"])
}
