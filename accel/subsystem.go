package accel

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// PCI is the subsystem of a definition whose rows name none.
const PCI = "pci"

// Subsystem is where devices are found: a bus or a class of the kernel. [Subsystems] has a row for each, and each row
// but that of PCI is a file of this package.
type Subsystem struct {
	// Name is the kernel's, such as "usb". The address of each of its devices begins with it; only PCI functions have
	// the bare address of the kernel.
	Name string
	// Dir has one link for each device, such as "/sys/bus/usb/devices".
	Dir string
	// Words are the fields of a [Match] that say something about its devices.
	Words []string
	// Class is true for a class of devices. They are what a driver makes of the device above them, and have no driver
	// themselves.
	Class bool
	// Binds is the driver that every device has, whatever the drivers of its parts are; empty if there is none.
	Binds string

	// entry matches the names in Dir that are devices; nil matches all.
	entry *regexp.Regexp
	// place returns what identifies the device at a path below /sys, across reboots as far as the hardware allows;
	// empty if that cannot be told. Read reads an attribute file of the machine, and returns "" for what it cannot
	// read.
	place func(dir string, read func(file string) string) string
	// identify fills in the ids and names of a device from its uevent variables.
	identify func(d *Device, vars map[string]string)
}

// Subsystems returns where devices can be found, PCI first.
func Subsystems() []Subsystem {
	return []Subsystem{
		pciSubsystem(), usbSubsystem(), virtioSubsystem(), auxiliarySubsystem(), platformSubsystem(),
		classSubsystem("accel", accelEntry), classSubsystem("drm", drmEntry),
		classSubsystem("infiniband", nil),
	}
}

func pciSubsystem() Subsystem {
	return Subsystem{
		Name: PCI, Dir: "/sys/bus/pci/devices", Words: []string{"vendor", "device", "class", "driver"},
	}
}

// SubsystemNames returns the names of [Subsystems].
func SubsystemNames() (names []string) {
	for _, s := range Subsystems() {
		names = append(names, s.Name)
	}
	return names
}

// SubsystemNamed returns a subsystem by its name; "" is PCI.
func SubsystemNamed(name string) (Subsystem, bool) {
	for _, s := range Subsystems() {
		if s.Name == name || name == "" && s.Name == PCI {
			return s, true
		}
	}
	return Subsystem{}, false
}

// SubsystemOf returns the subsystem of the device at an address.
func SubsystemOf(address string) Subsystem {
	name, _, _ := strings.Cut(address, ":")
	if strings.Trim(name, "0123456789abcdef") != "" { // not a PCI domain, which is the most frequent
		if s, ok := SubsystemNamed(name); ok && name != PCI {
			return s
		}
	}
	return pciSubsystem()
}

// OnPCI reports whether an address is that of a PCI function.
func OnPCI(address string) bool { return SubsystemOf(address).Name == PCI }

// Subsystem returns where devices of the kind are found. All rows of Match name the same one.
func (def *Definition) Subsystem() Subsystem {
	name := ""
	if len(def.Match) > 0 {
		name = def.Match[0].Subsystem
	}
	s, ok := SubsystemNamed(name)
	if !ok { // it was not validated, and matches nothing
		return Subsystem{Name: name}
	}
	return s
}

// On says for people where devices of the subsystem are.
func (s Subsystem) On() string {
	switch {
	case s.Name == PCI:
		return "on the PCI bus"
	case s.Class:
		return "in the class " + s.Name
	}
	return "on the " + s.Name + " bus"
}

// Serves reports whether the driver that is bound to a device, or none, is that of the kind. A device of a class
// without a driver is one of software alone.
func (def *Definition) Serves(bound string) bool {
	if def.Driver.Binds == "" {
		return bound != "" || def.Subsystem().Class
	}
	return bound == def.Driver.Binds
}

// addressForm is an address outside PCI: CDI allows these letters in the name of a device, and a letter or digit at its
// ends (parser.ValidateDeviceName of the CDI project, 1.0).
var addressForm = regexp.MustCompile(`^[a-z]+:[A-Za-z0-9]([A-Za-z0-9_.:-]{0,98}[A-Za-z0-9])?$`)

