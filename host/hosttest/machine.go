// Package hosttest is a simulated machine for tests: sysfs, proc and etc in a temporary directory. Adding and removing
// PCI functions, loading and unloading modules, and binding and unbinding have the same effects as in the kernel and
// are reported as uevents. The package is for tests only, needs no privileges and runs no programs.
//
// When the code under test writes to bind, unbind or driver_override, only the file changes. The test calls
// [Machine.Bind] and [Machine.Unbind] for their effects.
package hosttest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Machine is the simulated machine. Its methods are safe for concurrent use and fail the test if the file system
// fails.
type Machine struct {
	// Host is the machine as code under test sees it.
	Host *host.Host
	// Events delivers what [host.Kernel.Uevents] would deliver. A test that leaves more than 4096 unread fails.
	Events <-chan host.Uevent

	t       testing.TB
	root    string
	events  chan host.Uevent
	mu      sync.Mutex
	pci     map[string]accel.PCIDevice
	drivers map[string]Driver // by module
	minor   int
	writes  atomic.Int64
}

// Driver is a kernel module with a PCI driver in it.
type Driver struct {
	// Module is its name; the PCI driver has the same name unless Name is set.
	Module, Name string
	// IDs are the devices that it binds, each "vendor:device".
	IDs []string
	// Version, SrcVersion and BuildID (hex) are shown in /sys/module unless empty.
	Version, SrcVersion, BuildID string
	// Node is the device directory below a bound function, such as "accel/edu%d" with the number of the device;
	// empty for none. Its base name is the name in /dev.
	Node string
	// Attributes are files that a bound function has, such as "health": "ok".
	Attributes map[string]string
}

func (d Driver) name() string {
	if d.Name != "" {
		return d.Name
	}
	return d.Module
}

// New returns a running x86_64 machine of kernel 6.1.0-test with no PCI function and no module.
func New(t testing.TB) *Machine {
	t.Helper()
	m := &Machine{
		t: t, root: t.TempDir(), events: make(chan host.Uevent, 4096), pci: map[string]accel.PCIDevice{},
		drivers: map[string]Driver{},
	}
	m.Events = m.events
	h, err := host.New(m.root)
	if err != nil {
		t.Fatal(err)
	}
	m.Host = h
	m.SetKernel("6.1.0-test", "#1 SMP test", "x86_64")
	m.File("/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000001\n")
	m.File("/proc/sys/kernel/tainted", "0\n")
	m.File("/proc/sys/kernel/modules_disabled", "0\n")
	m.File("/sys/kernel/notes", note(strings.Repeat("a1", 20)))
	m.File("/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")
	for _, dir := range []string{
		"/sys/bus/pci/devices", "/sys/bus/pci/drivers", "/sys/module",
		"/sys/kernel/iommu_groups", "/dev",
	} {
		m.Dir(dir)
	}
	return m
}

// SetKernel sets uname's release, version and machine.
func (m *Machine) SetKernel(release, version, arch string) {
	m.t.Helper()
	m.File("/proc/sys/kernel/osrelease", release+"\n")
	m.File("/proc/sys/kernel/version", version+"\n")
	m.File("/proc/sys/kernel/arch", arch+"\n")
}

// File writes a file of the machine and creates its directories.
func (m *Machine) File(name, text string) {
	m.t.Helper()
	p := m.path(name)
	m.check(os.MkdirAll(filepath.Dir(p), 0o755))
	// Renamed into place: a reader of sysfs never sees half an attribute.
	temporary := fmt.Sprintf("%s/.%s.%d", filepath.Dir(p), filepath.Base(p), m.writes.Add(1))
	m.check(os.WriteFile(temporary, []byte(text), 0o644))
	m.check(os.Rename(temporary, p))
}

// Dir creates a directory of the machine.
func (m *Machine) Dir(name string) {
	m.t.Helper()
	m.check(os.MkdirAll(m.path(name), 0o755))
}

// Link creates or replaces a symbolic link.
func (m *Machine) Link(name, target string) {
	m.t.Helper()
	p := m.path(name)
	m.check(os.MkdirAll(filepath.Dir(p), 0o755))
	m.check(os.RemoveAll(p))
	m.check(os.Symlink(target, p))
}

// Remove removes a tree of the machine.
func (m *Machine) Remove(name string) {
	m.t.Helper()
	m.check(os.RemoveAll(m.path(name)))
}

// SetAttribute writes an attribute of the PCI function at address.
func (m *Machine) SetAttribute(address, file, text string) {
	m.t.Helper()
	m.File(path.Join(m.device(address), file), text+"\n")
}

