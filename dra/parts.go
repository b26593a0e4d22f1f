package dra

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// ofParts notes of which devices a record has parts that are made for it.
func (r *record) ofParts(def *accel.Definition, accs map[string]accel.Accelerator) {
	if !def.Makes() {
		return
	}
	for i, g := range r.Devices {
		if a := accs[g.Device]; a.Parent != "" {
			r.Devices[i].Parent, r.Devices[i].Profile = DeviceName(a.Parent), a.Profile
		}
	}
}

// shape makes the parts of a claim, or makes its devices whole, one after another, and puts them into accs as they are
// then. The claim is on disk by then: it says which parts are needed, until it is unprepared.
func (p claims) shape(ctx context.Context, r record, accs map[string]accel.Accelerator) *accel.Problem {
	def := p.list.load().def
	if !def.Makes() {
		return nil
	}
	shaped := map[string]bool{}
	for _, g := range r.Devices {
		if g.Admin || g.Use != "" || shaped[g.Device] { // one device may serve two requests
			continue
		}
		shaped[g.Device] = true
		a, problem := p.cfg.Shape(ctx, def, accs[g.Device], r.UID, r.Namespace+"/"+r.Name)
		if problem != nil {
			return accel.Problemf(problem.Reason, "cannot prepare %s: %s", r, problem.Message)
		}
		accs[g.Device] = a
	}
	return nil
}

// NeededParts returns a function that reports whether claims of a kind need a device, by its ID, divided into parts of
// a profile. While a record cannot be read, every division is needed.
func NeededParts(h *host.Host, stateDir, kind string) func(device, profile string) bool {
	dir := path.Join(stateDir, "dra", kind)
	needed, unknown := map[[2]string]bool{}, false
	entries, err := h.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		unknown = true
	}
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !uidForm.MatchString(uid) {
			continue
		}
		data, err := h.ReadFile(path.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // unprepared meanwhile
		}
		var r record
		if err == nil {
			r, err = readRecord(uid, data)
		}
		unknown = unknown || err != nil
		for _, g := range r.Devices {
			if g.Parent != "" {
				needed[[2]string{g.Parent, g.Profile}] = true
			}
		}
	}
	return func(device, profile string) bool { return unknown || needed[[2]string{DeviceName(device), profile}] }
}
