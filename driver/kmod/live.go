package kmod

import (
	"encoding/binary"
	"encoding/hex"
	"path"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// The values of /sys/module/<name>/initstate; a module that is gone has no directory.
const (
	StateLive   = "live"
	StateComing = "coming"
	stateGoing  = "going"
)

// TaintDied is the bit of /proc/sys/kernel/tainted that an oops sets (TAINT_DIE, include/linux/panic.h).
const TaintDied = 1 << 7

// Normal returns a module's name as the kernel spells it.
func Normal(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Live reads what sysfs shows about a module; ok is false if it is not loaded. Built-in code that has parameters has
// a directory without initstate, and is not a module.
func Live(h *host.Host, name string) (m accel.LoadedModule, ok bool) {
	dir := path.Join("/sys/module", Normal(name))
	state, err := h.ReadAttribute(path.Join(dir, "initstate"))
	if err != nil {
		return accel.LoadedModule{}, false
	}
	read := func(file string) string {
		s, _ := h.ReadAttribute(path.Join(dir, file)) // empty if the kernel does not show it
		return s
	}
	m = accel.LoadedModule{
		Name: Normal(name), State: state, Version: read("version"), SrcVersion: read("srcversion"),
		Taint: read("taint"),
	}
	m.RefCnt, _ = strconv.Atoi(read("refcnt")) // a kernel that cannot unload modules does not show it
	if note, err := h.ReadFile(path.Join(dir, "notes/.note.gnu.build-id")); err == nil {
		m.BuildID = noteBuildID(note, binary.NativeEndian)
	}
	if holders, err := h.ReadDir(path.Join(dir, "holders")); err == nil {
		for _, e := range holders {
			m.Holders = append(m.Holders, e.Name())
		}
	}
	return m, true
}

// noteBuildID finds the GNU build-id in the bytes of an ELF note section, "" if there is none.
func noteBuildID(b []byte, order binary.ByteOrder) string {
	const gnuBuildID = 3 // NT_GNU_BUILD_ID, elf.h
	for len(b) >= 12 {
		name, desc, kind := int64(order.Uint32(b)), int64(order.Uint32(b[4:])), order.Uint32(b[8:])
		start := 12 + (name+3)&^3
		end := start + desc
		if end > int64(len(b)) {
			return ""
		}
		if kind == gnuBuildID && name == 4 && string(b[12:15]) == "GNU" {
			return hex.EncodeToString(b[start:end])
		}
		next := start + (desc+3)&^3
		if next > int64(len(b)) {
			return ""
		}
		b = b[next:]
	}
	return ""
}

// Died reports whether the kernel has oopsed since it started.
func Died(h *host.Host) bool { return Taint(h)&TaintDied != 0 }

// Taint reads the kernel's taint bits, 0 if they cannot be read.
func Taint(h *host.Host) uint64 {
	text, _ := h.ReadAttribute("/proc/sys/kernel/tainted")
	bits, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return bits
}

// Same compares a live module with a file: by build-id, or by source version and version if either has no build-id.
func Same(m accel.LoadedModule, buildID, srcVersion, version string) bool {
	if m.BuildID != "" && buildID != "" {
		return m.BuildID == buildID
	}
	return m.SrcVersion == srcVersion && m.Version == version
}
