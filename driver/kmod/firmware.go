package kmod

import (
	"fmt"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/host"
)

// FirmwarePath holds the directory in which the kernel looks first, for every driver; empty by default.
const FirmwarePath = "/sys/module/firmware_class/parameters/path"

// firmwareDirs are the directories in which the kernel looks for firmware, in order (fw_path,
// drivers/base/firmware_loader/main.c).
func firmwareDirs(h *host.Host, release string) []string {
	dirs := []string{
		"/lib/firmware/updates/" + release, "/lib/firmware/updates", "/lib/firmware/" + release,
		"/lib/firmware",
	}
	if custom, err := h.ReadAttribute(FirmwarePath); err == nil && custom != "" {
		dirs = append([]string{custom}, dirs...)
	}
	return dirs
}

// FindFirmware returns the file that the kernel would load for a firmware name, "" if there is none. Like
// _request_firmware, it looks for the plain file in all directories first, and then for the compressed ones.
func FindFirmware(h *host.Host, name, release string) string {
	dirs := firmwareDirs(h, release)
	for _, suffix := range []string{"", ".zst", ".xz"} {
		for _, dir := range dirs {
			if file := path.Join(dir, name+suffix); h.Exists(file) {
				return file
			}
		}
	}
	return ""
}

// checkFirmware checks that the firmware files exist that a module needs according to the definition, and that the
// files that come with the driver can be placed. The module itself names files for every device it supports; these
// are only counted.
func (in *inspection) checkFirmware(c *candidate) (string, *accel.Problem) {
	if problem := in.Conflict(); problem != nil {
		return "", problem
	}
	found := func(file string) bool {
		return FindFirmware(in.Host, file, in.kernel.Release) != "" || slices.ContainsFunc(in.Firmware,
			func(f artifact.File) bool { return f.Path == file })
	}
	for _, file := range c.module.Firmware {
		// A template may expand to "", which means that nothing is needed.
		if file != "" && !found(file) {
			return "", accel.Problemf(accel.FirmwareMissing,
				"module %q needs firmware %q, which is not below /lib/firmware", c.module.Name, file)
		}
	}
	there := 0
	for _, file := range c.firmware {
		if found(file) {
			there++
		}
	}
	switch {
	case len(c.firmware) > 0:
		return fmt.Sprintf("%d of %d files that the module may ask for", there, len(c.firmware)), nil
	case len(c.module.Firmware) > 0:
		return fmt.Sprintf("all %d files", len(c.module.Firmware)), nil
	}
	return "", nil
}
