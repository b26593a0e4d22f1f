// Package hosttest is a simulated machine for tests: sysfs, proc and etc in a temporary directory. Adding PCI
// functions, loading modules, and binding and unbinding have the same effects on the files as in the kernel. The
// package is for tests only, needs no privileges and runs no programs.
//
// When the code under test writes to bind, unbind or driver_override, only the file changes. The test calls
// [Machine.Bind] and [Machine.Unbind] for their effects.
package hosttest

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
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

	t       testing.TB
	mu      sync.Mutex
	pci     map[string]accel.PCIDevice
	drivers map[string]Driver // by module
	minor   int
	writes  atomic.Int64
}

// Driver is a kernel module with a PCI driver of the same name in it.
type Driver struct {
	Module string
	// IDs are the devices that it binds, each "vendor:device".
	IDs []string
	// Version is shown in /sys/module unless empty.
	Version string
	// Node is the device directory below a bound function, such as "accel/edu%d" with the number of the device;
	// empty for none. Its base name is the name in /dev.
	Node string
}

// New returns a running x86_64 machine of kernel 6.1.0-test with no PCI function and no module.
func New(t testing.TB) *Machine {
	t.Helper()
	h, err := host.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{Host: h, t: t, pci: map[string]accel.PCIDevice{}, drivers: map[string]Driver{}}
	for name, text := range map[string]string{
		"/proc/sys/kernel/osrelease":        "6.1.0-test\n",
		"/proc/sys/kernel/version":          "#1 SMP test\n",
		"/proc/sys/kernel/arch":             "x86_64\n",
		"/proc/sys/kernel/random/boot_id":   "00000000-0000-4000-8000-000000000001\n",
		"/proc/sys/kernel/tainted":          "0\n",
		"/proc/sys/kernel/modules_disabled": "0\n",
		"/sys/kernel/notes": "\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00" + // an ELF note, little-endian
			strings.Repeat("\xa1", 20),
		"/etc/os-release": "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
	} {
		m.File(name, text)
	}
	for _, dir := range []string{"/sys/bus/pci/devices", "/sys/bus/pci/drivers", "/sys/module", "/dev"} {
		m.Dir(dir)
	}
	return m
}

// File writes a file of the machine and creates its directories.
func (m *Machine) File(name, text string) {
	m.t.Helper()
	p := m.path(name)
	m.Dir(path.Dir(name))
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
	m.Dir(path.Dir(name))
	m.Remove(name)
	m.check(os.Symlink(target, m.path(name)))
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

// AddPCI plugs in functions with their address, IDs, class and NUMA node. If ParentPort names an existing function, the
// new one is put below it. A loaded driver that knows the IDs binds it; d.Driver is ignored.
func (m *Machine) AddPCI(devices ...accel.PCIDevice) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range devices {
		d.Driver = ""
		m.pci[d.Address] = d
		dir := m.device(d.Address)
		m.File(dir+"/numa_node", strconv.Itoa(d.NUMANode)+"\n")
		m.File(dir+"/driver_override", "(null)\n")
		m.Link("/sys/bus/pci/devices/"+d.Address, "../../.."+strings.TrimPrefix(dir, "/sys"))
		m.uevent(d)
		for _, driver := range m.drivers {
			m.probe(driver, d.Address)
		}
	}
}

// Modprobe loads a module: it appears in /sys/module, and its driver binds every unbound function that it knows.
func (m *Machine) Modprobe(d Driver) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := "/sys/module/" + d.Module
	m.drivers[d.Module] = d
	m.Dir("/sys/bus/pci/drivers/" + d.Module)
	m.Dir(dir + "/holders")
	m.File(dir+"/refcnt", "0\n")
	if d.Version != "" {
		m.File(dir+"/version", d.Version+"\n")
	}
	m.File(dir+"/initstate", "live\n")
	for _, a := range slices.Sorted(maps.Keys(m.pci)) { // the kernel goes through the bus in order
		m.probe(d, a)
	}
}

