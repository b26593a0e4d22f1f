package kubelet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/test/bench/usage"
	"github.com/acceld/acceld/test/machines"
)

const (
	resource = "qemu.org/edu"
	node     = "bench"
	major    = 240
)

// definition is the stand-in accelerator whose check a plain file passes: it reads back what is written. Everything
// else is as in life.
const definition = `kind: qemu-edu
resource: qemu.org/edu
match:
  - vendor: "1234"
    device: "11e8"
driver:
  version: "1.0.0"
  binds: edu
  modules:
    - name: edu
nodes:
  - glob: accelerator_edu/edu*
serial: serial
check:
  file: factorial
  write: "10"
  want: "10"
  sentence: the file reads back what was written
health:
  - file: health
    healthy: ok
`

// machine is a copy of a machine with accelerators: two NUMA nodes, four devices below each port.
type machine struct {
	t    *testing.T
	root string // short, because paths of sockets are
	n    int
}

func newMachine(t *testing.T, n int) *machine {
	t.Helper()
	root, err := os.MkdirTemp("", "kb")
	check(t, err)
	m := &machine{t: t, root: root, n: n}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	check(t, os.MkdirAll(m.path("run"), 0o755))
	check(t, unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(t, unix.Mount("tmpfs", m.path("run"), "tmpfs", 0, "mode=0755")) // as on every host
	t.Cleanup(func() { _ = unix.Unmount(m.path("run"), unix.MNT_DETACH) })
	check(t, machines.Write(root, "qemu-edu"))
	for _, old := range []string{"0000:00:04.0", "0000:00:05.0"} {
		check(t, os.Remove(m.path("sys/bus/pci/devices", old)))
		check(t, os.RemoveAll(m.path("sys/devices/pci0000:00", old)))
	}
	for _, dir := range []string{"device-plugins", "plugins", "plugins_registry", "pod-resources"} {
		check(t, os.MkdirAll(m.path("var/lib/kubelet", dir), 0o750))
	}
	check(t, os.MkdirAll(m.path("dev"), 0o755))
	check(t, os.Symlink("../run", m.path("var/run")))
	m.write("sys/module/edu/version", "1.0.0")
	m.write("etc/acceld/definitions.d/edu.yaml", definition)
	for i := range n {
		if i%4 == 0 {
			m.function(i/4, "sys/devices/pci0000:00/"+port(i), "8086", "3420", "060400", "pcieport")
		}
		m.plug(i)
	}
	return m
}

func port(i int) string    { return fmt.Sprintf("0000:00:%02x.0", 0x08+i/4) }
func address(i int) string { return fmt.Sprintf("0000:%02x:%02x.0", 0x10+i/4, i%4) }

func (m *machine) path(names ...string) string {
	return filepath.Join(append([]string{m.root}, names...)...)
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	check(m.t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	check(m.t, os.WriteFile(m.path(name), []byte(text+"\n"), 0o644))
}

// function makes a PCI function in a directory of sysfs.
func (m *machine) function(i int, dir, vendor, device, class, driver string) {
	m.t.Helper()
	name := filepath.Base(dir)
	for file, text := range map[string]string{
		"vendor": "0x" + vendor, "device": "0x" + device, "class": "0x" + class, "revision": "0x10",
		"subsystem_vendor": "0x1af4", "subsystem_device": "0x1100", "driver_override": "(null)",
		"numa_node": strconv.Itoa(i * 8 / m.n % 2),
		"uevent":    "DRIVER=" + driver + "\nPCI_SLOT_NAME=" + name,
	} {
		m.write(filepath.Join(dir, file), text)
	}
	check(m.t, os.Symlink("/sys/bus/pci/drivers/"+driver, m.path(dir, "driver")))
	check(m.t, os.Symlink("../../../"+strings.TrimPrefix(dir, "sys/"), m.path("sys/bus/pci/devices", name)))
}

func (m *machine) dir(i int) string { return "sys/devices/pci0000:00/" + port(i) + "/" + address(i) }

// plug puts a device into its slot, as bus and driver do.
func (m *machine) plug(i int) {
	m.t.Helper()
	dir := m.dir(i)
	for name, text := range map[string]string{
		"health": "ok", "serial": fmt.Sprintf("EDU%08d", i), "factorial": "",
		fmt.Sprintf("accelerator_edu/edu%d/dev", i):    fmt.Sprintf("%d:%d", major, i),
		fmt.Sprintf("accelerator_edu/edu%d/uevent", i): fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=edu%d", major, i, i),
	} {
		m.write(filepath.Join(dir, name), text)
	}
	m.function(i/4, dir, "1234", "11e8", "00ff00", "edu")
	check(m.t, unix.Mknod(m.node(i), unix.S_IFCHR|0o600, int(unix.Mkdev(major, uint32(i)))))
}

// pull takes it out.
func (m *machine) pull(i int) {
	m.t.Helper()
	check(m.t, os.Remove(m.path("sys/bus/pci/devices", address(i))))
	check(m.t, os.RemoveAll(m.path(m.dir(i))))
	check(m.t, os.Remove(m.node(i)))
}

func (m *machine) node(i int) string { return m.path("dev", fmt.Sprintf("edu%d", i)) }

// nudge is what wakes the agent like an event of the kernel, which nobody else can send: something changes in /dev.
func (m *machine) nudge() {
	m.t.Helper()
	check(m.t, os.WriteFile(m.path("dev/event"), nil, 0o600))
	check(m.t, os.Remove(m.path("dev/event")))
}

// process is a contestant that runs.
type program struct {
	name string
	cmd  *exec.Cmd
	log  string
}

// start starts a contestant; it ends with the test.
func start(t *testing.T, name string, cmd *exec.Cmd) *program {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	check(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	check(t, cmd.Start())
	p := &program{name: name, cmd: cmd, log: log.Name()}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(p.log)
			t.Logf("%s said:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return p
}

// agent builds acceld, puts it into the machine and starts it there: its root is the machine's.
func (m *machine) agent(config string) *program {
	m.t.Helper()
	check(m.t, os.MkdirAll(m.path("usr/bin"), 0o755))
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", m.path("usr/bin/acceld"),
		"github.com/acceld/acceld/cmd/acceld")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	m.write("etc/acceld/config.yaml", "node: "+node+"\nendpoint: {listen: \"\"}\nkubernetes:\n  enabled: on\n"+config)
	cmd := exec.Command("/usr/bin/acceld", "run")
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root}
	return start(m.t, "acceld", cmd)
}

// processor returns how long processors have worked for a process, user and system; 0 for none.
func (p *program) processor(t *testing.T) time.Duration {
	t.Helper()
	if p == nil {
		return 0
	}
	used, err := usage.Processor(p.cmd.Process.Pid)
	check(t, err)
	return used
}

// memory returns the resident and the most resident memory of a process, MiB.
func (p *program) memory(t *testing.T) (now, most float64) {
	t.Helper()
	now, most, err := usage.Memory(p.cmd.Process.Pid)
	check(t, err)
	return now / (1 << 20), most / (1 << 20)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
