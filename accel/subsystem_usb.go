package accel

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// usbSubsystem has USB devices: "usb:0000:00:14.0-v2-1.4" is what is plugged into port 4 of the hub in port 1 of the
// controller's USB 2 half. That is where a device is: two of one model differ in nothing else.
func usbSubsystem() Subsystem {
	return Subsystem{
		Name: "usb", Dir: "/sys/bus/usb/devices", Words: []string{"vendor", "device", "class", "driver"}, Binds: "usb",
		entry: usbDevice, place: usbPlace, identify: usbIdentity,
	}
}

var (
	usbDevice    = regexp.MustCompile(`^[0-9]+-[0-9]+(\.[0-9]+)*$`)                     // bus and ports
	usbInterface = regexp.MustCompile(`^[0-9]+-[0-9]+(\.[0-9]+)*:[0-9]+\.[0-9]+$`)      // configuration and number
	usbHub       = regexp.MustCompile(`^(/sys/devices/.+)/(usb[0-9]+)/([0-9]+-[0-9]+` + // the root hub, and what is below it
		`(?:\.[0-9]+)*(?:/|$).*)$`)
	usbVersion = regexp.MustCompile(`^ *([1-9])\.[0-9]{2}$`)
)

// usbPlace names the controller, the version of its root hub and the ports. The number of the bus depends on which
// controller is found first; a controller for USB 3 has a hub for each version, with ports of the same numbers.
func usbPlace(dir string, read func(file string) string) string {
	m := usbHub.FindStringSubmatch(dir)
	if m == nil {
		return ""
	}
	version := usbVersion.FindStringSubmatch(read(path.Join(m[1], m[2], "version")))
	if version == nil {
		return ""
	}
	name, _, _ := strings.Cut(path.Base(dir), ":") // of the device, for an interface of it
	_, ports, _ := strings.Cut(name, "-")
	return anchor(m[1], read) + "-v" + version[1] + "-" + ports
}

// usbIdentity parses PRODUCT, with vendor, product and release in hexadecimal, and TYPE, with class, subclass and
// protocol in decimal digits, both without leading zeros (usb_uevent, drivers/usb/core/driver.c).
func usbIdentity(d *Device, vars map[string]string) {
	if ids := strings.Split(vars["PRODUCT"], "/"); len(ids) == 3 {
		vendor, product := hexadecimal(ids[0], 16, 16), hexadecimal(ids[1], 16, 16)
		if vendor != "" && product != "" {
			d.Vendor, d.Device = vendor, product
		}
	}
	if parts := strings.Split(vars["TYPE"], "/"); len(parts) == 3 {
		class, sub, protocol := hexadecimal(parts[0], 10, 8), hexadecimal(parts[1], 10, 8), hexadecimal(parts[2], 10, 8)
		if class != "" && sub != "" && protocol != "" {
			d.Class = class + sub + protocol
		}
	}
}

// hexadecimal returns a number of so many bits as hexadecimal digits in lower case, all of them; empty for what is
// none.
func hexadecimal(text string, base, bits int) string {
	v, err := strconv.ParseUint(text, base, bits)
	if err != nil || strings.HasPrefix(text, "+") {
		return ""
	}
	digits := strconv.FormatUint(v, 16)
	return strings.Repeat("0", bits/4-len(digits)) + digits
}
