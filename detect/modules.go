package detect

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Modules lists the loaded kernel modules ordered by name, and what could not be read. Built-in modules are not
// listed: they have no initstate.
func Modules(h *host.Host) ([]accel.LoadedModule, []string) {
	all, err := h.OpenDir(modulesDir)
	if err != nil {
		return nil, []string{fmt.Sprintf("cannot list modules: %v", err)}
	}
	defer all.Close()
	names, err := all.Names()
	if err != nil {
		return nil, []string{fmt.Sprintf("cannot list modules: %v", err)}
	}
	var modules []accel.LoadedModule
	var problems []string
	for _, name := range names {
		m, loaded, err := module(h, all, name)
		if err != nil {
			problems = append(problems, fmt.Sprintf("cannot read %s/%s: %v", modulesDir, name, err))
		}
		if loaded {
			modules = append(modules, m)
		}
	}
	return modules, problems
}

func module(h *host.Host, all *host.Dir, name string) (m accel.LoadedModule, loaded bool, err error) {
	dir, err := all.Sub(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return m, false, nil // unloaded since the directory was listed, or an attribute of all, such as "compression"
	}
	if err != nil {
		return m, false, err
	}
	defer dir.Close()
	r := reader{dir: dir}
	m = accel.LoadedModule{Name: name, State: r.text("initstate")}
	if m.State == "" {
		return m, false, r.err
	}
	m.Version, m.SrcVersion, m.Taint = r.text("version"), r.text("srcversion"), r.text("taint")
	m.RefCnt = max(0, r.number("refcnt", 0))
	if m.RefCnt > 0 { // every holder holds a reference
		if holders, err := dir.Sub("holders"); err == nil {
			m.Holders, err = holders.Names()
			holders.Close()
			if err != nil {
				r.fail(err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			r.fail(err)
		}
	}
	note, err := h.ReadBinary(dir.Name() + "/notes/.note.gnu.build-id")
	if err == nil {
		m.BuildID = buildID(note)
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.fail(err)
	}
	return m, true, r.err
}
