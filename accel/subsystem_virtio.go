package accel

import (
	"path"
	"regexp"
)

// virtioSubsystem has virtio devices, by what they are on: "virtio:0000:00:05.0" is that of a PCI function, and
// "virtio:a003e00.virtio_mmio" one of the platform.
func virtioSubsystem() Subsystem {
	return Subsystem{
		Name: "virtio", Dir: "/sys/bus/virtio/devices", Words: []string{"vendor", "device", "driver"},
		place: virtioPlace, identify: virtioIdentity,
	}
}

// virtioPlace names what has the device: each transport has exactly one.
func virtioPlace(dir string, read func(file string) string) string {
	return anchor(path.Dir(dir), read)
}

var virtioAlias = regexp.MustCompile(`^virtio:d0000([0-9A-F]{4})v0000([0-9A-F]{4})$`)

// virtioIdentity parses MODALIAS (virtio_uevent, drivers/virtio/virtio.c). The device is its type, such as 0014 for
// crypto (Virtual I/O Device 1.2, 5).
func virtioIdentity(d *Device, vars map[string]string) {
	if m := virtioAlias.FindStringSubmatch(vars["MODALIAS"]); m != nil {
		d.Device, d.Vendor = hexadecimal(m[1], 16, 16), hexadecimal(m[2], 16, 16)
	}
}
