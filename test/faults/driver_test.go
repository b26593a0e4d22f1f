package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// parameters is a configuration with parameters of the driver's module.
func parameters(more, list string) string {
	return more + "\nkinds: {qemu-edu: {driver: {parameters: {edu: {" + list + "}}}}}\n"
}

// Test09_ModuleUnloaded: somebody takes the module away and there is nothing to load it from.
func Test09_ModuleUnloaded(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 2})
	c.store(stage.Version)
	c.start()
	c.reaches("agent started", accel.Ready, building)
	c.sh("mv /var/lib/acceld/kmod /root/kmod; mv /usr/src/edu-1.0.0 /root/source; rmmod edu")
	c.await("rmmod -> driver missing, and told why", soon, func(m accel.Machine) bool {
		return m.Status[stage.Kind].State == accel.DriverMissing && m.Status[stage.Kind].Blocked != nil
	})
	c.until("the gate is shut for both", `! grep -q '"ready": true' /run/acceld/devices.json`)
	if body, status, err := stage.Get(t.Context(), c.g, "/healthz"); err != nil || status != 503 {
		t.Errorf("/healthz: %d %s %v", status, body, err)
	}
	c.sh("mv /root/kmod /var/lib/acceld/; mv /root/source /usr/src/edu-1.0.0")
	c.await("the store is back -> both usable", soon, healthy(2))
}

// Test12_ProbeFails: the module loads and refuses its device.
func Test12_ProbeFails(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	c.config(parameters("", `fail_probe: "1"`))
	c.sh("test ! -e /var/lib/acceld/kmod/current") // nothing served before
	loads := c.countLoads()
	c.start()
	f := c.blocked("agent started", accel.ProbeFailed, soon)
	if !strings.Contains(f.Message, "-5") {
		t.Errorf("the sentence has not the kernel's words: %s", f.Message)
	}
	c.sh("test ! -d /sys/module/edu; test ! -e /sys/bus/pci/devices/0000:01:00.0/driver")
	if n := loads(); n != 2 {
		t.Errorf("%d calls to load or unload, want one of each", n)
	}
	c.config(parameters("", `no_such_parameter: "1"`)) // the kernel would take it and say nothing
	c.start()
	c.blocked("unknown parameter", accel.ParameterUnknown, soon)
	if n := loads(); n != 2 {
		t.Errorf("%d calls to load or unload, want none for an unknown parameter", n-2)
	}
	c.config("")
	c.start()
	c.await("without the parameter -> usable", soon, healthy(1))
}

// Test13_InitHangs: the initialisation of the module takes longer than it may; the agent does not wait with it.
func Test13_InitHangs(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	c.config(parameters("loadTimeout: 3s", `slow_init_ms: "20000"`))
	c.start()
	c.until("the module is on its way in", "grep -q coming /sys/module/edu/initstate")
	slowest := time.Duration(0)
	for range 10 {
		begin := time.Now()
		if _, _, err := stage.Get(t.Context(), c.g, "/livez"); err != nil {
			t.Errorf("/livez: %v", err)
		}
		slowest = max(slowest, time.Since(begin))
	}
	t.Logf("slowest of ten answers while the kernel hangs: %v, the way into the guest included", slowest)
	if slowest > 2*time.Second {
		t.Errorf("an answer took %v", slowest)
	}
	c.await("given up", soon, func(m accel.Machine) bool {
		f := m.Status[stage.Kind].Blocked
		return f != nil && (f.Reason == accel.LoadTimeout || f.Reason == accel.RebootRequired)
	})
	c.until("the initialisation has ended", "grep -q live /sys/module/edu/initstate")
	c.await("it had only been slow -> usable", soon, healthy(1))
}

// Test14_InitCrashes: the module crashes the kernel while it is loaded, twice; the third time nobody tries.
func Test14_InitCrashes(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	const crashes = `oops_init: "1", oops_confirm: "0xed"`
	c.config(parameters("loadTimeout: 5s", crashes))
	// nothing served before
	c.sh("test ! -e /var/lib/acceld/kmod/current; systemctl enable acceld.service acceld.socket 2>/dev/null")
	for i := range 2 {
		if i == 0 {
			c.start()
		}
		c.blocked(fmt.Sprintf("crash %d", i+1), accel.RebootRequired, soon)
		c.sh("sync")
		c.must(c.g.Reboot(c.within(building), bed.Reboot{PowerCut: true}))
	}
	loads := c.countLoads()
	c.start()
	c.blocked("after the second reboot", accel.Quarantined, soon)
	if n := loads(); n != 0 {
		t.Errorf("%d calls to load or unload a driver that is in quarantine", n)
	}
	c.config("")
	c.halt()
	c.sh("acceld driver ensure --retry qemu-edu")
	c.start()
	c.await("cleared by hand, without the parameter -> usable", soon, healthy(1))
	c.config(parameters("loadTimeout: 5s", crashes))
	c.await("crash of what replaces one that served", soon, func(m accel.Machine) bool {
		f := m.Status[stage.Kind].Blocked
		return f != nil
	})
	c.sh("sync")
	c.must(c.g.Reboot(c.within(building), bed.Reboot{PowerCut: true}))
	m := c.await("after the reboot the one that served serves", soon, healthy(1))
	if u := m.Have[stage.Kind].Driver.Upgrade; u == nil || u.Failure == nil || u.Failure.Reason != accel.RolledBack {
		t.Errorf("the upgrade is %+v", u)
	}
}