// Bind binds the driver of a loaded module to a function regardless of its IDs, as driver_override does.
func (m *Machine) Bind(address, module string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bind(m.drivers[module], address)
}

func (m *Machine) probe(d Driver, address string) {
	there := m.Host.Exists("/sys/bus/pci/devices/" + address) // a test may have removed it
	if f := m.pci[address]; there && slices.Contains(d.IDs, f.Vendor+":"+f.Device) {
		m.bind(d, address)
	}
}

// bind creates the node, then the driver link, in the kernel's order.
func (m *Machine) bind(d Driver, address string) {
	f, ok := m.pci[address]
	if !ok || d.Module == "" || f.Driver != "" {
		return
	}
	dir := m.device(address)
	f.Driver = d.Module
	m.pci[address] = f
	if d.Node != "" {
		node := path.Join(dir, fmt.Sprintf(d.Node, m.minor))
		m.File(node+"/dev", fmt.Sprintf("240:%d\n", m.minor))
		m.File(node+"/uevent", fmt.Sprintf("MAJOR=240\nMINOR=%d\nDEVNAME=%s\n", m.minor, path.Base(node)))
		m.File("/dev/"+path.Base(node), "") // a real device node needs privileges that tests lack
		m.minor++
	}
	m.Link(dir+"/driver", "/sys/bus/pci/drivers/"+f.Driver)
	m.uevent(f)
}

// Unbind unbinds a function's driver.
func (m *Machine) Unbind(address string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.pci[address]
	if f.Driver == "" {
		return
	}
	dir := m.device(address)
	if node := m.drivers[f.Driver].Node; node != "" {
		class := path.Dir(node)
		for _, n := range m.Host.Glob(dir, class+"/*") {
			m.Remove("/dev/" + path.Base(n))
		}
		m.Remove(path.Join(dir, class))
	}
	// The kernel never reuses this link's inode number for the next link. A file system could if the link were
	// removed, so it is moved away.
	m.Dir("/past")
	m.check(os.Rename(m.path(dir+"/driver"), m.path(fmt.Sprintf("/past/%d", m.writes.Add(1)))))
	f.Driver = ""
	m.pci[address] = f
	m.uevent(f)
}

// uevent writes the uevent file, with the IDs and the driver.
func (m *Machine) uevent(d accel.PCIDevice) {
	var driver string
	if d.Driver != "" {
		driver = "DRIVER=" + d.Driver + "\n"
	}
	ids := fmt.Sprintf("PCI_CLASS=%s\nPCI_ID=%s:%s\n", strings.TrimLeft(d.Class, "0"), d.Vendor, d.Device)
	m.File(m.device(d.Address)+"/uevent", driver+strings.ToUpper(ids)+"PCI_SLOT_NAME="+d.Address+"\n")
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

func (m *Machine) path(name string) string { return filepath.Join(m.Host.Root(), name) }

func (m *Machine) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("fake machine: %v", err)
	}
}

// AddDevice plugs in a device of another subsystem than PCI at a directory below /sys/devices, with its uevent file.
// Files are further attributes. The directory above need not exist.
func (m *Machine) AddDevice(subsystem, dir, uevent string, files map[string]string) {
	m.t.Helper()
	s, ok := accel.SubsystemNamed(subsystem)
	if !ok {
		m.t.Fatalf("fake machine: there is no subsystem %q", subsystem)
	}
	m.File(dir+"/uevent", uevent)
	for name, text := range files {
		m.File(path.Join(dir, name), text+"\n")
	}
	up := strings.Repeat("../", strings.Count(s.Dir, "/")-1)
	m.Link(path.Join(s.Dir, path.Base(dir)), up+strings.TrimPrefix(dir, "/sys/"))
	if s.Class {
		m.Link(dir+"/device", "../..")
	}
}
