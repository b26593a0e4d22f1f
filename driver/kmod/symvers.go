package kmod

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// export is one symbol that the kernel or one of its modules exports.
type export struct {
	crc   uint32 // 0 on kernels without symbol versions
	owner string // "vmlinux" or a module's path without suffix, such as "drivers/gpu/drm/drm"
	gpl   bool   // only for modules with a GPL-compatible licence
	space string // the namespace to import, or "module:" and the modules that may use it; usually empty
}

// open reports whether a module may use the symbol (verify_namespace_is_imported of kernel/module/main.c).
func (e export) open(m *Info) bool {
	only, listed := strings.CutPrefix(e.space, "module:")
	if !listed {
		return e.space == "" || slices.Contains(m.namespaces, e.space)
	}
	return slices.ContainsFunc(strings.Split(only, ","), func(name string) bool {
		start, glob := strings.CutSuffix(Normal(name), "*")
		return start == m.Name || glob && strings.HasPrefix(m.Name, start)
	})
}

// scanSymvers returns the wanted symbols of a Module.symvers, which has one line
// "0x<crc>\t<symbol>\t<module>\t<type>\t<namespace>" for each symbol. The file has tens of thousands of lines, so
// only wanted symbols are kept.
func scanSymvers(r io.Reader, wanted map[string]bool) (map[string]export, error) {
	found := map[string]export{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		crc, rest, ok := bytes.Cut(lines.Bytes(), []byte("\t"))
		if !ok {
			continue
		}
		name, rest, _ := bytes.Cut(rest, []byte("\t"))
		if !wanted[string(name)] {
			continue
		}
		n, err := strconv.ParseUint(string(crc), 0, 32)
		if err != nil {
			continue
		}
		owner, rest, _ := bytes.Cut(rest, []byte("\t"))
		kind, space, _ := bytes.Cut(rest, []byte("\t"))
		found[string(name)] = export{uint32(n), string(owner), string(kind) == "EXPORT_SYMBOL_GPL", string(space)}
	}
	return found, lines.Err()
}

// dropLive removes from lost the symbols that the running kernel and its modules have. It reports whether
// /proc/kallsyms could be read. Each line is "<address> <type> <name>", followed by "[module]" for a module's symbol.
// An exported symbol also has a __ksymtab_ entry, which not every kernel lists.
func dropLive(h *host.Host, lost map[string]bool) bool {
	f, err := h.Open("/proc/kallsyms")
	if err != nil {
		return false
	}
	defer f.Close()
	listed := false
	s := bufio.NewScanner(f)
	for s.Scan() {
		listed = true
		if fields := bytes.Fields(s.Bytes()); len(fields) >= 3 {
			delete(lost, string(bytes.TrimPrefix(fields[2], []byte("__ksymtab_"))))
		}
	}
	return listed && s.Err() == nil
}

// checkSymbols compares what the module imports with what the kernel and the modules before it export. If the machine
// has neither Module.symvers nor kallsyms, there is nothing to compare with, and only the kernel's own check remains.
func (in *inspection) checkSymbols(c *candidate) (string, *accel.Problem) {
	m := c.Info
	if _, flags, _ := strings.Cut(m.Vermagic, " "); len(m.CRCs) == 0 &&
		slices.Contains(strings.Fields(flags), "modversions") {
		return "", accel.Problemf(accel.SymbolMismatch,
			"module file %q has no symbol versions, and its kernel has: it would be loaded unchecked or not at all",
			c.Path)
	}
	known, from := in.symvers(m)
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(m.CRCs)) {
		crc, where, ok := in.version(name, known)
		if !ok {
			continue
		}
		if compared++; crc != m.CRCs[name] {
			return "", accel.Problemf(accel.SymbolMismatch, "module %q needs version %#08x of symbol %q, %s has %#08x",
				m.Name, m.CRCs[name], name, where, crc)
		}
	}
	lost := map[string]bool{}
	for _, name := range m.undefined {
		row, ok := known[name]
		if _, own := in.ours[name]; own {
			continue
		}
		if ok && row.gpl && !compatibleLicence(m.license) {
			return "", accel.Problemf(accel.SymbolMissing,
				"module %q needs symbol %q, which kernel %q gives to modules of a GPL-compatible licence alone, not %q",
				m.Name, name, in.kernel.Release, m.license)
		}
		if !ok {
			lost[name] = true
		} else if !row.open(m) && !in.lenient() {
			return "", accel.Problemf(accel.SymbolMissing,
				"module %q uses symbol %q of namespace %q and does not import it, which kernel %q refuses", m.Name,
				name, row.space, in.kernel.Release)
		}
	}
	if len(lost) > 0 && in.kernel.NotRunning && from != "" {
		return "", accel.Problemf(accel.SymbolMissing, "module %q needs symbol %q, which kernel %q does not have",
			m.Name, slices.Sorted(maps.Keys(lost))[0], in.kernel.Release)
	}
	if len(lost) > 0 && !in.kernel.NotRunning && dropLive(in.Host, lost) && len(lost) > 0 {
		return "", accel.Problemf(accel.SymbolMissing,
			"module %q needs symbol %q, which neither kernel %q nor a loaded module has", m.Name,
			slices.Sorted(maps.Keys(lost))[0], in.kernel.Release)
	}
	return fmt.Sprintf("%d of %d versions compared (%s), %d symbols needed", compared, len(m.CRCs),
		cmp.Or(from, "no Module.symvers on this host"), len(m.undefined)), nil
}

