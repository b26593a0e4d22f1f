package settings

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Binding identifies the binding of a driver to a device within a boot: the inode of the link to the driver, whose
// number kernfs never gives out twice. It is 0 if no driver is bound.
func Binding(h *host.Host, address string) uint64 {
	n, err := h.Identity(h.Devices().Place(address).Driver)
	if err != nil {
		return 0
	}
	return n
}

// file finds the attribute of a setting.
func file(h *host.Host, address string, s accel.Setting) (name, text string, err error) {
	found := h.Devices().Attributes(address).All(s.File)
	if len(found) > 1 {
		return "", "", fmt.Errorf("%d files match %q", len(found), s.File)
	}
	return found[0].Name, found[0].Text, found[0].Err
}

// readFile reads a setting that is an attribute. Early is true shortly after the driver was bound, which may not have
// made the attribute yet.
func readFile(h *host.Host, address string, s accel.Setting, early bool) (r Reading) {
	if s.OfFunctions() && !h.Exists(functionFile(address, "sriov_totalvfs")) {
		if s.Needs == accel.SettingNeedsFunctions && s.Value == none {
			return Reading{Text: none}
		}
		return Reading{Unsupported: "the device has no virtual functions (SR-IOV)"}
	}
	_, text, err := file(h, address, s)
	switch {
	case errors.Is(err, fs.ErrNotExist) && early:
		return Reading{Unknown: fmt.Sprintf("its driver has made %q", s.File)}
	case errors.Is(err, fs.ErrNotExist):
		return Reading{Unsupported: fmt.Sprintf("its driver has no %q", s.File)}
	case errors.Is(err, unix.EOPNOTSUPP):
		return Reading{Unsupported: fmt.Sprintf("its driver does not support %q", s.File)}
	case err != nil:
		return Reading{Problem: err.Error()}
	case !accel.SettingText(text):
		return Reading{Problem: fmt.Sprintf("%q says %.80q, which is no value of a setting", s.File, text)}
	}
	r.Text = text
	for _, bound := range []struct {
		file string
		into *string
	}{{s.MinFile, &r.Least}, {s.MaxFile, &r.Most}} {
		if bound.file == "" {
			continue
		}
		_, text, err := file(h, address, accel.Setting{File: bound.file})
		if err != nil || !accel.SameSetting(text, text) || !accel.SettingText(text) {
			return Reading{Problem: fmt.Sprintf("the bound in %q cannot be read (%v, %.80q)", bound.file, err, text)}
		}
		*bound.into = text
	}
	return r
}

// readTold takes what a probe program has reported about a setting.
func readTold(all map[string]accel.ProbeSetting, s accel.Setting) Reading {
	p, there := all[s.Name]
	if !there {
		return Reading{Unsupported: "the device has no such setting"}
	}
	for _, text := range []string{p.Value, p.Pending, p.Min, p.Max} {
		if text != "" && !accel.SettingText(text) {
			return Reading{Problem: fmt.Sprintf("its probe program says %.80q, which is no value of a setting", text)}
		}
	}
	r := Reading{Text: p.Value, Pending: p.Pending, Blind: p.Value == "", Least: p.Min, Most: p.Max}
	if r.Pending == r.Text {
		r.Pending = ""
	}
	return r
}
