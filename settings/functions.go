package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// none is the number of virtual functions of a device without any.
const none = "0"

// errNoFunctions says that a driver cannot make virtual functions.
var errNoFunctions = errors.New("its driver makes no virtual functions")

// functionFile is a file of a PCI function.
func functionFile(address, file string) string {
	return path.Join("/sys/bus/pci/devices", address, file)
}

// isFunction reports whether a device is a virtual function: it has no virtual functions of its own.
func isFunction(h *host.Host, address string) bool { return h.Exists(functionFile(address, "physfn")) }

// functionsCause returns the reason of a setting of virtual functions; empty for other settings, and if there is none.
func functionsCause(s accel.Setting, h accel.SettingHave) accel.Reason {
	switch {
	case !s.OfFunctions():
	case h.State == accel.SettingUnsupported:
		return accel.FunctionsUnsupported
	case h.State == accel.SettingRefused:
		return cmp.Or(h.Cause, accel.FunctionsRefused)
	}
	return ""
}

// writeFile writes a text to the attribute of a setting. The kernel changes the number of virtual functions only from
// and to 0 (sriov_numvfs_store, drivers/pci/iov.c), and has no such file for a driver that makes none.
func writeFile(h *host.Host, write func(name, text string) error, address string, s accel.Setting, text string) error {
	name, now, err := file(h, address, s)
	if err != nil {
		return err
	}
	if s.Needs == accel.SettingNeedsFunctions && !accel.SameSetting(now, none) && !accel.SameSetting(text, none) {
		err = write(name, none)
	}
	if err == nil {
		err = write(name, text)
	}
	if s.Needs == accel.SettingNeedsFunctions && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (%w)", errNoFunctions, err)
	}
	return err
}

// withFunctions withholds virtual functions whose number is about to change, unless they are partitions: those are
// withheld with their device. The keeper is locked.
func (k *Keeper) withFunctions(accs []accel.Accelerator) []accel.Accelerator {
	changing := map[string]*accel.Withheld{}
	for id, d := range k.devices {
		if d.hold != nil && d.hold.Reason == accel.FunctionsInUse {
			changing[id] = d.hold
		}
	}
	if len(changing) == 0 {
		return accs
	}
	for i := range accs {
		to, err := k.o.Host.Readlink(functionFile(accs[i].ID, "physfn"))
		if hold := changing[path.Base(to)]; err == nil && hold != nil {
			withhold(&accs[i], &accel.Withheld{
				By: accel.BySettings, Reason: accel.FunctionsInUse,
				Message: fmt.Sprintf("of device %s, whose %s", path.Base(to), hold.Message),
			})
		}
	}
	return accs
}
