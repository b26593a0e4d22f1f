package settings

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/host/ledger"
)

// functional is a machine with a device that can have up to 7 virtual functions, and what the kernel does with them.
func functional(t *testing.T, count int) *bed {
	t.Helper()
	b := newBed(t)
	b.def.Probe = nil
	b.def.Functions = &accel.Functions{Count: count}
	b.m.SetAttribute(one, "sriov_totalvfs", "7")
	b.m.SetAttribute(one, "sriov_numvfs", "0")
	b.m.SetAttribute(one, "sriov_drivers_autoprobe", "1")
	b.write = b.kernel
	return b
}

// kernel is what Linux does with what is written (sriov_numvfs_store).
func (b *bed) kernel(name, text string) error {
	file := path.Base(name)
	if file != "sriov_numvfs" {
		b.m.SetAttribute(one, file, text)
		return nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return unix.EINVAL
	case n > 7:
		return unix.ERANGE
	case n != 0 && b.functions() != "0":
		return unix.EBUSY
	}
	b.m.SetAttribute(one, file, text)
	return nil
}

// functions is how many virtual functions the device has.
func (b *bed) functions() string {
	text, err := b.m.Host.ReadAttribute(functionFile(one, "sriov_numvfs"))
	if err != nil {
		b.Error(err)
	}
	return text
}

// change changes the definition, as another configuration does.
func (b *bed) change(change func(*accel.Definition)) {
	b.mu.Lock()
	change(&b.def)
	b.mu.Unlock()
	b.changed()
}

func (b *bed) used(users ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users = users
}

// TestFunctions: a device that is divided into its virtual functions is withheld until it has them. Their number
// changes only when nobody has one, by way of 0, and is as before when it is no longer configured.
func TestFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := functional(t, 4)
		b.def.Partitions = &accel.Partitions{Find: "virtfn*"}
		k := b.keeper()
		stop := b.run(k)
		defer func() { stop() }()
		if a := b.device(k); a.Withheld == nil || a.Withheld.Reason != accel.FunctionsInUse {
			t.Errorf("before: %+v", a.Withheld)
		}
		time.Sleep(calm + time.Second)
		b.shows(k, accel.SettingApplied, "4", false)
		b.wrote("4")
		b.noted("0 <- 4 done")
		stop()
		k = b.keeper()
		stop = b.run(k)
		time.Sleep(time.Minute)
		b.shows(k, accel.SettingApplied, "4", false)
		b.wrote() // the next agent has nothing to do

		b.used("pod default/machine")
		b.change(func(def *accel.Definition) { def.Functions = &accel.Functions{Count: 2} })
		time.Sleep(time.Minute)
		h := b.shows(k, accel.SettingWaits, "4", true)
		if h.Message != "until nobody has a virtual function of the device: pod default/machine" {
			t.Error(h.Message)
		}
		b.wrote()
		b.used()
		time.Sleep(busy + time.Second)
		b.shows(k, accel.SettingApplied, "2", false)
		b.wrote("0", "2")

		b.change(func(def *accel.Definition) { def.Functions = nil })
		time.Sleep(calm + 2*time.Second)
		synctest.Wait()
		b.wrote("0")
		b.noted()
		if a := b.device(k); a.Withheld != nil || len(a.Settings) > 0 {
			t.Errorf("after: %+v, %+v", a.Withheld, a.Settings)
		}
	})
}

// TestFunctionsOfAnotherKind: while their number waits, the functions are withheld, and the device is not.
func TestFunctionsOfAnotherKind(t *testing.T) {
	const function = "0000:01:00.1"
	synctest.Test(t, func(t *testing.T) {
		b := functional(t, 2)
		b.m.SetAttribute(one, "sriov_numvfs", "1")
		b.m.AddPCI(accel.PCIDevice{Address: function, Vendor: "1234", Device: "11e9"})
		dir, err := b.m.Host.Follow("/sys/bus/pci/devices/" + function)
		if err != nil {
			t.Fatal(err)
		}
		b.m.Link(dir+"/physfn", "../"+one)
		b.used("pod default/machine")
		k := b.keeper()
		defer b.run(k)()
		other := func() accel.Accelerator {
			return k.Enrich(&accel.Definition{Kind: "c-d"}, []accel.Accelerator{{ID: function, Bound: "vfio-pci"}})[0]
		}
		time.Sleep(time.Minute)
		b.shows(k, accel.SettingWaits, "1", false)
		if a := other(); a.Withheld == nil || a.Withheld.Reason != accel.FunctionsInUse ||
			!strings.Contains(a.Withheld.Message, "pod default/machine") || !a.WithheldAlone() {
			t.Errorf("the function: %+v", a.Withheld)
		}
		b.used()
		time.Sleep(busy + time.Second)
		b.shows(k, accel.SettingApplied, "2", false)
		b.wrote("0", "2")
		if a := other(); a.Withheld != nil {
			t.Errorf("the function is still withheld: %+v", a.Withheld)
		}
		b.noted("1 <- 2 done")
	})
}

