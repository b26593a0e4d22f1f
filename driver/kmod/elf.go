package kmod

import (
	"bytes"
	"debug/elf"
	"io"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/signing"
)

// Info is the information in a module file.
type Info struct {
	machine    elf.Machine
	Name       string
	Version    string
	SrcVersion string
	BuildID    string
	Vermagic   string
	Depends    []string
	softBefore []string          // modules to load first, if installed ("softdep: pre")
	softAfter  []string          // modules to load afterwards ("softdep: post")
	firmware   []string          // files that it may request, for every device it supports
	parameters map[string]string // their types, such as "array of int"; empty if not stated
	namespaces []string          // namespaces of the symbols that it imports
	license    string
	Signature  *signing.Signature // nil if it is unsigned
	CRCs       map[string]uint32  // of each symbol it imports, empty on kernels without symbol versions
	undefined  []string           // symbols it imports, sorted
	exports    map[string]uint32  // global symbols that it defines, with their versions, 0 if there is none
}

// Read reads a kernel module, an ELF64 relocatable file of size bytes. The file may contain anything: if it is not
// such a module or is truncated, the problem is ModuleInvalid.
func Read(r io.ReaderAt, size int64) (*Info, *accel.Problem) {
	f, err := elf.NewFile(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, accel.Problemf(accel.ModuleInvalid, "not a whole ELF file: %v", err)
	}
	defer f.Close()
	if f.Class != elf.ELFCLASS64 || f.Type != elf.ET_REL {
		return nil, accel.Problemf(accel.ModuleInvalid, "an ELF file of type %v and class %v, not a 64-bit relocatable",
			f.Type, f.Class)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL && (s.Offset > uint64(size) ||
			s.FileSize > uint64(size)-s.Offset) {
			return nil, accel.Problemf(accel.ModuleInvalid, "truncated: section %q ends after the file", s.Name)
		}
	}
	m := &Info{
		machine: f.Machine, Signature: signing.Read(r, size), parameters: map[string]string{},
		CRCs: map[string]uint32{}, exports: map[string]uint32{},
	}
	info, ok := sectionBytes(f, ".modinfo")
	if !ok {
		return nil, accel.Problemf(accel.ModuleInvalid, "no .modinfo section: not a kernel module")
	}
	m.readInfo(info)
	if note, ok := sectionBytes(f, ".note.gnu.build-id"); ok {
		m.BuildID = noteBuildID(note, f.ByteOrder)
	}
	m.readVersions(f)
	if problem := m.readSymbols(f); problem != nil {
		return nil, problem
	}
	return m, nil
}

// sectionBytes returns a section's bytes. Their number is bounded by the file's size: Read has checked that sections
// lie within the file, and compressed sections, which only debug information uses, are rejected.
func sectionBytes(f *elf.File, name string) ([]byte, bool) {
	s := f.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, false
	}
	b, err := s.Data()
	return b, err == nil
}

// readInfo reads .modinfo: "name=value" strings, each terminated by NUL.
func (m *Info) readInfo(b []byte) {
	for _, field := range strings.Split(string(b), "\x00") {
		key, value, ok := strings.Cut(field, "=")
		if !ok {
			continue
		}
		switch key {
		case "name":
			m.Name = Normal(value)
		case "version":
			m.Version = value
		case "srcversion":
			m.SrcVersion = value
		case "vermagic":
			m.Vermagic = strings.TrimSpace(value)
		case "depends":
			m.Depends = append(m.Depends, strings.Fields(strings.ReplaceAll(Normal(value), ",", " "))...)
		case "softdep":
			before, after := softDependencies(value)
			m.softBefore, m.softAfter = append(m.softBefore, before...), append(m.softAfter, after...)
		case "firmware":
			m.firmware = append(m.firmware, value)
		case "license":
			if m.license == "" { // a module of several files repeats it; the kernel uses the first
				m.license = value
			}
		case "import_ns":
			m.namespaces = append(m.namespaces, value)
		case "parm", "parmtype":
			name, text, _ := strings.Cut(value, ":")
			if key == "parm" {
				text = m.parameters[name] // "parm" has only a description
			}
			m.parameters[name] = text
		}
	}
}

// softDependencies reads a soft dependency, "pre: a b post: c".
func softDependencies(text string) (before, after []string) {
	into := new([]string) // what comes before the first of the two words is ignored
	for _, word := range strings.Fields(Normal(text)) {
		switch word {
		case "pre:":
			into = &before
		case "post:":
			into = &after
		default:
			*into = append(*into, word)
		}
	}
	return before, after
}

