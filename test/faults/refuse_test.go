package faults

import (
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// installed is where depmod finds a module.
const installed = `/lib/modules/$(uname -r)/extra/edu.ko`

// module takes the built driver out of the store: /root/edu.ko is the only one there is.
func (c *scene) module() {
	c.Helper()
	c.store(stage.Version)
	c.sh(
		"cp /var/lib/acceld/kmod/*/edu.ko /root/edu.ko; rm -rf /var/lib/acceld /usr/src/edu-1.0.0; mkdir -p $(dirname " + installed + ")")
}

// refused starts the agent and sees that it refuses the driver, for this reason, without a word to the kernel.
func (c *scene) refused(what string, reason accel.Reason, loads func() int) {
	c.Helper()
	before, taint := loads(), c.sh("cat /proc/sys/kernel/tainted")
	c.start()
	f := c.blocked(what, reason, soon)
	if !f.RetryAt.IsZero() {
		c.Errorf("%s: it will be tried again at %v", what, f.RetryAt)
	}
	c.halt()
	if n := loads() - before; n != 0 {
		c.Errorf("%s: %d calls to load or unload", what, n)
	}
	if now := c.sh("cat /proc/sys/kernel/tainted"); now != taint {
		c.Errorf("%s: the kernel's taint is %s, before %s", what, now, taint)
	}
}

// Test10_WrongModule: modules of which the kernel would take the first two, and others that it would not.
func Test10_WrongModule(t *testing.T) {
	c := light(t, bed.Options{Accelerators: 1})
	c.module()
	loads := c.countLoads()
	for _, w := range []struct {
		what, patch string
		reason      accel.Reason
	}{
		{"release of another kernel", `s/vermagic=6/vermagic=7/`, accel.KernelMismatch},
		{
			"version of a symbol", `s/(.{8})(?=\Q_copy_from_user\E\0)/"\x01\x02\x03\x04\0\0\0\0"/se`,
			accel.SymbolMismatch,
		},
		{"a symbol that nobody has", `s/_copy_from_user\0/_copy_from_nobd\0/g`, accel.SymbolMissing},
		{"another architecture", `substr($_, 18, 2) = "\xb7\0"`, accel.ArchMismatch},
		{"truncated", `$_ = substr($_, 0, 5000)`, accel.ModuleInvalid},
		{"empty", `$_ = ""`, accel.ModuleInvalid},
	} {
		c.sh(`perl -0777 -pe "$1" /root/edu.ko > `+installed+`; if cmp -s /root/edu.ko `+installed+
			`; then echo "nothing was patched"; exit 1; fi; depmod`, w.patch)
		c.refused(w.what, w.reason, loads)
	}
	c.sh("cp /root/edu.ko " + installed + "; depmod")
	c.start()
	c.await("the module as it was -> usable", soon, healthy(1))
}

// signed signs /root/edu.ko with a new key, as a distribution's tool does.
const signed = `openssl req -new -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=nobody/' -keyout /root/key.pem -out /root/key.x509 2>/dev/null
$(ls -d /usr/lib/linux-kbuild-*/scripts/sign-file | head -1) sha256 /root/key.pem /root/key.x509 /root/edu.ko ` + installed + `; depmod`

// Test11_LockedKernel: the kernel takes signed modules only, no modules at all, or is locked down.
func Test11_LockedKernel(t *testing.T) {
	t.Run("sig_enforce, modules_disabled", func(t *testing.T) {
		c := light(t, bed.Options{Accelerators: 1, Cmdline: "module.sig_enforce=1"})
		c.module()
		loads := c.countLoads()
		c.sh("cp /root/edu.ko " + installed + "; depmod")
		c.refused("unsigned", accel.Unsigned, loads)
		c.sh(signed)
		c.refused("signed with a key of nobody's", accel.KeyUnknown, loads)
		c.sh("echo 1 > /proc/sys/kernel/modules_disabled")
		c.refused("no modules until the next boot", accel.ModulesDisabled, loads)
	})
	t.Run("lockdown", func(t *testing.T) {
		c := light(t, bed.Options{Accelerators: 1, Cmdline: "lockdown=integrity"})
		c.sh("mountpoint -q /sys/kernel/security || mount -t securityfs securityfs /sys/kernel/security")
		c.module()
		loads := c.countLoads()
		c.sh("cp /root/edu.ko " + installed + "; depmod")
		c.refused("unsigned under lockdown", accel.LockedDown, loads)
	})
}
