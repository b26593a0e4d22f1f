package ko

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/acceld/acceld/accel"
)

// Definition is the definition of the device that QEMU has for teaching.
func Definition() *accel.Definition {
	return &accel.Definition{
		Kind:     "qemu-edu",
		Resource: "qemu.org/edu",
		Match:    []accel.Match{{Vendor: "1234", Device: "11e8"}},
		Driver:   accel.DriverDefinition{Binds: "edu", Modules: []accel.Module{{Name: "edu"}}},
		Nodes:    []accel.NodeSource{{Glob: "accelerator_edu/edu*"}},
		Check:    &accel.Check{File: "factorial", Write: "10", Want: "3628800", Sentence: "10! computed by the device"},
	}
}

// The kernel that the modules are for, and a device.
const (
	// Release is what `uname -r` says.
	Release = "6.1.0-test"
	Device  = "0000:01:00.0"
	// Flags are what follows the release in vermagic.
	Flags = "SMP preempt mod_unload modversions"
)

// Module describes a module file to make.
type Module struct {
	Name, Version, BuildID string
	Info                   []string // more fields of .modinfo
	Vermagic               string
	Machine                elf.Machine
	CRCs                   map[string]uint32 // version 1 of module_layout when nil
	Undefined, Defined     []string
	Signature              []byte // PKCS #7
}

// Bytes is the file: a 64-bit little-endian relocatable with .modinfo, symbols, versions and, where asked for, a
// signature.
func (m Module) Bytes() []byte {
	if m.Machine == 0 {
		m.Machine = elf.EM_X86_64
	}
	if m.Vermagic == "" {
		m.Vermagic = Release + " " + Flags + " "
	}
	body := assemble(m.Machine, m.sections())
	if m.Signature != nil { // struct module_signature (include/linux/module_signature.h)
		const pkcs7 = 2
		body = append(append(body, m.Signature...), 0, 0, pkcs7, 0, 0, 0, 0, 0)
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(m.Signature))), "~Module signature appended~\n"...)
	}
	return body
}

// section is one of the file; its number is its place in the list.
type section struct {
	name       string
	kind       elf.SectionType
	data       []byte
	link       uint32
	entry, off uint64
}

// sections are those of the module, the first and the names of all for the assembler to fill in.
func (m Module) sections() []section {
	le := binary.LittleEndian
	info := "name=" + m.Name + "\x00vermagic=" + m.Vermagic + "\x00"
	if m.Version != "" {
		info += "version=" + m.Version + "\x00"
	}
	for _, f := range m.Info {
		info += f + "\x00"
	}
	if m.CRCs == nil {
		m.CRCs = map[string]uint32{"module_layout": 1}
	}
	var versions bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(m.CRCs)) {
		record := make([]byte, 64)
		le.PutUint64(record, uint64(m.CRCs[name]))
		copy(record[8:], name)
		versions.Write(record)
	}
	var note []byte
	if id, _ := hex.DecodeString(m.BuildID); len(id) > 0 {
		note = le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 4), uint32(len(id))), 3)
		note = append(append(note, "GNU\x00"...), id...)
	}
	strtab, symtab := []byte{0}, make([]byte, 24)
	symbol := func(name string, section uint16) {
		s := le.AppendUint32(nil, uint32(len(strtab)))
		s = append(s, byte(elf.STB_GLOBAL)<<4, 0)
		s = le.AppendUint16(s, section)
		symtab = append(symtab, append(s, make([]byte, 16)...)...)
		strtab = append(append(strtab, name...), 0)
	}
	for _, n := range m.Undefined {
		symbol(n, 0)
	}
	for _, n := range m.Defined {
		symbol(n, 1)
	}
	return []section{
		{},
		{name: ".modinfo", kind: elf.SHT_PROGBITS, data: []byte(info)},
		{name: "__versions", kind: elf.SHT_PROGBITS, data: versions.Bytes()},
		{name: ".note.gnu.build-id", kind: elf.SHT_NOTE, data: note},
		{name: ".symtab", kind: elf.SHT_SYMTAB, data: symtab, link: 5, entry: 24},
		{name: ".strtab", kind: elf.SHT_STRTAB, data: strtab},
		{name: ".shstrtab", kind: elf.SHT_STRTAB},
	}
}

// assemble lays out a file of sections.
func assemble(machine elf.Machine, sections []section) []byte {
	le := binary.LittleEndian
	names := []byte{0}
	offsets := make([]uint32, len(sections))
	for i, s := range sections[1:] {
		offsets[i+1] = uint32(len(names))
		names = append(append(names, s.name...), 0)
	}
	sections[6].data = names
	body := make([]byte, 64)
	for i := range sections[1:] {
		s := &sections[i+1]
		for len(body)%8 != 0 {
			body = append(body, 0)
		}
		s.off = uint64(len(body))
		body = append(body, s.data...)
	}
	for len(body)%8 != 0 {
		body = append(body, 0)
	}
	table := uint64(len(body))
	for i, s := range sections {
		h := le.AppendUint32(le.AppendUint32(nil, offsets[i]), uint32(s.kind))
		for _, v := range []uint64{0, 0, s.off, uint64(len(s.data))} {
			h = le.AppendUint64(h, v)
		}
		h = le.AppendUint32(le.AppendUint32(h, s.link), 1)
		body = append(body, le.AppendUint64(le.AppendUint64(h, 1), s.entry)...)
	}
	copy(body, "\x7fELF\x02\x01\x01")
	le.PutUint16(body[16:], uint16(elf.ET_REL))
	le.PutUint16(body[18:], uint16(machine))
	le.PutUint32(body[20:], 1)
	le.PutUint64(body[40:], table)
	le.PutUint16(body[52:], 64)
	le.PutUint16(body[58:], 64)
	le.PutUint16(body[60:], uint16(len(sections)))
	le.PutUint16(body[62:], 6)
	return body
}

// Edu is a good module file.
func Edu() Module {
	return Module{
		Name: "edu", Version: "1.0.0", Defined: []string{"init_module"},
		BuildID: "b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1", Info: []string{
			"parm=fail_probe:x",
			"parmtype=max_factorial:uint",
		},
	}
}
