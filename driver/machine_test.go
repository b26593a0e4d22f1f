package driver

import (
	"bytes"
	"context"
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
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/test/ko"
)

// testMachine is a tree that looks like a machine, and a kernel whose loads change it.
type testMachine struct {
	*ko.Machine
	mu sync.Mutex

	loads, unloads []string // what the kernel was asked to do, in order
	parameters     map[string]string
	refuse         map[string]error // by module, on load
	refuseUnload   map[string]error
	failProbe      map[string]bool // by device: it is not bound
	noNodes        bool
	noIDs          bool // the driver knows no device by its ids
	hang           bool
	onLoad         func(name string)
	attributes     []string // what was written to the PCI bus, in order
	// refuseAttribute is how the kernel refuses to unbind, reset or bind.
	refuseAttribute map[string]error
	bad             map[string]string // by version: "denied", "refused", "unbound" or "wrong", how it fails
	before          func(op string)   // called before and after each load and unload
}

func newMachine(t *testing.T) *testMachine {
	t.Helper()
	return &testMachine{
		Machine: ko.NewMachine(t), parameters: map[string]string{}, refuse: map[string]error{},
		refuseUnload: map[string]error{},
		failProbe:    map[string]bool{},
	}
}

func (m *testMachine) accs() []accel.Accelerator {
	var out []accel.Accelerator
	for _, id := range m.Devices {
		out = append(out, accel.Accelerator{ID: id, Health: accel.Health{State: accel.Healthy}})
	}
	return out
}

func (m *testMachine) bind(id, driver string) {
	m.T.Helper()
	dir := m.Path("/sys/bus/pci/drivers/" + driver)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.T.Fatal(err)
	}
	if err := os.Symlink("../../drivers/"+driver, m.Path("/sys/bus/pci/devices/"+id+"/driver")); err != nil {
		m.T.Fatal(err)
	}
}

func (m *testMachine) Load(ctx context.Context, f *os.File, parameters string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	module, problem := kmod.Read(f, st.Size())
	if problem != nil {
		return syscall.ENOEXEC
	}
	m.tell("load " + module.Name)
	defer m.tell("load " + module.Name)
	m.loads = append(m.loads, module.Name)
	m.parameters[module.Name] = parameters
	if m.onLoad != nil {
		m.onLoad(module.Name)
	}
	if m.hang {
		m.Write("/sys/module/"+module.Name+"/initstate", "coming\n")
		<-ctx.Done()
		return ctx.Err()
	}
	if err := m.refuse[module.Name]; err != nil {
		return err
	}
	if _, err := os.Stat(m.Path("/sys/module/" + module.Name)); err == nil {
		return syscall.EEXIST
	}
	if m.bad[module.Version] == "denied" {
		return syscall.EPERM
	}
	m.Live(ko.Module{Name: module.Name, Version: module.Version, BuildID: module.BuildID})
	for _, p := range strings.Fields(parameters) {
		name, value, _ := strings.Cut(p, "=")
		m.Write("/sys/module/"+module.Name+"/parameters/"+name, value+"\n")
	}
	if m.bad[module.Version] == "refused" {
		_ = os.RemoveAll(m.Path("/sys/module/" + module.Name))
		return syscall.ENOMEM
	}
	if module.Name == "edu" && m.bad[module.Version] != "unbound" {
		m.probe()
	}
	for _, id := range m.Devices {
		if _, err := os.Lstat(m.Path("/sys/bus/pci/devices/" + id + "/driver")); err != nil {
			continue // the attribute is the driver's
		}
		answer := "3628800\n"
		if m.bad[module.Version] == "wrong" {
			answer = "0\n"
		}
		m.Write("/sys/bus/pci/devices/"+id+"/factorial", answer)
	}
	return nil
}

func (m *testMachine) tell(op string) {
	if m.before != nil {
		m.before(op)
	}
}

func (m *testMachine) probe() {
	for _, id := range m.Devices {
		if _, err := os.Lstat(m.Path("/sys/bus/pci/devices/" + id + "/driver")); err == nil || m.failProbe[id] || m.noIDs && !m.kept(id) {
			continue
		}
		m.bindEdu(id)
	}
}