// readVersions reads the symbol versions: records of 64 bytes in __versions (struct modversion_info,
// include/linux/module.h), or the two sections that newer kernels (6.14) write for long names.
func (m *Info) readVersions(f *elf.File) {
	const record, word = 64, 8
	if b, ok := sectionBytes(f, "__versions"); ok {
		for ; len(b) >= record; b = b[record:] {
			name, _, _ := bytes.Cut(b[word:record], []byte{0})
			m.CRCs[string(name)] = uint32(f.ByteOrder.Uint64(b))
		}
	}
	crcs, ok1 := sectionBytes(f, "__version_ext_crcs")
	list, ok2 := sectionBytes(f, "__version_ext_names")
	if !ok1 || !ok2 {
		return
	}
	for _, name := range bytes.Split(list, []byte{0}) {
		if len(name) == 0 || len(crcs) < 4 {
			break
		}
		m.CRCs[string(name)] = f.ByteOrder.Uint32(crcs)
		crcs = crcs[4:]
	}
}

// readSymbols reads which symbols the module defines and which it imports.
func (m *Info) readSymbols(f *elf.File) *accel.Problem {
	table := f.SectionByType(elf.SHT_SYMTAB)
	if table == nil || table.Flags&elf.SHF_COMPRESSED != 0 || int(table.Link) >= len(f.Sections) ||
		f.Sections[table.Link].Flags&elf.SHF_COMPRESSED != 0 {
		return accel.Problemf(accel.ModuleInvalid, "no symbol table: not a kernel module")
	}
	symbols, err := f.Symbols()
	if err != nil {
		return accel.Problemf(accel.ModuleInvalid, "its symbol table cannot be read: %v", err)
	}
	for _, s := range symbols {
		bind := elf.ST_BIND(s.Info)
		switch {
		case s.Name == "" || bind == elf.STB_LOCAL:
		case s.Section != elf.SHN_UNDEF:
			m.exports[s.Name] = 0
		case bind == elf.STB_GLOBAL && s.Name != "_GLOBAL_OFFSET_TABLE_" && s.Name != ".TOC.":
			m.undefined = append(m.undefined, s.Name)
		}
	}
	slices.Sort(m.undefined)
	m.undefined = slices.Compact(m.undefined)
	m.readExports(f, symbols)
	return nil
}

// readExports reads the versions of what the module exports. A symbol "__ksymtab_<name>" marks an entry of the sections
// __ksymtab or __ksymtab_gpl; the entry with the same index in __kcrctab or __kcrctab_gpl is the version. Before Linux
// 5.19 the version is the value of an absolute symbol "__crc_<name>" (include/linux/export.h).
func (m *Info) readExports(f *elf.File, symbols []elf.Symbol) {
	type row struct {
		name   string
		offset uint64
	}
	rows := map[elf.SectionIndex][]row{}
	absolute := map[string]uint32{}
	for _, s := range symbols {
		if name, ok := strings.CutPrefix(s.Name, "__ksymtab_"); ok && s.Section < elf.SectionIndex(len(f.Sections)) {
			rows[s.Section] = append(rows[s.Section], row{name, s.Value})
		}
		if name, ok := strings.CutPrefix(s.Name, "__crc_"); ok && s.Section == elf.SHN_ABS {
			absolute[name] = uint32(s.Value)
		}
	}
	for section, list := range rows {
		table, _ := sectionBytes(f, strings.Replace(f.Sections[section].Name, "__ksymtab", "__kcrctab", 1))
		entry := f.Sections[section].Size / uint64(len(list))
		for _, r := range list {
			crc := absolute[r.name]
			if entry > 0 && r.offset/entry < uint64(len(table)/4) && crc == 0 {
				crc = f.ByteOrder.Uint32(table[r.offset/entry*4:])
			}
			m.exports[r.name] = crc
		}
	}
}

// elfMachine returns the ELF machine for a machine name of `uname -m`; ok is false if the name is unknown.
func elfMachine(uname string) (machine elf.Machine, ok bool) {
	machine, ok = map[string]elf.Machine{
		"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64,
		"s390x": elf.EM_S390, "loongarch64": elf.EM_LOONGARCH,
	}[uname]
	return machine, ok
}
