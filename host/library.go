package host

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Library finds the shared library with this soname for the machine's own processor, as the machine's loader would:
// first in /etc/ld.so.cache, then in the default directories. It returns the file itself, with links resolved, as the
// machine sees it.
func (p Programs) Library(soname string) (string, error) {
	if strings.ContainsRune(soname, '/') {
		return "", fmt.Errorf("%q is not the name of a library", soname)
	}
	var candidates []string
	if cache, err := p.h.ReadFile("/etc/ld.so.cache"); err == nil {
		candidates = cachedLibraries(cache, soname)
	}
	for _, dir := range p.LibraryDirs() {
		candidates = append(candidates, path.Join(dir, soname))
	}
	for _, name := range candidates {
		if p.Native(name) {
			return p.h.Follow(name)
		}
	}
	return "", fmt.Errorf("cannot find library %q: %w", soname, fs.ErrNotExist)
}

// LibraryDirs returns the loader's default directories: Debian's multiarch ones first, then the generic ones
// (ld.so(8)).
func (p Programs) LibraryDirs() []string {
	dirs := []string{"/usr/lib64", "/lib64", "/usr/lib", "/lib"}
	if arch := p.processor(); arch != "" {
		dirs = append([]string{"/usr/lib/" + arch + "-linux-gnu", "/lib/" + arch + "-linux-gnu"}, dirs...)
	}
	return dirs
}

// cachedLibraries returns the paths that the loader's cache has for a soname, best first. The format is glibc's
// "ld.so.cache" 1.1 (sysdeps/generic/dl-cache.h), possibly preceded by the older format. Offsets count from the magic
// of 1.1.
func cachedLibraries(cache []byte, soname string) []string {
	const headerSize, entrySize = 48, 24
	start := bytes.Index(cache, []byte("glibc-ld.so.cache1.1"))
	if start < 0 || len(cache) < start+headerSize {
		return nil
	}
	cache = cache[start:]
	text := func(offset uint32) string {
		if int64(offset) >= int64(len(cache)) {
			return ""
		}
		s, _, _ := bytes.Cut(cache[offset:], []byte{0})
		return string(s)
	}
	var out []string
	entries := int64(binary.NativeEndian.Uint32(cache[20:]))
	for i := range entries {
		at := headerSize + i*entrySize
		if at+entrySize > int64(len(cache)) {
			break
		}
		if text(binary.NativeEndian.Uint32(cache[at+4:])) == soname {
			out = append(out, text(binary.NativeEndian.Uint32(cache[at+8:])))
		}
	}
	return out
}

// Native reports whether name is an ELF file for the machine's processor.
func (p Programs) Native(name string) bool {
	f, err := p.h.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false
	}
	header := make([]byte, 20) // e_ident, e_type, e_machine
	if n, err := f.ReadAt(header, 0); n < len(header) || err != nil {
		return false
	}
	if !bytes.HasPrefix(header, []byte(elf.ELFMAG)) {
		return false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(header[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	want, known := map[string]elf.Machine{
		"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390,
		"riscv64": elf.EM_RISCV, "loongarch64": elf.EM_LOONGARCH,
	}[p.processor()]
	return elf.Class(header[elf.EI_CLASS]) == elf.ELFCLASS64 &&
		(!known || elf.Machine(order.Uint16(header[18:])) == want)
}

// processor returns the processor that was asked for, or else Arch or, for a copy of a machine, what its procfs says
// (Linux 6.1). It is empty if neither knows.
func (p Programs) processor() string {
	if p.arch != "" {
		return p.arch
	}
	if arch := p.h.Kernel().Arch(); arch != "" {
		return arch
	}
	arch, _ := p.h.ReadAttribute("/proc/sys/kernel/arch")
	return arch
}
