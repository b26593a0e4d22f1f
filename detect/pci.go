package detect

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// PCI lists the PCI functions ordered by address, and what could not be read. A function without a readable class,
// vendor or device id is reported as a problem and left out.
func PCI(h *host.Host) ([]accel.PCIDevice, []string) { return functions(h, nil) }

// functions is [PCI]. What cannot be read, for example because no file can be opened, is as it was in the last list.
func functions(h *host.Host, last []accel.PCIDevice) ([]accel.PCIDevice, []string) {
	all, err := h.OpenDir(pciDevices)
	if err != nil {
		return last, []string{fmt.Sprintf("cannot list PCI functions: %v", err)}
	}
	defer all.Close()
	names, err := all.Names()
	if err != nil {
		return last, []string{fmt.Sprintf("cannot list PCI functions: %v", err)}
	}
	var problems, strange []string
	devices := make([]accel.PCIDevice, 0, len(names))
	for _, name := range names {
		if !isAddress(name) {
			strange = append(strange, name)
			continue
		}
		d, err := function(all, name)
		if err != nil {
			problems = append(problems, fmt.Sprintf("cannot read %s/%s: %v", pciDevices, name, err))
			i := slices.IndexFunc(last, func(l accel.PCIDevice) bool { return l.Address == name })
			if i >= 0 && d.Vendor == "" && unread(err) {
				d = last[i]
			}
		}
		if d.Vendor != "" {
			devices = append(devices, d)
		}
	}
	if err := switched(h, devices); err != nil {
		problems = append(problems, err.Error())
	}
	if len(strange) > 0 {
		problems = append(problems, fmt.Sprintf("%d entries of %s are not PCI addresses, such as %q", len(strange),
			pciDevices, clip(strange[0])))
	}
	return devices, problems
}

// switched notes which functions acceld gives out with another driver than their kind's.
func switched(h *host.Host, devices []accel.PCIDevice) error {
	all, err := h.Devices().Switched()
	for i := range devices { // also with an error: the others are known
		devices[i].Switched = nil // what the last detection found may be over
		if s, ok := all[devices[i].Address]; ok {
			devices[i].Switched = &s
		}
	}
	return err
}

// unread reports whether err is the kernel's refusal to read what is there. ENODEV is its answer for a device that is
// being removed.
func unread(err error) bool {
	var refusal syscall.Errno
	return errors.As(err, &refusal) && refusal != syscall.ENOENT && refusal != syscall.ENODEV
}

// function reads one function. Even with an error, the device is usable if its Vendor is set.
func function(all *host.Dir, address string) (accel.PCIDevice, error) {
	dir, err := all.Sub(address)
	if err != nil {
		return accel.PCIDevice{}, err
	}
	defer dir.Close()
	r := reader{dir: dir}
	d := accel.PCIDevice{Address: address, NUMANode: -1, IOMMUGroup: -1, ParentPort: parentPort(all.Readlink(address))}
	r.identity(&d)
	if r.err != nil {
		return accel.PCIDevice{}, r.err
	}
	d.Revision = r.hex("revision", 2)
	d.NUMANode = max(-1, r.number("numa_node", -1))
	if link := dir.Readlink("iommu_group"); link != "" {
		if n, err := strconv.Atoi(path.Base(link)); err == nil && n >= 0 {
			d.IOMMUGroup = n
		}
	}
	if o := r.text("driver_override"); o != "(null)" {
		d.Override = o
	}
	if s := r.text("current_link_speed"); s != "" { // only PCI Express functions have these four
		d.Link = accel.Link{
			SpeedGTs: speed(s), MaxSpeedGTs: speed(r.text("max_link_speed")),
			Width: r.width("current_link_width"), MaxWidth: r.width("max_link_width"),
		}
	}
	if d.SRIOV.TotalVFs = max(0, r.number("sriov_totalvfs", 0)); d.SRIOV.TotalVFs > 0 {
		d.SRIOV.NumVFs = max(0, r.number("sriov_numvfs", 0))
	} else if pf := path.Base(dir.Readlink("physfn")); isAddress(pf) {
		d.SRIOV.PhysFn = pf
	}
	return d, r.err
}

// reader reads attributes of one function and keeps the first error. An absent attribute is not an error.
type reader struct {
	dir *host.Dir
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) text(file string) string {
	s, err := r.dir.Read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fail(err)
	}
	if err == nil && !printable(s) {
		r.fail(fmt.Errorf("%s: not text", file))
		return ""
	}
	return s
}

