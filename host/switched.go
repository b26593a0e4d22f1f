package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
)

// SwitchedDir holds the journals of devices that are given out with another driver than their kind's, one file each:
// <PCI address>.json. It is empty after a boot, like the bindings that the journals are about.
const SwitchedDir = "/run/acceld/switched"

// switchedForm is the name of a journal.
var switchedForm = regexp.MustCompile(`^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\.json$`)

// maxSwitched is how many journals are read; a host has fewer devices.
const maxSwitched = 4096

// Switched returns the journals by PCI address. A journal that cannot be read is an error, and the others are returned:
// its device must not be touched as if it had none.
func (d Devices) Switched() (map[string]accel.Switched, error) {
	names, err := d.h.Names(SwitchedDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read which devices are given out otherwise: %w", err)
	}
	out := map[string]accel.Switched{}
	for _, name := range names {
		m := switchedForm.FindStringSubmatch(name)
		if m == nil {
			continue // a file that is being written
		}
		s, one := d.SwitchedOf(m[1])
		err = errors.Join(err, one)
		if s != nil && len(out) < maxSwitched { // nil if it was removed meanwhile
			out[m[1]] = *s
		}
	}
	return out, err
}

// SwitchedOf returns the journal of one device; nil if it has none.
func (d Devices) SwitchedOf(id string) (*accel.Switched, error) {
	f, err := d.h.Open(switchedFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s accel.Switched
	if err == nil {
		defer func() { _ = f.Close() }() // read only
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(f, accel.MaxSwitched+1)); err == nil {
			s, err = accel.ReadSwitched(text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %q, which says as what device %q is given out: %w", switchedFile(id), id, err)
	}
	return &s, nil
}

// Switch writes the journal of a device. It is synced when the call returns.
func (d Devices) Switch(id string, s accel.Switched) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = d.h.MkdirAll(SwitchedDir, 0o755)
	}
	if err == nil {
		err = d.h.WriteFile(switchedFile(id), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the journal of device %q: %w", id, err)
	}
	return nil
}

// Unswitch removes the journal of a device.
func (d Devices) Unswitch(id string) error { return d.h.Remove(switchedFile(id)) }

func switchedFile(id string) string { return path.Join(SwitchedDir, strings.ToLower(id)+".json") }