// lenient reports whether the kernel only warns about a module that uses a namespace without importing it, or whether
// that is unknown.
func (in *inspection) lenient() bool {
	config := KernelConfig(in.Host, in.headers())
	return config == "" || ConfigValue(config, "CONFIG_MODULE_ALLOW_MISSING_NAMESPACE_IMPORTS") == "y"
}

// headers returns the directory of the kernel's headers, which may not exist.
func (in *inspection) headers() string {
	return cmp.Or(in.kernel.Headers, path.Join("/lib/modules", in.kernel.Release, "build"))
}

// version returns the version that a symbol will have when the module is loaded, and who provides it; ok is false if
// that is unknown. For a symbol of another module, Module.symvers is only valid if the kernel's own build of that
// module is installed: a vendor's stack replaces some of them.
func (in *inspection) version(name string, known map[string]export) (crc uint32, where string, ok bool) {
	if crc, own := in.ours[name]; own {
		return crc, "a module that it needs", crc != 0
	}
	row, listed := known[name]
	if !listed || row.crc == 0 {
		return 0, "", false
	}
	if row.owner != "vmlinux" {
		if file, there := in.index.file(path.Base(row.owner)); there && !in.index.ownFile(file) {
			return 0, "", false
		}
	}
	return row.crc, fmt.Sprintf("kernel %q", in.kernel.Release), true
}

// checkWeak says why a module of another release is not accepted, "" if it is. If the version of every symbol is
// known and equal, the module is as good as one of this release. RHEL promises that for its list of stable symbols.
func (in *inspection) checkWeak(c *candidate) string {
	known, from := in.symvers(c.Info)
	switch {
	case len(c.CRCs) == 0:
		return "it has no symbol versions"
	case from == "":
		return "there is neither Module.symvers nor symvers.gz to compare it with"
	}
	for _, name := range slices.Concat([]string{"module_layout"}, c.undefined) {
		want, has := c.CRCs[name]
		if !has {
			return fmt.Sprintf("it has no version of symbol %q", name)
		}
		if crc, _, ok := in.version(name, known); !ok {
			return fmt.Sprintf("symbol %q is not in %q", name, from)
		} else if crc != want {
			return fmt.Sprintf("symbol %q has another version in %q", name, from)
		}
	}
	return ""
}

// compatibleLicence is license_is_gpl_compatible (include/linux/license.h).
func compatibleLicence(text string) bool {
	return slices.Contains([]string{
		"GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL",
		"Dual MPL/GPL",
	}, text)
}

// symvers returns the kernel's exports that the module imports, and the file they are from: the Module.symvers of the
// headers, or the file that RHEL installs with the kernel. If there is none, both results are empty.
func (in *inspection) symvers(m *Info) (found map[string]export, from string) {
	wanted := map[string]bool{"module_layout": true}
	for _, name := range m.undefined {
		wanted[name] = true
	}
	dir := path.Join("/lib/modules", in.kernel.Release)
	for _, name := range []string{
		path.Join(in.headers(), "Module.symvers"), path.Join(dir, "build/Module.symvers"),
		path.Join(dir, "symvers.gz"), path.Join(dir, "symvers.xz"), path.Join(dir, "symvers.zst"),
		"/boot/symvers-" + in.kernel.Release + ".gz", "/boot/symvers-" + in.kernel.Release + ".xz",
	} {
		found, err := in.readSymvers(name, wanted)
		if err == nil {
			return found, name
		}
		if !errors.Is(err, fs.ErrNotExist) {
			in.Log.Warn("cannot read the kernel's symbol versions", "file", name, "error", err)
		}
	}
	return nil, ""
}

func (in *inspection) readSymvers(name string, wanted map[string]bool) (map[string]export, error) {
	f, err := in.Host.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text io.Reader = f
	if path.Ext(name) != ".symvers" {
		const most = 256 << 20
		whole := &bytes.Buffer{}
		if err := Unpack(whole, f, name, most); err != nil {
			return nil, err
		}
		text = whole
	}
	return scanSymvers(text, wanted)
}