func (r *reader) number(file string, absent int) int {
	s := r.text(file)
	if s == "" {
		return absent
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		r.fail(fmt.Errorf("%s: %q is not a number", file, clip(s)))
		return absent
	}
	return int(n)
}

// width returns a number of lanes. The kernel reports 255 if it is unknown (PCIE_LNK_WIDTH_UNKNOWN).
func (r *reader) width(file string) int {
	if n := r.number(file, 0); n > 0 && n < 255 {
		return n
	}
	return 0
}

// hex reads "0x" followed by the given number of hexadecimal digits, and returns the digits in lower case.
func (r *reader) hex(file string, digits int) string {
	s := r.text(file)
	if s == "" {
		return ""
	}
	v := strings.ToLower(strings.TrimPrefix(s, "0x"))
	if len(v) != digits || !isHex(v) {
		r.fail(fmt.Errorf("%s: %q is not %d hexadecimal digits", file, clip(s), digits))
		return ""
	}
	return v
}

// identity fills in the IDs and the driver: from the one file that has them all (drivers/pci/pci-driver.c,
// pci_uevent), or from one file each if a copy lacks it.
func (r *reader) identity(d *accel.PCIDevice) {
	if s, err := r.dir.Read("uevent"); err == nil && uevent(s, d) {
		return
	}
	d.Class, d.Vendor, d.Device = r.hex("class", 6), r.hex("vendor", 4), r.hex("device", 4)
	d.SubVendor, d.SubDevice = r.hex("subsystem_vendor", 4), r.hex("subsystem_device", 4)
	if link := r.dir.Readlink("driver"); link != "" {
		d.Driver = path.Base(link)
	}
	for _, must := range []struct{ file, text string }{{"class", d.Class}, {"vendor", d.Vendor}, {"device", d.Device}} {
		if must.text == "" {
			r.fail(fmt.Errorf("%s: not there", must.file))
		}
	}
}

// uevent parses a PCI function's uevent file: DRIVER=edu, PCI_CLASS=FF00 (without leading zeros), PCI_ID=1234:11E8,
// PCI_SUBSYS_ID=1AF4:1100. It reports whether the IDs were there and well formed; otherwise d is unchanged.
func uevent(s string, d *accel.PCIDevice) bool {
	var driver, class, id, sub string
	for line := range strings.SplitSeq(s, "\n") {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "DRIVER":
			driver = value
		case "PCI_CLASS":
			class = value
		case "PCI_ID":
			id = value
		case "PCI_SUBSYS_ID":
			sub = value
		}
	}
	vendor, device, ok := pair(id)
	if !ok || class == "" || len(class) > 6 || !isHex(class) || !printable(driver) || strings.Contains(driver, "/") {
		return false
	}
	d.Driver, d.Vendor, d.Device = driver, vendor, device
	d.Class = strings.ToLower(strings.Repeat("0", 6-len(class)) + class)
	d.SubVendor, d.SubDevice, _ = pair(sub)
	return true
}

func pair(s string) (a, b string, ok bool) {
	if len(s) != 9 || s[4] != ':' || !isHex(s[:4]) || !isHex(s[5:]) {
		return "", "", false
	}
	s = strings.ToLower(s)
	return s[:4], s[5:], true
}

// speed parses "16.0 GT/s PCIe"; anything else, such as "Unknown", is 0.
func speed(s string) float64 {
	number, unit, _ := strings.Cut(s, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "GT/s") || v < 0 || v > 1e6 || v != v {
		return 0
	}
	return v
}

// parentPort extracts the bridge above from "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0".
func parentPort(link string) string {
	if p := path.Base(path.Dir(link)); isAddress(p) {
		return p
	}
	return ""
}

// isAddress reports whether s is "domain:bus:device.function". The domain has four digits or more (VMD has five).
func isAddress(s string) bool {
	n := len(s)
	return n >= 12 && n <= 16 && s[n-2] == '.' && s[n-5] == ':' && s[n-8] == ':' &&
		isHex(s[:n-8]) && isHex(s[n-7:n-5]) && isHex(s[n-4:n-2]) && s[n-1] >= '0' && s[n-1] <= '7'
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return s != ""
}

// printable reports whether s can be shown and compared; attributes are ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\n' && s[i] != '\t' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// clip shortens text that may be hostile for use in a sentence.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
