package bed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/disk"
	"github.com/acceld/acceld/test/vm/initramfs"
	"github.com/acceld/acceld/test/vm/qemu"
	"github.com/acceld/acceld/test/vm/seed"
)

// Options say what guest a scenario wants. The zero value is a ready node without accelerators.
type Options struct {
	// Accelerators are put into the first slots.
	Accelerators int
	// Kernel is one of the disk's, see Kernels; empty means the first of them, Oldest the last. Later is one that the
	// disk does not have, and implies FreshBoot.
	Kernel string
	// FreshBoot boots from power-on instead of going on from a snapshot.
	FreshBoot bool
	// NoWarmUp saves a node before it has run a pod: the first start is quicker, every later one slower.
	NoWarmUp bool
	// NoKubernetes is a host with systemd: no control plane, kubelet not installed, the container runtime installed but
	// not started.
	NoKubernetes bool
	// Engine is the container runtime: seed.CRIO unless set, or seed.Containerd.
	Engine seed.Engine
	// Cmdline is added to the kernel's command line and implies FreshBoot.
	Cmdline string
	// MemoryMiB is 2048 unless set.
	MemoryMiB int
	// Devices are more QEMU arguments, for devices that only one scenario needs, and imply FreshBoot.
	Devices []string
	// LosesCache gives a host a disk whose write cache goes with the power, and implies FreshBoot: a power cut then
	// loses what the guest has not flushed.
	LosesCache bool

	// member is the index of the guest's place in the cluster.
	member int
	// later is there for Later.
	later disk.Later
}

const (
	// Oldest is the oldest kernel that the disk has, so that the newest can be an upgrade.
	Oldest = "oldest"
	// Later is the kernel of the next Debian, without headers, for what newer kernels say and do differently.
	Later = "later"
)

func (b *Bed) withDefaults(o Options) Options {
	switch kernels := b.Kernels(); o.Kernel {
	case "":
		o.Kernel = kernels[0]
	case Oldest:
		o.Kernel = kernels[len(kernels)-1]
	}
	if o.Engine == "" {
		o.Engine = seed.CRIO
	}
	if o.MemoryMiB == 0 {
		o.MemoryMiB = 2048
	}
	if o.Cmdline != "" || len(o.Devices) > 0 || o.LosesCache || o.Kernel == Later {
		o.FreshBoot = true
	}
	return o
}

// Kernels are the releases that a guest can boot, the default and newest first; a guest that boots another one and then
// the first has had a kernel upgrade.
func (b *Bed) Kernels() []string { return b.supply.Debian.Kernels() }

// Kernels are the releases that this guest can be rebooted into.
func (g *Guest) Kernels() []string { return g.bed.Kernels() }

// bootModules are the files of the modules that a guest needs before it has its disk.
func (b *Bed) bootModules(o Options) ([]string, error) {
	if o.Kernel == Later {
		return o.later.Modules()
	}
	return b.supply.Debian.Modules(o.Kernel)
}

func (b *Bed) check(o Options) error {
	if o.Accelerators < 0 || o.Accelerators > qemu.Slots {
		return fmt.Errorf("cannot plug %d accelerators: there are %d slots", o.Accelerators, qemu.Slots)
	}
	if o.Kernel != Later && !slices.Contains(b.Kernels(), o.Kernel) {
		return fmt.Errorf("cannot boot kernel %q: the disk has %q", o.Kernel, b.Kernels())
	}
	return nil
}

// commandLine is the kernel's. Names of network cards are left alone and the mitigations off to save emulated time. The
// tick is periodic: on a busy host an emulated processor was seen to lose the one interrupt that its one-shot timer
// gives, and with it all timers for the rest of its life ("rcu_preempt kthread timer wakeup didn't happen").
// Nobody types on a keyboard here, and an emulated machine was once seen to stop for ever while its kernel looked for
// one.
func commandLine(kind seed.Kind, more string) string {
	line := "console=ttyS0 panic=5 net.ifnames=0 mitigations=off audit=0 apparmor=0 random.trust_cpu=on " +
		"highres=off nohz=off initcall_blacklist=i8042_init bed.kind=" + string(kind)
	return strings.TrimSpace(line + " " + more)
}

// cpus is the number of virtual processors: two, so that what only breaks with two can break.
const cpus = 2

// newGuest lays out a guest's folder; nothing runs yet.
func (b *Bed) newGuest(kind seed.Kind, o Options) (*Guest, error) {
	if err := b.check(o); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, string(kind)+"-")
	if err != nil {
		return nil, fmt.Errorf("cannot make the guest's folder: %w", err)
	}
	g := &Guest{bed: b, kind: kind, engine: o.Engine, member: seed.Members()[o.member], dir: dir}
	if g.log, err = os.Create(g.file("qemu.log")); err != nil {
		return nil, fmt.Errorf("cannot make QEMU's log: %w", err)
	}
	g.config = qemu.Config{
		Accel: b.accel, Append: commandLine(kind, o.Cmdline),
		Disk: g.file("root.qcow2"), Programs: b.programs, Console: g.file("console.log"),
		MemoryMiB: o.MemoryMiB, CPUs: cpus, Extra: o.Devices,
	}
	if o.Kernel != Later {
		g.config.Kernel = b.supply.Debian.Kernel(o.Kernel)
	} else {
		g.config.Kernel = o.later.Kernel()
		g.config.Extra = append([]string{
			"-drive", "if=none,id=modules,format=raw,readonly=on,file=" + o.later.Disk(),
			"-device", "virtio-blk-pci,drive=modules,addr=07.0",
		}, o.Devices...)
	}
	if o.LosesCache {
		return g, g.serveDisk()
	}
	return g, nil
}