// RemoveAttribute removes an attribute of the PCI function at address.
func (m *Machine) RemoveAttribute(address, file string) {
	m.t.Helper()
	m.Remove(path.Join(m.device(address), file))
}

// Change sends the uevent "change" of a PCI function, with the extra variables "NAME=value".
func (m *Machine) Change(address string, vars ...string) {
	m.t.Helper()
	m.tell("change", m.device(address), "pci", vars...)
}

// AddPCI plugs in functions. If ParentPort names an existing function, the new one is put below it. A loaded driver
// that knows the IDs binds it; d.Driver is ignored.
func (m *Machine) AddPCI(devices ...accel.PCIDevice) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range devices {
		d.Driver = ""
		m.pci[d.Address] = d
		dir := m.device(d.Address)
		for file, text := range map[string]string{
			"class": "0x" + d.Class, "vendor": "0x" + d.Vendor, "device": "0x" + d.Device, "revision": "0x" +
				or(d.Revision, "00"),
			"subsystem_vendor": "0x" + or(d.SubVendor, "0000"), "subsystem_device": "0x" + or(d.SubDevice, "0000"),
			"numa_node": strconv.Itoa(d.NUMANode), "driver_override": or(d.Override, "(null)"),
		} {
			m.File(path.Join(dir, file), text+"\n")
		}
		if d.Link.MaxWidth > 0 {
			m.File(dir+"/current_link_speed", fmt.Sprintf("%.1f GT/s PCIe\n", d.Link.SpeedGTs))
			m.File(dir+"/max_link_speed", fmt.Sprintf("%.1f GT/s PCIe\n", d.Link.MaxSpeedGTs))
			m.File(dir+"/current_link_width", fmt.Sprintf("%d\n", d.Link.Width))
			m.File(dir+"/max_link_width", fmt.Sprintf("%d\n", d.Link.MaxWidth))
		}
		if d.IOMMUGroup > 0 {
			m.Link(dir+"/iommu_group", fmt.Sprintf("/sys/kernel/iommu_groups/%d", d.IOMMUGroup))
		}
		m.Link("/sys/bus/pci/devices/"+d.Address, "../../.."+strings.TrimPrefix(dir, "/sys"))
		m.uevent(d)
		m.tell("add", dir, "pci")
		for _, driver := range m.drivers {
			m.probe(driver, d.Address)
		}
	}
}

// RemovePCI unplugs functions, bound or not.
func (m *Machine) RemovePCI(addresses ...string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range addresses {
		dir := m.device(a)
		m.unbind(a)
		m.Remove("/sys/bus/pci/devices/" + a)
		m.Remove(dir)
		delete(m.pci, a)
		m.tell("remove", dir, "pci")
	}
}

// Modprobe loads a module: it appears in /sys/module, and its driver binds every unbound function that it knows.
func (m *Machine) Modprobe(d Driver) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := "/sys/module/" + d.Module
	m.drivers[d.Module] = d
	m.Dir("/sys/bus/pci/drivers/" + d.name())
	m.Dir(dir + "/holders")
	m.File(dir+"/refcnt", "0\n")
	for file, text := range map[string]string{"version": d.Version, "srcversion": d.SrcVersion} {
		if text != "" {
			m.File(path.Join(dir, file), text+"\n")
		}
	}
	if d.BuildID != "" {
		m.File(dir+"/notes/.note.gnu.build-id", note(d.BuildID))
	}
	m.File(dir+"/initstate", "live\n")
	m.tell("add", "/module/"+d.Module, "module")
	for a := range m.pci {
		m.probe(d, a)
	}
}

// Rmmod unloads a module, after unbinding its functions.
func (m *Machine) Rmmod(module string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.drivers[module]
	for a, f := range m.pci {
		if f.Driver == d.name() {
			m.unbind(a)
		}
	}
	delete(m.drivers, module)
	m.Remove("/sys/bus/pci/drivers/" + d.name())
	m.Remove("/sys/module/" + module)
	m.tell("remove", "/module/"+module, "module")
}

// Bind binds the driver of a loaded module to a function regardless of its IDs, as driver_override does.
func (m *Machine) Bind(address, module string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bind(m.drivers[module], address)
}

// Unbind unbinds a function's driver.
func (m *Machine) Unbind(address string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unbind(address)
}

func (m *Machine) probe(d Driver, address string) {
	f := m.pci[address]
	for _, id := range d.IDs {
		if id == f.Vendor+":"+f.Device && (f.Override == "" || f.Override == d.name()) {
			m.bind(d, address)
		}
	}
}

