package kmod

import (
	"fmt"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/host"
)

// FirmwarePath is the directory that the kernel looks into first, for every driver; empty by default.
const FirmwarePath = "/sys/module/firmware_class/parameters/path"

// firmwareDirs are where the kernel looks for firmware, in order (fw_path, drivers/base/firmware_loader/main.c).
func firmwareDirs(h *host.Host, release string) []string {
	dirs := []string{
		"/lib/firmware/updates/" + release, "/lib/firmware/updates", "/lib/firmware/" + release,
		"/lib/firmware",
	}
	if custom, err := h.ReadString(FirmwarePath); err == nil && custom != "" {
		dirs = append([]string{custom}, dirs...)
	}
	return dirs
}

// FindFirmware returns the file that the kernel would take for a firmware name, "" when there is none: in all the
// directories the plain file first, then the compressed ones, as _request_firmware does.
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

// checkFirmware looks for the firmware files that the definition says a module needs, and at those that come with the
// driver. What the module itself names are the files of every device it knows: those are only counted.
func (in *inspection) checkFirmware(s *subject) (string, *accel.Problem) {
	if problem := in.conflict(); problem != nil {
		return "", problem
	}
	found := func(file string) bool {
		return FindFirmware(in.h, file, in.kernel.Release) != "" || slices.ContainsFunc(in.bundled,
			func(f artifact.File) bool { return f.Path == file })
	}
	for _, file := range s.firmware {
		// A template may say that nothing is needed.
		if file != "" && !found(file) {
			return "", accel.Problemf(accel.FirmwareMissing,
				"module %q needs firmware %q, which is not below /lib/firmware", s.wants, file)
		}
	}
	there := 0
	for _, file := range s.Image.firmware {
		if found(file) {
			there++
		}
	}
	switch {
	case len(s.Image.firmware) > 0:
		return fmt.Sprintf("%d of %d files that the module may ask for", there, len(s.Image.firmware)), nil
	case len(s.firmware) > 0:
		return fmt.Sprintf("all %d files", len(s.firmware)), nil
	}
	return "", nil
}
