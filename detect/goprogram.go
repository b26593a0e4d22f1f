package detect

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"runtime/debug"
)

// errNoGoProgram means that a file was not built by Go 1.18 or later.
var errNoGoProgram = errors.New("not a program of Go 1.18 or later")

// goProgram reads what the Go toolchain recorded in a program about its modules and flags. It is debug/buildinfo for
// ELF only: the other formats (PE, Mach-O, XCOFF) never run on our hosts and would make the agent 0.4 MB larger.
//
// The section begins with 14 bytes of magic, one byte for the pointer size, one for flags, and 16 unused bytes. The
// version and the text about the modules follow, each preceded by its length (debug/buildinfo, Go 1.26). The text has
// 16 bytes of sentinel on both sides (cmd/go/internal/modload, ModInfoData).
func goProgram(r io.ReaderAt) (*debug.BuildInfo, error) {
	const (
		magic, inline = "\xff Go buildinf:", 2
		header, guard = 32, 16
		largest       = 1 << 20 // the text has a few kilobytes
	)
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	s := f.Section(".go.buildinfo")
	if s == nil || s.Type == elf.SHT_NOBITS || s.Size > largest {
		return nil, errNoGoProgram
	}
	data, err := s.Data()
	if err != nil {
		return nil, err
	}
	if len(data) < header || string(data[:len(magic)]) != magic || data[15]&inline == 0 {
		return nil, errNoGoProgram
	}
	data = data[header:]
	var text [2]string
	for i := range text {
		n, size := binary.Uvarint(data)
		if size <= 0 || n > uint64(len(data)-size) {
			return nil, errNoGoProgram
		}
		text[i], data = string(data[size:size+int(n)]), data[size+int(n):]
	}
	modules := text[1]
	if len(modules) < 2*guard {
		return nil, errNoGoProgram
	}
	return debug.ParseBuildInfo(modules[guard : len(modules)-guard])
}
