package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// files is the directory that contains /proc and /sys; empty for the machine's own root.
type files string

// text returns the trimmed content of a file; empty if it cannot be read.
func (f files) text(name string) string {
	b, err := os.ReadFile(filepath.Join("/", string(f), name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// module returns the version of the loaded kernel module.
func (f files) module() string { return f.text("/sys/module/nvidia/version") }

// machine returns the name of the computer's model.
func (f files) machine() string { return f.text("/sys/class/dmi/id/product_name") }

// capability returns the device node of a part of the capabilities tree, such as "gpu0/mig/gi1/access"; empty if there
// is none. The driver creates one file for each part, with a line "DeviceFileMinor: 12" (open-gpu-kernel-modules,
// nv-caps.c).
func (f files) capability(name string) string {
	for line := range strings.Lines(f.text("/proc/driver/nvidia/capabilities/" + name)) {
		key, value, _ := strings.Cut(line, ":")
		var minor int
		if _, err := fmt.Sscan(value, &minor); err == nil && key == "DeviceFileMinor" {
			return fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor)
		}
	}
	return ""
}