// bind creates the node, then the driver link, then sends the event, in the kernel's order.
func (m *Machine) bind(d Driver, address string) {
	f, ok := m.pci[address]
	if !ok || d.Module == "" || f.Driver != "" {
		return
	}
	dir := m.device(address)
	f.Driver = d.name()
	m.pci[address] = f
	for file, text := range d.Attributes {
		m.File(path.Join(dir, file), text+"\n")
	}
	if d.Node != "" {
		node := path.Join(dir, fmt.Sprintf(d.Node, m.minor))
		m.File(node+"/dev", fmt.Sprintf("240:%d\n", m.minor))
		m.File(node+"/uevent", fmt.Sprintf("MAJOR=240\nMINOR=%d\nDEVNAME=%s\n", m.minor, path.Base(node)))
		m.File("/dev/"+path.Base(node), "") // a real device node needs privileges that tests lack
		m.minor++
		m.tell("add", node, path.Base(path.Dir(node)), "DEVNAME="+path.Base(node))
	}
	m.Link(dir+"/driver", "/sys/bus/pci/drivers/"+f.Driver)
	m.uevent(f)
	m.tell("bind", dir, "pci", "DRIVER="+f.Driver)
}

func (m *Machine) unbind(address string) {
	f := m.pci[address]
	if f.Driver == "" {
		return
	}
	dir := m.device(address)
	for _, d := range m.drivers {
		if d.name() != f.Driver {
			continue
		}
		if d.Node != "" {
			class := path.Dir(d.Node)
			for _, n := range m.Host.Glob(dir, class+"/*") {
				m.Remove("/dev/" + path.Base(n))
				m.tell("remove", n, class, "DEVNAME="+path.Base(n))
			}
			m.Remove(path.Join(dir, class))
		}
		for file := range d.Attributes {
			m.Remove(path.Join(dir, file))
		}
	}
	// The kernel never reuses this link's inode number for the next link. A file system could if the link were
	// removed, so it is moved away.
	m.Dir("/past")
	m.check(os.Rename(m.path(dir+"/driver"), m.path(fmt.Sprintf("/past/%d", m.writes.Add(1)))))
	f.Driver = ""
	m.pci[address] = f
	m.uevent(f)
	m.tell("unbind", dir, "pci")
}

// uevent writes the uevent file, with the IDs and the driver.
func (m *Machine) uevent(d accel.PCIDevice) {
	var driver string
	if d.Driver != "" {
		driver = "DRIVER=" + d.Driver + "\n"
	}
	m.File(m.device(d.Address)+"/uevent",
		driver+strings.ToUpper(fmt.Sprintf("PCI_CLASS=%s\nPCI_ID=%s:%s\nPCI_SUBSYS_ID=%s:%s\n",
			strings.TrimLeft(d.Class[:5], "0")+d.Class[5:], d.Vendor, d.Device, or(d.SubVendor, "0000"),
			or(d.SubDevice, "0000")))+
			"PCI_SLOT_NAME="+d.Address+"\n")
}

// device returns the directory of a function, whether or not it exists.
func (m *Machine) device(address string) string {
	if link, err := os.Readlink(m.path("/sys/bus/pci/devices/" + address)); err == nil {
		return "/sys" + strings.TrimPrefix(link, "../../..")
	}
	if up := m.pci[address].ParentPort; up != "" {
		return path.Join(m.device(up), address)
	}
	return "/sys/devices/pci0000:00/" + address
}

func (m *Machine) tell(action, dir, subsystem string, vars ...string) {
	m.t.Helper()
	dir = strings.TrimPrefix(dir, "/sys")
	e := host.Uevent{
		Action: action, DevPath: dir, Subsystem: subsystem,
		Vars: map[string]string{"ACTION": action, "DEVPATH": dir, "SUBSYSTEM": subsystem},
	}
	if subsystem == "pci" {
		e.Vars["PCI_SLOT_NAME"] = path.Base(dir)
	}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		e.Vars[name] = value
	}
	select {
	case m.events <- e:
	default:
		m.t.Error("the test takes no events: the queue is full")
	}
}

func (m *Machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *Machine) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("fake machine: %v", err)
	}
}

// note returns an ELF note with a build ID given in hex, little-endian.
func note(id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\x04\x00\x00\x00%c\x00\x00\x00\x03\x00\x00\x00GNU\x00", len(id)/2)
	for i := 0; i+1 < len(id); i += 2 {
		v, _ := strconv.ParseUint(id[i:i+2], 16, 8) // a test with invalid hex notices it in the build ID
		b.WriteByte(byte(v))
	}
	return b.String()
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
