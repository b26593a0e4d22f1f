package driver

import (
	"fmt"
	"path"

	"github.com/acceld/acceld/accel"
)

// firmwarePath is the directory that the kernel looks into first, for every driver; empty by default.
const firmwarePath = "/sys/module/firmware_class/parameters/path"

// firmwareDirs are where the kernel looks for firmware, in order (fw_path, drivers/base/firmware_loader/main.c).
func (d *Driver) firmwareDirs(release string) []string {
	dirs := []string{"/lib/firmware/updates/" + release, "/lib/firmware/updates", "/lib/firmware/" + release, "/lib/firmware"}
	if custom, err := d.h.ReadString(firmwarePath); err == nil && custom != "" {
		dirs = append([]string{custom}, dirs...)
	}
	return dirs
}

// findFirmware returns the file that the kernel would take for a firmware name, "" when there is none: in all the
// directories the plain file first, then the compressed ones, as _request_firmware does.
func (d *Driver) findFirmware(name, release string) string {
	dirs := d.firmwareDirs(release)
	for _, suffix := range []string{"", ".zst", ".xz"} {
		for _, dir := range dirs {
			if file := path.Join(dir, name+suffix); d.h.Exists(file) {
				return file
			}
		}
	}
	return ""
}

// checkFirmware looks for the firmware files that the definition says a module needs. What the module itself names are
// the files of every device it knows: those are only counted.
func (in *inspection) checkFirmware(s *subject) (string, *accel.Problem) {
	for _, file := range s.firmware {
		// A template may say that nothing is needed.
		if file != "" && in.d.findFirmware(file, in.kernel.Release) == "" {
			return "", accel.Problemf(accel.FirmwareMissing, "module %q needs firmware %q, which is not below /lib/firmware", s.wants, file)
		}
	}
	there := 0
	for _, file := range s.image.firmware {
		if in.d.findFirmware(file, in.kernel.Release) != "" {
			there++
		}
	}
	switch {
	case len(s.image.firmware) > 0:
		return fmt.Sprintf("%d of %d files that the module may ask for", there, len(s.image.firmware)), nil
	case len(s.firmware) > 0:
		return fmt.Sprintf("all %d files", len(s.firmware)), nil
	}
	return "", nil
}