// TestFunctionsAfterRebind: a driver that is bound again has made none, and gets them again.
func TestFunctionsAfterRebind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := functional(t, 4)
		k := b.keeper()
		defer b.run(k)()
		time.Sleep(calm + time.Second)
		b.shows(k, accel.SettingApplied, "4", false)
		b.wrote("4")
		b.m.Unbind(one)
		b.m.SetAttribute(one, "sriov_numvfs", "0")
		b.m.Modprobe(hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}})
		b.m.Bind(one, "edu")
		b.changed()
		time.Sleep(calm + 2*time.Second)
		b.shows(k, accel.SettingApplied, "4", false)
		b.wrote("4")
		b.noted("0 <- 4 done")
	})
}

// TestFunctionsRefused: each failure has a name of its own.
func TestFunctionsRefused(t *testing.T) {
	refuse := func(err error) func(*bed) {
		return func(b *bed) { b.write = func(string, string) error { return err } }
	}
	for name, c := range map[string]struct {
		change func(*bed)
		state  accel.SettingState
		reason accel.Reason
		says   string
		writes bool
	}{
		"no SR-IOV": {
			func(b *bed) {
				dir, err := b.m.Host.Follow("/sys/bus/pci/devices/" + one)
				if err != nil {
					b.Fatal(err)
				}
				b.m.Remove(dir + "/sriov_totalvfs")
				b.m.Remove(dir + "/sriov_numvfs")
			}, accel.SettingUnsupported, accel.FunctionsUnsupported, "SR-IOV", false,
		},
		"a driver that makes none": {
			refuse(unix.ENOENT), accel.SettingUnsupported, accel.FunctionsUnsupported, "its driver makes no virtual functions",
			true,
		},
		"a driver that refuses": {
			refuse(unix.ENOMEM), accel.SettingRefused, accel.FunctionsRefused, "cannot allocate memory", true,
		},
		"more than there are": {
			func(b *bed) { b.def.Functions.Count = 8 }, accel.SettingRefused, accel.FunctionsFewer, "8 is above 7", false,
		},
		"fewer than asked for": {
			func(b *bed) {
				b.write = func(string, string) error { b.m.SetAttribute(one, "sriov_numvfs", "3"); return nil }
			}, accel.SettingRefused, accel.FunctionsFewer, "the device has taken 4 and says 3", true,
		},
		"nonsense": {
			func(b *bed) { b.m.SetAttribute(one, "sriov_numvfs", "\x01") }, accel.SettingRefused, accel.FunctionsRefused,
			"no value of a setting", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := functional(t, 4)
				c.change(b)
				k := b.keeper()
				defer b.run(k)()
				time.Sleep(calm + 2*time.Second)
				synctest.Wait()
				a := b.device(k)
				if len(a.Settings) != 1 || a.Withheld != nil {
					t.Fatalf("%+v, withheld %+v", a.Settings, a.Withheld)
				}
				h := a.Settings[0]
				if h.State != c.state || h.Reason() != c.reason || !strings.Contains(h.Message, c.says) {
					t.Errorf("%+v for %s", h, h.Reason())
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if len(b.writes) > 0 != c.writes {
					t.Errorf("written was %q", b.writes)
				}
			})
		})
	}
}

// TestNoFunctions: a device that cannot have virtual functions has none, as configured.
func TestNoFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.def.Functions = &accel.Functions{}
		k := b.keeper()
		defer b.run(k)()
		b.shows(k, accel.SettingApplied, "0", false)
		b.wrote()
	})
}

// TestFunctionsAutoprobe: whether the kernel looks for drivers is set before there are functions. A virtual function
// gets neither.
func TestFunctionsAutoprobe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := functional(t, 4)
		b.def.Functions.Autoprobe = new(bool)
		k := b.keeper()
		stop := b.run(k)
		time.Sleep(calm + time.Second)
		synctest.Wait()
		b.wrote("0", "4")
		if a := b.device(k); len(a.Settings) != 2 || a.Settings[0].Name != accel.SettingAutoprobe ||
			a.Settings[0].State != accel.SettingApplied || a.Settings[1].State != accel.SettingApplied {
			t.Errorf("%+v", a.Settings)
		}
		stop()
		b = functional(t, 4)
		b.m.SetAttribute(one, "physfn/vendor", "0x1234")
		k = b.keeper()
		defer b.run(k)()
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wrote()
		if a := b.device(k); len(a.Settings) > 0 || a.Withheld != nil {
			t.Errorf("a virtual function: %+v, %+v", a.Settings, a.Withheld)
		}
	})
}

// TestFunctionsPurged: a purge restores their number, by way of 0, and not under their users.
func TestFunctionsPurged(t *testing.T) {
	for before, want := range map[int][]string{0: {"0"}, 2: {"0", "2"}} {
		synctest.Test(t, func(t *testing.T) {
			b := functional(t, 4)
			b.m.SetAttribute(one, "sriov_numvfs", fmt.Sprint(before))
			stop := b.run(b.keeper())
			time.Sleep(calm + time.Second)
			stop()
			b.writes = nil
			b.used("qemu (pid 7)")
			if got := b.purge(false); got.Action != ledger.Left || got.Reason != accel.InUse ||
				!strings.Contains(got.Detail, "pid 7") || b.functions() != "4" {
				t.Errorf("in use: %+v", got)
			}
			b.used()
			if got := b.purge(false); got.Action != ledger.Restored || b.functions() != fmt.Sprint(before) {
				t.Errorf("%+v, it has %s", got, b.functions())
			}
			b.wrote(want...)
			b.noted()
		})
	}
}
