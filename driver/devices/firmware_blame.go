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

// BlameFirmware finds out of devices that the driver has refused whether it was for firmware that is not there: the
// kernel has said so. A problem about firmware names the package that has it, where the definition knows.
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

// refusedForFirmware makes a problem one about firmware, when the kernel has said last of a device without a driver
// that a file is not there, and it is not there now either.
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
	lines, err := s.h.KernelLines()
	if err != nil {
		return // without the right to read the log it stays as it is
	}
	// The first form is of drivers/base/firmware_loader/main.c, with ENOENT. The others are Debian's, whose kernels say
	// it in words of their own, too, and refuse devices without looking for a file, and without a word of which device,
	// when a driver's whole directory is not there.
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
			return // it came since: the next attempt finds it
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

// firmwarePackage is the package that has a driver's firmware on a distribution; empty when the definition does not
// know.
func firmwarePackage(def *accel.Definition, os accel.OS) string {
	id, _ := os.Base()
	all := def.Driver.FirmwarePackages
	return cmp.Or(all[os.Major()], all[id], all["*"])
}