// seedFiles renders what the initramfs lays over the disk.
func (b *Bed) seedFiles(kind seed.Kind, engine seed.Engine, member seed.Member) (map[string]initramfs.File, error) {
	apiServer := fmt.Sprintf("%s:%d", seed.HostIP, b.ports.API)
	id := sha256.Sum256([]byte(b.keys.authorized + member.Hostname))
	values := seed.Values{
		Kind: kind, Engine: engine, Member: member, MachineID: hex.EncodeToString(id[:16]),
		HostKey: b.keys.hostPEM, AuthorizedKey: b.keys.authorized,
		Registry: b.GuestRegistry(), APIServer: apiServer, Programs: b.guestPrograms(engine),
	}
	if kind == seed.Node {
		var err error
		if values.Files, err = cluster.OpenPKI(b.keys.dir).NodeFiles(member, apiServer); err != nil {
			return nil, err
		}
	}
	return seed.Render(values)
}

// GuestRegistry is the image registry's host:port as a guest sees it.
func (b *Bed) GuestRegistry() string { return fmt.Sprintf("%s:%d", seed.HostIP, b.ports.Registry) }

// boot powers a guest on with an initramfs of its own and waits until it answers.
func (g *Guest) boot(ctx context.Context, o Options) error {
	files, err := g.bed.seedFiles(g.kind, g.engine, g.member)
	if err != nil {
		return err
	}
	if g.config.Initrd, err = g.bed.writeInitrd(g.dir, o, files); err != nil {
		return err
	}
	for slot := range o.Accelerators {
		g.config.Plugged = append(g.config.Plugged, slot)
	}
	return g.rise(ctx, false)
}

// makeDisk makes the guest's own disk on top of another that stays as it is. A light guest has none.
func (g *Guest) makeDisk(ctx context.Context, base, format string) error {
	if g.kind == seed.Light {
		g.config.Disk, g.config.DiskReadOnly = g.bed.supply.Debian.Root(), true
		return nil
	}
	if g.disk != nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", format, "-b", base, g.config.Disk)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot make the guest's disk: %w\n%s", err, output)
	}
	return nil
}

// Reboot is how a guest is restarted.
type Reboot struct {
	// NetworkCut boots it with the cluster's cable out.
	NetworkCut bool
	// Kernel boots another kernel of the disk; empty keeps the present one.
	Kernel string
	// PowerCut gives the guest no chance to shut down. It cannot be combined with Kernel. With a disk that loses its
	// cache nothing stays of what the guest has not flushed.
	PowerCut bool
}

// Reboot shuts the guest down and boots it again, with the accelerators that are plugged now. A light guest forgets all
// that was written.
func (g *Guest) Reboot(ctx context.Context, r Reboot) error {
	if r.PowerCut {
		return g.powerCut(ctx, r)
	}
	if r.Kernel != "" {
		if err := g.bed.check(Options{Kernel: r.Kernel}); err != nil {
			return err
		}
		files, err := g.bed.seedFiles(g.kind, g.engine, g.member)
		if err != nil {
			return err
		}
		if g.config.Initrd, err = g.bed.writeInitrd(g.dir, Options{Kernel: r.Kernel}, files); err != nil {
			return err
		}
		g.config.Kernel = g.bed.supply.Debian.Kernel(r.Kernel)
	}
	if err := g.shutDown(ctx); err != nil {
		return err
	}
	g.config.State = ""
	return g.rise(ctx, r.NetworkCut)
}

// shutDown asks the guest to switch itself off and waits until it has.
func (g *Guest) shutDown(ctx context.Context) error {
	off := []string{"systemctl", "poweroff"}
	if g.kind == seed.Light {
		off = []string{"busybox", "poweroff", "-f"}
	}
	// The answer may be cut off by the shutdown itself.
	if _, err := g.Start(ctx, nil, nil, off...); err != nil {
		return err
	}
	select {
	case <-g.machine.Done():
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the guest to switch off: %w", ctx.Err())
	case <-time.After(bootTimeout):
		return fmt.Errorf("cannot wait any longer for the guest to switch off\n%s", g.consoleTail())
	}
	g.disconnect()
	g.machine.Stop()
	return nil
}

func (g *Guest) powerCut(ctx context.Context, r Reboot) error {
	if r.Kernel != "" {
		return fmt.Errorf("cannot boot kernel %q after a power cut: shut down instead", r.Kernel)
	}
	if g.disk != nil {
		return g.loseCache(ctx, r)
	}
	if r.NetworkCut {
		if err := g.CutNetwork(ctx); err != nil {
			return err
		}
	}
	// The reset button, not the end of QEMU: the latter would also lose what the disk image keeps in QEMU's memory.
	said, err := g.reset(ctx)
	if err != nil {
		return err
	}
	return g.answer(ctx, said)
}

// copyTree copies a folder of plain files.
func copyTree(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("cannot copy %q: %w", filepath.Base(from), err)
	}
	return nil
}