// pciAddress is the kernel's name of a PCI function. The domain has four digits or more (VMD has five).
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// IsAddress reports whether a text has the form of the address of a device.
func IsAddress(text string) bool {
	return pciAddress.MatchString(text) || !OnPCI(text) && addressForm.MatchString(text)
}

// IsDevice reports whether a name in Dir is that of a device. Of a device with parts, such as the interfaces of a USB
// device, only the whole is one.
func (s Subsystem) IsDevice(name string) bool {
	return s.entry == nil || s.entry.MatchString(name)
}

// Address returns the address of the device at a directory below /sys/devices, as links lead there; empty if it has
// none. Read reads a file of the machine, and returns "" for what it cannot read.
func (s Subsystem) Address(dir string, read func(file string) string) string {
	if s.place == nil || !strings.HasPrefix(dir, "/sys/devices/") || path.Clean(dir) != dir {
		return ""
	}
	place := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.:-", r) {
			return r
		}
		return '-' // such as the comma and the at sign in the names of device trees
	}, s.place(dir, read))
	if address := s.Name + ":" + strings.Trim(place, "_.:-"); addressForm.MatchString(address) {
		return address
	}
	return ""
}

// Device returns what the uevent file of the device at a directory says about it. Above is that of the directory above
// a device of a class, and otherwise empty. The address is that of [Subsystem.Address]. Ids and names that are not well
// formed are left out.
func (s Subsystem) Device(dir, address, uevent, above string) Device {
	d := Device{
		Subsystem: s.Name, Address: address, Name: path.Base(dir), NUMANode: -1, IOMMUGroup: -1,
		ParentPort: FunctionAbove(dir),
	}
	vars := variables(uevent)
	driver := vars["DRIVER"]
	if s.Class {
		driver = variables(above)["DRIVER"]
	}
	d.Driver = wellFormed(driver)
	if s.identify != nil {
		s.identify(&d, vars)
	}
	return d
}

// FunctionAbove returns the address of the PCI function that a device is on or below; empty if it is below none.
func FunctionAbove(dir string) string {
	for _, element := range slices.Backward(strings.Split(path.Dir(dir), "/")) {
		if pciAddress.MatchString(element) {
			return element
		}
	}
	return ""
}

// maxVariables is how many lines of a uevent file are looked at; the kernel has at most 64 (UEVENT_NUM_ENVP,
// include/linux/kobject.h).
const maxVariables = 64

// variables parses a uevent file: NAME=value, one a line.
func variables(uevent string) map[string]string {
	vars := map[string]string{}
	for line := range strings.SplitSeq(uevent, "\n") {
		if name, value, ok := strings.Cut(line, "="); ok && len(vars) < maxVariables {
			vars[name] = value
		}
	}
	return vars
}

// nameForm is a driver or another name by which drivers and devices find each other.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.,:@+-]{0,127}$`)

// wellFormed returns a name, or nothing if it does not look like one.
func wellFormed(name string) string {
	if nameForm.MatchString(name) {
		return name
	}
	return ""
}

// The kernel counts these as it finds them, so that they may be others after a reboot: virtio devices, root hubs, and
// platform devices with a number that the kernel chose (PLATFORM_DEVID_AUTO).
var numbered = regexp.MustCompile(`^(virtio[0-9]+|usb[0-9]+|.*\.[0-9]+\.auto)$`)

// anchor returns the address or name of what a device is below: the nearest thing whose name stays the same. Dir is the
// directory of that thing or one below it. It is empty for a device of software alone.
func anchor(dir string, read func(file string) string) string {
	elements := strings.Split(strings.TrimPrefix(dir, "/sys/devices/"), "/")
	for i, element := range slices.Backward(elements) {
		switch {
		case element == "virtual" && i == 0:
			return ""
		case numbered.MatchString(element):
		case usbInterface.MatchString(element), usbDevice.MatchString(element):
			return usbPlace("/sys/devices/"+strings.Join(elements[:i+1], "/"), read)
		default:
			return element
		}
	}
	return ""
}
