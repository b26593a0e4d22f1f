// Package qemu runs one virtual machine: it knows QEMU's command line and monitor, plugs accelerators, and saves and
// restores the machine's state. It knows nothing of what runs inside, and reaches no network but the host's loopback.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/acceld/acceld/test/vm/process"
	"github.com/acceld/acceld/test/vm/seed"
)

// Slots is the number of PCIe slots for accelerators.
const Slots = 8

// accelerator is QEMU's educational device, PCI 1234:11e8 (QEMU documentation, specs/edu).
const accelerator = "edu"

// Config is everything a machine is made from.
type Config struct {
	// Accel is an answer of Probe.
	Accel Accel
	// Kernel, Initrd and Append boot it.
	Kernel, Initrd, Append string
	// Disk is the root disk, a qcow2 overlay; DiskReadOnly says that it is a raw image instead, shared and not written.
	Disk         string
	DiskReadOnly bool
	// DiskServed says that Disk is the socket of a server instead, which is told when the guest flushes.
	DiskServed bool
	// Programs is the raw image of the second disk.
	Programs string
	// Console is the file that the serial console is appended to.
	Console   string
	MemoryMiB int
	CPUs      int
	// Forward maps ports of the guest's management address to ports of the host's loopback.
	Forward map[int]int
	// Plugged are the slots that hold an accelerator at power-on.
	Plugged []int
	// Extra is appended to the command line, for devices that only one scenario needs.
	Extra []string
	// State is a file written by Save to go on from, or empty to boot.
	State string
}

// Machine is a running QEMU.
type Machine struct {
	*Monitor
	child *process.Child
	cpus  int
}

// startTimeout is for a busy machine on which a saved state is read into the guest's memory; an idle one needs a second
// for it.
const startTimeout = 3 * time.Minute

// networkCard is a virtio card without event indexes. With them, a guest that has queued packets notifies QEMU once and
// then waits. TestSwitches failed when that notification got lost: the ring held 238 packets, QEMU had asked to be
// notified of the first, and the card never sent again. Without them, the next packet notifies QEMU too.
const networkCard = "virtio-net-pci,event_idx=off"

// Start starts a machine. With a State it is paused afterwards: call Continue.
func Start(ctx context.Context, starter *process.Starter, c Config, log *os.File) (*Machine, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(program, c.args()...)
	cmd.ExtraFiles = []*os.File{theirs} // becomes descriptor 3
	child, err := starter.Start("qemu", log, cmd)
	if err != nil {
		ours.Close()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	monitor, err := newMonitor(ctx, ours)
	if err != nil {
		child.Stop(0)
		return nil, err
	}
	m := &Machine{Monitor: monitor, child: child, cpus: c.CPUs}
	if c.State != "" {
		if err := m.restore(ctx, c.State); err != nil {
			m.Stop()
			return nil, err
		}
	}
	return m, nil
}

func (c Config) args() []string {
	disk := "if=none,id=root,format=qcow2,cache=unsafe,discard=unmap,file=" + escape(c.Disk)
	if c.DiskReadOnly {
		disk = "if=none,id=root,format=raw,readonly=on,file=" + escape(c.Disk)
	}
	if c.DiskServed {
		disk = "if=none,id=root,format=raw,cache=writeback,file.driver=nbd,file.server.type=unix,file.server.path=" +
			escape(c.Disk)
	}
	forward := ""
	for guest, host := range c.Forward {
		forward += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-%s:%d", host, seed.ManagementIP, guest)
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-name", "acceld-test-bed",
		"-machine", "q35", "-accel", c.Accel.option(), "-cpu", c.Accel.CPU,
		"-smp", strconv.Itoa(c.CPUs), "-m", strconv.Itoa(c.MemoryMiB),
		"-kernel", c.Kernel, "-initrd", c.Initrd, "-append", c.Append,
		"-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control",
		"-chardev", "file,id=console,append=on,path=" + escape(c.Console), "-serial", "chardev:console",
		"-drive", disk, "-device", "virtio-blk-pci,drive=root,addr=02.0",
		"-drive", "if=none,id=programs,format=raw,readonly=on,file=" + escape(c.Programs),
		"-device", "virtio-blk-pci,drive=programs,addr=03.0",
		"-netdev", "user,id=management,restrict=on,ipv6=off,net=" + seed.ManagementNet + forward,
		"-device", networkCard + ",netdev=management,romfile=,addr=04.0,mac=" + seed.ManagementMAC,
		"-netdev", "user,id=cluster,ipv6=off,net=" + seed.ClusterNet + ",host=" + seed.HostIP,
		"-device", networkCard + ",id=clustercard,netdev=cluster,romfile=,addr=05.0,mac=" + seed.ClusterMAC,
		"-device", "virtio-rng-pci,addr=06.0",
		"-rtc", "base=utc,clock=host",
	}
	for slot := range Slots {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=slot%d,bus=pcie.0,addr=%02x.0,chassis=%d,slot=%d",
			slot, 0x10+slot, slot+1, slot+1))
	}
	for _, slot := range c.Plugged {
		args = append(args, "-device", fmt.Sprintf("%s,id=%s,bus=slot%d", accelerator, acceleratorID(slot), slot))
	}
	if c.State != "" {
		args = append(args, "-incoming", "defer")
	}
	return append(args, c.Extra...)
}

