package ko

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Machine is a tree that looks like a machine. Its methods fail the test when the file system does.
type Machine struct {
	T    testing.TB
	Root string // where the tree is
	Host *host.Host
	// Devices are the PCI addresses of those that the definition is for.
	Devices []string
}

// NewMachine makes a machine with one device whose kernel has no module.
func NewMachine(t testing.TB) *Machine {
	t.Helper()
	m := &Machine{T: t, Root: t.TempDir()}
	m.Write("/proc/sys/kernel/tainted", "0\n")
	m.Write("/proc/sys/kernel/random/boot_id", "boot-1\n")
	m.Write("/dev/kmsg", "")
	m.Write("/sys/module/.keep", "")
	m.Write("/lib/modules/"+Release+"/modules.builtin", "kernel/fs/builtinfs.ko\n")
	m.AddDevice(Device)
	h, err := host.New(m.Root)
	if err != nil {
		t.Fatal(err)
	}
	m.Host = h
	return m
}

// Path is where the test finds a file of the machine.
func (m *Machine) Path(name string) string { return filepath.Join(m.Root, name) }

// Write writes a file of the machine, with the directories that it is in.
func (m *Machine) Write(name, text string) {
	m.T.Helper()
	if err := os.MkdirAll(filepath.Dir(m.Path(name)), 0o755); err != nil {
		m.T.Fatal(err)
	}
	if err := os.WriteFile(m.Path(name), []byte(text), 0o644); err != nil {
		m.T.Fatal(err)
	}
}

// Read is the content of a file.
func (m *Machine) Read(name string) string {
	m.T.Helper()
	b, err := os.ReadFile(m.Path(name))
	if err != nil {
		m.T.Fatal(err)
	}
	return string(b)
}

// AddDevice puts a device on the bus.
func (m *Machine) AddDevice(id string) {
	m.Devices = append(m.Devices, id)
	m.Write("/sys/bus/pci/devices/"+id+"/vendor", "0x1234\n")
}

// Install puts modules below /lib/modules with their modules.dep line.
func (m *Machine) Install(file string, module Module, depends ...string) {
	m.T.Helper()
	dir := "/lib/modules/" + Release + "/"
	m.Write(dir+file, string(module.Bytes()))
	old, _ := os.ReadFile(m.Path(dir + "modules.dep")) // the first one makes it
	m.Write(dir+"modules.dep", string(old)+file+": "+strings.Join(depends, " ")+"\n")
}

// Live shows a module in sysfs as the kernel does.
func (m *Machine) Live(x Module) {
	dir := "/sys/module/" + x.Name + "/"
	m.Write(dir+"initstate", "live\n")
	m.Write(dir+"refcnt", "0\n")
	if x.Version != "" {
		m.Write(dir+"version", x.Version+"\n")
	}
	id, _ := hex.DecodeString(x.BuildID)
	ne := binary.NativeEndian
	note := ne.AppendUint32(ne.AppendUint32(ne.AppendUint32(nil, 4), uint32(len(id))), 3)
	m.Write(dir+"notes/.note.gnu.build-id", string(append(append(note, "GNU\x00"...), id...)))
}

// Facts are what detection finds on it.
func (m *Machine) Facts() accel.Facts {
	return accel.Facts{
		Kernel: accel.Kernel{Release: Release, Version: "#1 SMP", Arch: "x86_64", BuildID: "abcdef0123456789"},
		OS:     accel.OS{ID: "debian", VersionID: "12"},
	}
}