// Test16_HotPlug: devices go and come while nobody, somebody, or the load itself uses them.
func Test16_HotPlug(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 2})
	c.store(stage.Version)
	c.start()
	c.await("agent started", building, healthy(2))
	boot := c.sh("cat /proc/sys/kernel/random/boot_id")

	c.must(c.g.Unplug(c.within(soon), 1))
	c.await("idle device pulled -> one left", soon, healthy(1))
	c.must(c.g.Plug(c.within(soon), 1))
	c.await("put back -> two", soon, healthy(2))

	c.sh("systemd-run --unit=holder --quiet edu-check -expect 2 -hold 1h; sleep 1")
	c.must(c.g.Unplug(c.within(soon), 0))
	c.await("device in use pulled -> one left", soon, healthy(1))
	c.sh("systemctl stop holder 2>/dev/null || true; systemctl reset-failed holder 2>/dev/null || true")
	c.must(c.g.Plug(c.within(soon), 0))
	c.await("put back -> two", soon, healthy(2))

	c.halt()
	c.sh("rmmod edu")
	c.config(parameters("", `slow_init_ms: "4000"`))
	c.start()
	c.until("the load is under way", "grep -q coming /sys/module/edu/initstate")
	c.must(c.g.Unplug(c.within(soon), 1))
	c.await("device pulled during the load -> one left", soon, healthy(1))
	c.must(c.g.Plug(c.within(soon), 1))
	c.await("put back -> two", soon, healthy(2))
	if now := c.sh("cat /proc/sys/kernel/random/boot_id"); now != boot {
		t.Error("the kernel did not survive")
	}
	c.sh("test $(( $(cat /proc/sys/kernel/tainted) & 128 )) = 0") // no oops
}

// Test19_StateUnwritable: a full disk, a read-only one and one that answers every call with an error.
func Test19_StateUnwritable(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.sh(
		"mkdir -p /var/lib/acceld; mount -t tmpfs -o size=64k none /var/lib/acceld; dd if=/dev/zero of=/var/lib/acceld/fill bs=1k 2>/dev/null || true")
	c.start()
	c.blocked("full", accel.NoSpace, building)
	c.sh(
		"test ! -d /sys/module/edu; test \"$(find /var/lib/acceld -name '*.ko')\" = ''; rm /var/lib/acceld/fill; mount -o remount,size=64m /var/lib/acceld")
	c.await("space is there again -> usable, by itself", building, healthy(1))
	c.halt()
	c.sh("umount /var/lib/acceld; rmmod edu")

	c.store(stage.Version)
	c.sh(
		"mount -t tmpfs none /mnt; cp -a /var/lib/acceld/. /mnt/; mount -o remount,ro /mnt; mount --bind /mnt /var/lib/acceld")
	c.start()
	c.blocked("read-only", accel.ReadOnly, soon)
	c.sh("test ! -d /sys/module/edu")
	c.halt()
	c.sh("umount /var/lib/acceld; umount /mnt")

	// The driver serves on while its store is on a dying disk: EXT4_IOC_SHUTDOWN makes every call end with EIO.
	c.sh(
		`truncate -s 64M /root/disk; mkfs.ext4 -q /root/disk; mount -o loop /root/disk /mnt; cp -a /var/lib/acceld/. /mnt/; mount --bind /mnt /var/lib/acceld`)
	c.start()
	c.await("on a disk of its own -> usable", soon, healthy(1))
	c.sh(
		`perl -e 'open(F, "<", $ARGV[0]) or die; my $how = pack("L", 2); ioctl(F, 0x8004587d, $how) or die "$!"' /mnt; ! touch /var/lib/acceld/x 2>/dev/null`)
	c.sh("rm -f /var/run/cdi/qemu.org-edu.json")
	c.until("the agent works on", "test -s /var/run/cdi/qemu.org-edu.json")
	c.await("disk dead -> still usable", soon, healthy(1))
	c.halt()
	c.sh("umount -l /var/lib/acceld; umount -l /mnt")
	c.start()
	c.await("disk gone, the old state is there -> usable", soon, healthy(1))
}