// escape doubles the commas of a file name, which would otherwise end it (qemu(1), "-drive").
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

func acceleratorID(slot int) string { return fmt.Sprintf("acc%d", slot) }

// Plug puts an accelerator into a slot.
func (m *Machine) Plug(ctx context.Context, slot int) error {
	return m.Execute(ctx, "device_add",
		map[string]any{"driver": accelerator, "id": acceleratorID(slot), "bus": fmt.Sprintf("slot%d", slot)}, nil)
}

// Unplug asks the guest to let go of the accelerator in a slot, and returns when it has.
func (m *Machine) Unplug(ctx context.Context, slot int) error {
	mark := m.Mark()
	if err := m.Execute(ctx, "device_del", map[string]any{"id": acceleratorID(slot)}, nil); err != nil {
		return err
	}
	return m.WaitEvent(ctx, mark, "DEVICE_DELETED", func(data map[string]any) bool {
		return data["device"] == acceleratorID(slot)
	})
}

// SetLink connects or cuts the cluster's network card.
func (m *Machine) SetLink(ctx context.Context, up bool) error {
	return m.Execute(ctx, "set_link", map[string]any{"name": "clustercard", "up": up}, nil)
}

// Continue lets the processors run.
func (m *Machine) Continue(ctx context.Context) error { return m.Execute(ctx, "cont", nil, nil) }

// Pause stops the processors.
func (m *Machine) Pause(ctx context.Context) error { return m.Execute(ctx, "stop", nil, nil) }

// Reset is the reset button: the guest gets no chance to write anything.
func (m *Machine) Reset(ctx context.Context) error { return m.Execute(ctx, "system_reset", nil, nil) }

// Processors returns the state of each processor and of its interrupt controller as QEMU sees it, as text. A guest
// that hangs cannot report it.
func (m *Machine) Processors(ctx context.Context) string {
	var all strings.Builder
	ask := func(line string) {
		var said string
		if err := m.Execute(ctx, "human-monitor-command", map[string]any{"command-line": line}, &said); err != nil {
			said = err.Error()
		}
		fmt.Fprintf(&all, "%s:\n%s\n", line, said)
	}
	for i := range m.cpus {
		ask(fmt.Sprintf("info lapic %d", i))
	}
	ask("info registers -a")
	return all.String()
}

// Save writes the state of a paused machine to a file. Accelerators must be unplugged before: QEMU 7.2's edu device
// saves nothing of itself, and a restored one would be a stranger to its driver.
func (m *Machine) Save(ctx context.Context, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("cannot save the machine: %w", err)
	}
	defer file.Close()
	return m.migrate(ctx, "migrate", file)
}

func (m *Machine) restore(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot restore the machine: %w", err)
	}
	defer file.Close()
	return m.migrate(ctx, "migrate-incoming", file)
}

func (m *Machine) migrate(ctx context.Context, command string, file *os.File) error {
	capabilities := map[string]any{"capabilities": []any{map[string]any{"capability": "events", "state": true}}}
	if err := m.Execute(ctx, "migrate-set-capabilities", capabilities, nil); err != nil {
		return err
	}
	// The default throttle is for networks.
	if err := m.Execute(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(10) << 30},
		nil); err != nil {
		return err
	}
	if err := m.sendFile(ctx, "state", file); err != nil {
		return err
	}
	mark := m.Mark()
	if err := m.Execute(ctx, command, map[string]any{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	failed := false
	err := m.WaitEvent(ctx, mark, "MIGRATION", func(data map[string]any) bool {
		failed = data["status"] == "failed"
		return failed || data["status"] == "completed"
	})
	if err == nil && failed {
		err = fmt.Errorf("cannot run %q: QEMU says that it failed", command)
	}
	return err
}

// Done is closed when the machine is off.
func (m *Machine) Done() <-chan struct{} { return m.child.Done() }

// Ended tells how QEMU ended, or nil while it runs.
func (m *Machine) Ended() error { return m.child.Exited() }

// Crashed tells that QEMU was ended by a signal, which no guest can ask for.
func (m *Machine) Crashed() bool {
	var exit *exec.ExitError
	if !errors.As(m.Ended(), &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// PID is QEMU's process id.
func (m *Machine) PID() int { return m.child.PID() }

// Stop switches the machine off at once.
func (m *Machine) Stop() {
	m.Close()
	m.child.Stop(0)
}

// socketPair makes a connected pair of sockets: a monitor without a path cannot be in anybody's way.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket for the monitor: %w", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "monitor"), os.NewFile(uintptr(fds[1]), "monitor")
	defer mine.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("cannot use the monitor's socket: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}
