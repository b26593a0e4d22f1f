package driver

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/ko"
)

// testMachine is a tree that looks like a machine, and a kernel whose loads change it.
type testMachine struct {
	t    *testing.T
	root string
	h    *host.Host
	mu   sync.Mutex

	loads, unloads []string // what the kernel was asked, in order
	parameters     map[string]string
	refuse         map[string]error // by module, on load
	refuseUnload   map[string]error
	failProbe      map[string]bool // by device: it is not bound
	noNodes        bool
	hang           bool
	devices        []string
	onLoad         func(name string)
	attributes     []string // what the PCI bus was told, in order
	// refuseAttribute is how the kernel refuses to unbind, reset or bind.
	refuseAttribute map[string]error
	bad             map[string]string // by version: "denied", "refused", "unbound" or "wrong", how it fails
	before          func(op string)   // called before and after each load and unload
}

func newMachine(t *testing.T) *testMachine {
	t.Helper()
	m := &testMachine{t: t, root: t.TempDir(), parameters: map[string]string{}, refuse: map[string]error{}, refuseUnload: map[string]error{}, failProbe: map[string]bool{}}
	m.write("/proc/sys/kernel/tainted", "0\n")
	m.write("/proc/sys/kernel/random/boot_id", "boot-1\n")
	m.write("/dev/kmsg", "")
	m.write("/sys/module/.keep", "")
	m.write("/lib/modules/"+ko.Release+"/modules.builtin", "kernel/fs/builtinfs.ko\n")
	m.addDevice(ko.Device)
	h, err := host.New(m.root)
	if err != nil {
		t.Fatal(err)
	}
	m.h = h
	return m
}

func (m *testMachine) path(name string) string { return filepath.Join(m.root, name) }

func (m *testMachine) write(name, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *testMachine) addDevice(id string) {
	m.devices = append(m.devices, id)
	m.write("/sys/bus/pci/devices/"+id+"/vendor", "0x1234\n")
}

func (m *testMachine) accs() []accel.Accelerator {
	var out []accel.Accelerator
	for _, id := range m.devices {
		out = append(out, accel.Accelerator{ID: id, Health: accel.Health{State: accel.Healthy}})
	}
	return out
}

func (m *testMachine) bind(id, driver string) {
	m.t.Helper()
	dir := m.path("/sys/bus/pci/drivers/" + driver)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink("../../drivers/"+driver, m.path("/sys/bus/pci/devices/"+id+"/driver")); err != nil {
		m.t.Fatal(err)
	}
}

// install puts modules below /lib/modules with their modules.dep line.
func (m *testMachine) install(file string, module ko.Module, depends ...string) {
	m.t.Helper()
	dir := "/lib/modules/" + ko.Release + "/"
	m.write(dir+file, string(module.Bytes()))
	old, _ := os.ReadFile(m.path(dir + "modules.dep"))
	m.write(dir+"modules.dep", string(old)+file+": "+strings.Join(depends, " ")+"\n")
}

// live shows a module in sysfs as the kernel does.
func (m *testMachine) live(x ko.Module) {
	dir := "/sys/module/" + x.Name + "/"
	m.write(dir+"initstate", "live\n")
	m.write(dir+"refcnt", "0\n")
	if x.Version != "" {
		m.write(dir+"version", x.Version+"\n")
	}
	id, _ := hex.DecodeString(x.BuildID)
	ne := binary.NativeEndian
	note := ne.AppendUint32(ne.AppendUint32(ne.AppendUint32(nil, 4), uint32(len(id))), 3)
	m.write(dir+"notes/.note.gnu.build-id", string(append(append(note, "GNU\x00"...), id...)))
}

func (m *testMachine) Load(ctx context.Context, f *os.File, parameters string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	module, problem := readModule(f, st.Size())
	if problem != nil {
		return syscall.ENOEXEC
	}
	m.tell("load " + module.name)
	defer m.tell("load " + module.name)
	m.loads = append(m.loads, module.name)
	m.parameters[module.name] = parameters
	if m.onLoad != nil {
		m.onLoad(module.name)
	}
	if m.hang {
		m.write("/sys/module/"+module.name+"/initstate", "coming\n")
		<-ctx.Done()
		return ctx.Err()
	}
	if err := m.refuse[module.name]; err != nil {
		return err
	}
	if _, err := os.Stat(m.path("/sys/module/" + module.name)); err == nil {
		return syscall.EEXIST
	}
	if m.bad[module.version] == "denied" {
		return syscall.EPERM
	}
	m.live(ko.Module{Name: module.name, Version: module.version, BuildID: module.buildID})
	for _, p := range strings.Fields(parameters) {
		name, value, _ := strings.Cut(p, "=")
		m.write("/sys/module/"+module.name+"/parameters/"+name, value+"\n")
	}
	if m.bad[module.version] == "refused" {
		_ = os.RemoveAll(m.path("/sys/module/" + module.name))
		return syscall.ENOMEM
	}
	if module.name == "edu" && m.bad[module.version] != "unbound" {
		m.probe()
	}
	for _, id := range m.devices {
		answer := "3628800\n"
		if m.bad[module.version] == "wrong" {
			answer = "0\n"
		}
		m.write("/sys/bus/pci/devices/"+id+"/factorial", answer)
	}
	return nil
}