// bindEdu binds our driver to a device and makes its node.
func (m *testMachine) bindEdu(id string) {
	m.bind(id, "edu")
	node := fmt.Sprintf("edu%d", slices.Index(m.Devices, id))
	dir := "/sys/bus/pci/devices/" + id + "/accelerator_edu/" + node
	m.Write(dir+"/dev", fmt.Sprintf("240:%d\n", slices.Index(m.Devices, id)))
	m.Write(dir+"/uevent", "MAJOR=240\nDEVNAME="+node+"\n")
	if !m.noNodes {
		m.Write("/dev/"+node, "")
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
	if err := os.RemoveAll(m.Path("/sys/module/" + name)); err != nil {
		m.T.Fatal(err)
	}
	for _, id := range m.Devices {
		if to, err := os.Readlink(m.Path("/sys/bus/pci/devices/" + id + "/driver")); name == "edu" && err == nil &&
			filepath.Base(to) == "edu" {
			_ = m.unbind(id)
		}
	}
	return nil
}

// unbind unbinds a device from its driver; with our driver the node goes too.
func (m *testMachine) unbind(id string) error {
	_ = os.RemoveAll(m.Path("/sys/bus/pci/devices/" + id + "/accelerator_edu"))
	_ = os.Remove(m.Path(fmt.Sprintf("/dev/edu%d", slices.Index(m.Devices, id))))
	return os.Remove(m.Path("/sys/bus/pci/devices/" + id + "/driver"))
}

func (m *testMachine) driver(o Options) *Driver {
	o.Kernel = m
	d := New(m.Host, o)
	d.settle = 50 * time.Millisecond
	d.attribute = m.attribute
	return d
}

// attribute does what the PCI bus does for unbind, bind and drivers_probe.
func (m *testMachine) attribute(name, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attributes = append(m.attributes, strings.TrimPrefix(name, "/sys/bus/pci/")+" "+text)
	override := "/sys/bus/pci/devices/" + text + "/driver_override"
	kept := ""
	if b, err := os.ReadFile(m.Path(override)); err == nil && strings.HasPrefix(string(b), "edu") {
		kept = "edu" // the old content was longer
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
	if _, err := os.Stat(m.Path("/sys/module/edu")); err == nil {
		m.probe()
	}
	return nil
}

// enter puts an entry into the store, as a build does.
func (m *testMachine) enter(d *Driver, x ko.Module, built int64) store.Entry {
	m.T.Helper()
	return m.enterFor(m.Facts().Kernel, d, x, built)
}

// enterFor puts an entry for a kernel into the store.
func (m *testMachine) enterFor(k accel.Kernel, d *Driver, x ko.Module, built int64) store.Entry {
	m.T.Helper()
	data := x.Bytes()
	sum, err := store.Digest(bytes.NewReader(data))
	if err != nil {
		m.T.Fatal(err)
	}
	man := store.Manifest{
		Schema: store.Schema, Built: time.Unix(built, 0).UTC(),
		Modules: []store.Module{{
			Name: x.Name, File: x.Name + ".ko", SHA256: sum, BuildID: x.BuildID,
			Version: x.Version,
		}},
		Identity: store.Identity{
			Kind: "qemu-edu", Version: x.Version, SourceDigest: fmt.Sprint(built), Arch: k.Arch,
			KernelRelease: k.Release, KernelID: store.KernelID(k),
		},
	}
	man.Key = man.Identity.Key()
	text, err := json.Marshal(man)
	if err != nil {
		m.T.Fatal(err)
	}
	m.Write(d.store.EntryDir(man.Key)+"/manifest.json", string(text))
	m.Write(d.store.EntryDir(man.Key)+"/"+x.Name+".ko", string(data))
	return store.Entry{Manifest: man, Path: d.store.EntryDir(man.Key)}
}

// ask asks the first source of a type.
func ask(t *testing.T, d *Driver, def *accel.Definition, facts accel.Facts, typ accel.SourceType) source.Answer {
	t.Helper()
	for _, s := range d.sources.For(def, facts, source.Options{}) {
		if strings.HasPrefix(s.Name, string(typ)) {
			return s.Ask(t.Context())
		}
	}
	t.Fatalf("no source of type %q", typ)
	return source.Answer{}
}