// Test20_TwoAgents: another agent, a command that loads, and DKMS at the same time as the agent.
func Test20_TwoAgents(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	loads := c.countLoads()
	c.sh(
		"systemctl start acceld.socket; systemctl start --no-block acceld.service; (acceld driver ensure qemu-edu > /tmp/ensure 2>&1; echo $? >> /tmp/ensure) & wait")
	c.await("agent and command at once -> usable", soon, healthy(1))
	t.Logf("the command said: %s", c.sh("cat /tmp/ensure"))
	if n := loads(); n != 1 {
		t.Errorf("%d calls to load or unload, want one load", n)
	}
	out, status := c.says("acceld run")
	if status != 1 || !strings.Contains(out, string(accel.AlreadyRunning)) {
		t.Errorf("the second agent: status %d, %s", status, out)
	}
	c.halt()
	c.sh("rmmod edu; rm -rf /var/lib/acceld")
	c.sh("systemd-run --quiet --unit=dkms -p RemainAfterExit=yes dkms install edu/1.0.0")
	c.start()
	c.await("agent beside DKMS, both building -> usable", building, healthy(1))
	c.until("DKMS has ended", "systemctl show -p SubState --value dkms | grep -q exited")
	c.sh("systemctl show -p Result --value dkms | grep -q success")
	c.await("and still usable", soon, healthy(1))
	c.sh(`for f in /var/lib/acceld/kmod/*/edu.ko /lib/modules/$(uname -r)/updates/dkms/edu.ko*; do test -s "$f"; done`)
}

// Test21_CannotBuild: what a build needs is not there.
func Test21_CannotBuild(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.sh("mv /usr/src/linux-headers-$(uname -r) /usr/src/away")
	c.start()
	if f := c.blocked("headers missing", accel.HeadersMissing, soon); !strings.Contains(f.Message,
		"linux-headers-"+c.sh("uname -r")) {
		t.Errorf("the sentence names no package: %s", f.Message)
	}
	c.halt()
	c.sh(
		"mv /usr/src/away /usr/src/linux-headers-$(uname -r); mkdir /root/away; mv /usr/bin/gcc* /usr/bin/cc /usr/bin/x86_64-linux-gnu-gcc* /root/away/ 2>/dev/null || true")
	c.start()
	c.blocked("compiler missing", accel.CompilerMissing, soon)
	c.halt()
	c.sh(
		"mv /root/away/* /usr/bin/; sed -i 's/^static struct class .edu_class;/& this is no C;/' /usr/src/edu-1.0.0/edu_main.c")
	c.start()
	if f := c.blocked("source broken", accel.BuildFailed, building); !strings.Contains(f.Message, "edu_main.c") {
		t.Errorf("the sentence names no place: %s", f.Message)
	}
	c.sh(`test "$(find /var/lib/acceld -name '*.ko')" = ''; test "$(find /var/lib/acceld -name '*.log')" != ''`)
	c.must(c.s.Source(t.Context(), c.g))
	c.halt()
	c.config("build: {memory: 64Mi}\n")
	c.start()
	c.blocked("not enough memory", accel.BuildOutOfMemory, building)
	c.sh(`test "$(find /var/lib/acceld -name '*.ko')" = ''`)
	c.config("")
	c.until("status says that the change waits for a restart",
		"acceld status | grep -q 'wait for the next start of the agent: build'")
	c.halt()
	c.start()
	c.await("and with enough -> usable", building, healthy(1))
}

// Test22_RebootOffline: driver and devices are there without a network, from the store.
func Test22_RebootOffline(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 2})
	c.store(stage.Version)
	c.must(c.s.Enable(t.Context(), c.g))
	c.await("enabled", soon, healthy(2))
	c.sh("rm -rf /usr/src/edu-1.0.0; sync")
	c.must(c.g.Reboot(c.within(building), bed.Reboot{NetworkCut: true}))
	c.await("after the reboot", soon, healthy(2))
	took := c.sh(
		`journalctl -b -o short-monotonic -u acceld | awk '/agent starts/ && !a {gsub(/[][]/, "", $0); a = $1} /(to|state)=ready/ && !b {gsub(/[][]/, "", $0); b = $1} END {print b - a}'`)
	t.Logf("agent started -> ready: %s s of the guest", took)
	if m := c.machine(); m.Have[stage.Kind].Driver.Source != string(accel.SourceStore) {
		t.Errorf("the driver is from %q", m.Have[stage.Kind].Driver.Source)
	}
}

// Test23_SameRelease: another build of the kernel under the same name does not get the old build's driver.
func Test23_SameRelease(t *testing.T) {
	c := host(t, bed.Options{Accelerators: 1})
	c.store(stage.Version)
	before := c.sh("ls -d /var/lib/acceld/kmod/*/edu.ko")
	// One byte of the build-id in the kernel's notes; everything else, uname -r too, is as it was.
	c.sh(`cp /sys/kernel/notes /root/notes; size=$(stat -c %s /root/notes); i=0
off=$(perl -0777 -ne 'print index($_, "GNU\0") + 4' /root/notes)
printf '\125\252' | dd of=/root/notes bs=1 seek="$off" conv=notrunc 2>/dev/null; mount --bind /root/notes /sys/kernel/notes`)
	c.start()
	c.await("another kernel of the same release -> usable", building, healthy(1))
	after := strings.Fields(c.sh("ls -d /var/lib/acceld/kmod/*/edu.ko"))
	if len(after) != 2 || !strings.Contains(strings.Join(after, " "), before) {
		t.Errorf("the store has %q, want %q and one more", after, before)
	}
}