func (m *testMachine) tell(op string) {
	if m.before != nil {
		m.before(op)
	}
}

func (m *testMachine) probe() {
	for _, id := range m.devices {
		if _, err := os.Lstat(m.path("/sys/bus/pci/devices/" + id + "/driver")); err == nil || m.failProbe[id] {
			continue
		}
		m.bindEdu(id)
	}
}

// bindEdu binds our driver to a device and makes its node.
func (m *testMachine) bindEdu(id string) {
	m.bind(id, "edu")
	node := fmt.Sprintf("edu%d", slices.Index(m.devices, id))
	dir := "/sys/bus/pci/devices/" + id + "/accelerator_edu/" + node
	m.write(dir+"/dev", fmt.Sprintf("240:%d\n", slices.Index(m.devices, id)))
	m.write(dir+"/uevent", "MAJOR=240\nDEVNAME="+node+"\n")
	if !m.noNodes {
		m.write("/dev/"+node, "")
	}
}

func (m *testMachine) Unload(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell("unload " + name)
	defer m.tell("unload " + name)
	m.unloads = append(m.unloads, name)
	if err := m.refuseUnload[name]; err != nil {
		return err
	}
	if err := os.RemoveAll(m.path("/sys/module/" + name)); err != nil {
		m.t.Fatal(err)
	}
	for _, id := range m.devices {
		if to, err := os.Readlink(m.path("/sys/bus/pci/devices/" + id + "/driver")); name == "edu" && err == nil && filepath.Base(to) == "edu" {
			_ = m.unbind(id)
		}
	}
	return nil
}

// unbind takes a device's driver away, and with ours its node.
func (m *testMachine) unbind(id string) error {
	_ = os.RemoveAll(m.path("/sys/bus/pci/devices/" + id + "/accelerator_edu"))
	_ = os.Remove(m.path(fmt.Sprintf("/dev/edu%d", slices.Index(m.devices, id))))
	return os.Remove(m.path("/sys/bus/pci/devices/" + id + "/driver"))
}

func (m *testMachine) driver(o Options) *Driver {
	o.Kernel = m
	d := New(m.h, o)
	d.settle = 50 * time.Millisecond
	d.attribute = m.attribute
	return d
}

// attribute does what the PCI bus does when it is told to unbind, bind or probe a device.
func (m *testMachine) attribute(name, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attributes = append(m.attributes, strings.TrimPrefix(name, "/sys/bus/pci/")+" "+text)
	override := "/sys/bus/pci/devices/" + text + "/driver_override"
	kept := ""
	if b, err := os.ReadFile(m.path(override)); err == nil && strings.HasPrefix(string(b), "edu") {
		kept = "edu" // what was there before was longer
	}
	if err := m.refuseAttribute[filepath.Base(name)]; err != nil {
		return err
	}
	switch {
	case strings.HasSuffix(name, "/unbind"):
		return m.unbind(text)
	case strings.HasSuffix(name, "/reset"):
		return nil
	case strings.HasSuffix(name, "/bind"):
		driver := filepath.Base(filepath.Dir(name))
		if kept != "" && kept != driver {
			return syscall.ENODEV
		}
		if driver == "edu" {
			m.bindEdu(text)
		} else {
			m.bind(text, driver)
		}
		return nil
	}
	if _, err := os.Stat(m.path("/sys/module/edu")); err == nil {
		m.probe()
	}
	return nil
}

func (m *testMachine) facts() accel.Facts {
	return accel.Facts{
		Kernel: accel.Kernel{Release: ko.Release, Version: "#1 SMP", Arch: "x86_64", BuildID: "abcdef0123456789"},
		OS:     accel.OS{ID: "debian", VersionID: "12"},
	}
}

// enter puts an entry into the store as a build does.
func (m *testMachine) enter(d *Driver, x ko.Module, built int64) Entry {
	m.t.Helper()
	return m.enterFor(m.facts().Kernel, d, x, built)
}

// enterFor puts an entry for a kernel into the store.
func (m *testMachine) enterFor(k accel.Kernel, d *Driver, x ko.Module, built int64) Entry {
	m.t.Helper()
	data := x.Bytes()
	sum, err := digest(bytes.NewReader(data))
	if err != nil {
		m.t.Fatal(err)
	}
	man := Manifest{
		Schema: storeSchema, Built: time.Unix(built, 0).UTC(), Modules: []StoredModule{{Name: x.Name, File: x.Name + ".ko", SHA256: sum, BuildID: x.BuildID, Version: x.Version}},
		Identity: Identity{Kind: "qemu-edu", Version: x.Version, SourceDigest: fmt.Sprint(built), Arch: k.Arch, KernelRelease: k.Release, KernelID: kernelID(k)},
	}
	man.Key = man.Identity.key()
	text, err := json.Marshal(man)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(d.entryDir(man.Key)+"/manifest.json", string(text))
	m.write(d.entryDir(man.Key)+"/"+x.Name+".ko", string(data))
	return Entry{Manifest: man, Path: d.entryDir(man.Key)}
}
