package driver

import (
	"bufio"
	"bytes"
	"io"
	"path"
	"strconv"

	"github.com/acceld/acceld/accel"
)

// scanSymvers returns the CRCs of the wanted symbols from a Module.symvers: "0x<crc>\t<symbol>\t<module>\t<type>\t<ns>"
// a line. The file has tens of thousands of lines, so only what is wanted is kept.
func scanSymvers(r io.Reader, wanted map[string]bool) (map[string]uint32, error) {
	found := map[string]uint32{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		crc, rest, ok := bytes.Cut(lines.Bytes(), []byte("\t"))
		if !ok {
			continue
		}
		name, _, _ := bytes.Cut(rest, []byte("\t"))
		if !wanted[string(name)] {
			continue
		}
		n, err := strconv.ParseUint(string(crc), 0, 32)
		if err != nil {
			continue
		}
		found[string(name)] = uint32(n)
	}
	return found, lines.Err()
}

// scanKallsyms returns which of the wanted symbols the running kernel and its modules have, "<address> <type> <name>"
// a line and "[module]" after it. What is exported has a __ksymtab_ entry besides, which not every kernel lists.
func scanKallsyms(r io.Reader, wanted map[string]bool) (found map[string]bool, lines int, err error) {
	found = map[string]bool{}
	s := bufio.NewScanner(r)
	for s.Scan() {
		lines++
		fields := bytes.Fields(s.Bytes())
		if len(fields) < 3 {
			continue
		}
		name := bytes.TrimPrefix(fields[2], []byte("__ksymtab_"))
		if wanted[string(name)] {
			found[string(name)] = true
		}
	}
	return found, lines, s.Err()
}

// checkSymbols compares what the module imports with what the kernel exports. Where the machine has neither
// Module.symvers nor kallsyms there is nothing to compare with, and the kernel's own check remains.
func (d *Driver) checkSymbols(m *moduleFile, k accel.Kernel, ours map[string]bool) *accel.Problem {
	wanted := map[string]bool{"module_layout": true}
	for _, name := range m.undefined {
		wanted[name] = true
	}
	known := d.symvers(k, wanted)
	for _, name := range sortedKeys(m.crcs) {
		if crc, ok := known[name]; ok && crc != 0 && crc != m.crcs[name] {
			return accel.Problemf(accel.SymbolMismatch, "module %q needs version %#08x of symbol %q, kernel %q has %#08x", m.name, m.crcs[name], name, k.Release, crc)
		}
	}
	var missing []string
	lost := map[string]bool{}
	for _, name := range m.undefined {
		if _, ok := known[name]; !ok && !ours[name] {
			missing = append(missing, name)
			lost[name] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found, ok := d.kallsyms(lost)
	for _, name := range missing {
		if ok && !found[name] {
			return accel.Problemf(accel.SymbolMissing, "module %q needs symbol %q, which neither kernel %q nor a loaded module has", m.name, name, k.Release)
		}
	}
	return nil
}

// kallsyms returns which of the wanted symbols the running kernel has; ok is false when it does not say.
func (d *Driver) kallsyms(wanted map[string]bool) (found map[string]bool, ok bool) {
	f, err := d.h.Open("/proc/kallsyms")
	if err != nil {
		return nil, false
	}
	defer f.Close()
	found, lines, err := scanKallsyms(f, wanted)
	return found, err == nil && lines > 0
}

// symvers returns the kernel's CRCs of the wanted symbols, nil when the machine has no Module.symvers.
func (d *Driver) symvers(k accel.Kernel, wanted map[string]bool) map[string]uint32 {
	for _, dir := range []string{k.Headers, path.Join("/lib/modules", k.Release, "build")} {
		if dir == "" {
			continue
		}
		f, err := d.h.Open(path.Join(dir, "Module.symvers"))
		if err != nil {
			continue
		}
		found, err := scanSymvers(f, wanted)
		_ = f.Close() // it was only read
		if err == nil {
			return found
		}
	}
	return nil
}
