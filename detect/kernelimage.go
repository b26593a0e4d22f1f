package detect

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
	"github.com/ulikunitz/xz/lzma"
)

// kernelImage is what a kernel's file says about that kernel, the same facts that a running kernel reports about
// itself.
type kernelImage struct {
	arch    string // as uname -m; empty when the file does not say
	release string // as uname -r; empty when the file does not say
	version string // as uname -v
	buildID string // hex, as in /sys/kernel/notes
}

// readKernelImage reads a kernel's file: an x86 bzImage (Documentation/x86/boot.rst), an EFI zboot image
// (drivers/firmware/efi/libstub/zboot-header.S), a compressed or plain arm64 Image (Documentation/arm64/booting.rst),
// or an ELF vmlinux. If the kernel cannot be unpacked, the build ID is empty and the result has the remaining facts
// along with the error.
//
// An 8 MB x86 kernel packed with xz takes about a second and, meanwhile, the memory of its dictionary.
func readKernelImage(r io.ReaderAt, size int64) (kernelImage, error) {
	head := make([]byte, 0x1000)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return kernelImage{}, err
	}
	head = head[:n]
	if n < 16 {
		return kernelImage{}, errors.New("too short for a kernel")
	}
	le := binary.LittleEndian
	switch {
	case n >= 0x250 && string(head[0x202:0x206]) == "HdrS":
		k := bannerOf(cString(r, int64(le.Uint16(head[0x20e:]))+0x200))
		k.arch = "x86_64"
		const payloadSince = 0x208 // protocol 2.08, Linux 2.6.26
		if le.Uint16(head[0x206:]) < payloadSince {
			return k, errors.New("too old to say where its payload is")
		}
		sectors := int64(head[0x1f1])
		if sectors == 0 {
			sectors = 4
		}
		start := (sectors+1)*512 + int64(le.Uint32(head[0x248:]))
		payload, err := readPayload(io.NewSectionReader(r, start, int64(le.Uint32(head[0x24c:]))))
		k.buildID = payload.buildID
		return k, err
	case string(head[4:8]) == "zimg":
		return readPayload(io.NewSectionReader(r, int64(le.Uint32(head[8:])), int64(le.Uint32(head[12:]))))
	default:
		return readPayload(io.NewSectionReader(r, 0, size))
	}
}

// cString reads a string that ends with NUL.
func cString(r io.ReaderAt, at int64) string {
	b := make([]byte, 512)
	n, _ := r.ReadAt(b, at) // a string at the end of the file may be shorter
	text, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(text)
}

// bannerOf splits "<release> (<builder>) <version>". A banner also has "(<compiler>)" before the version.
func bannerOf(text string) kernelImage {
	release, rest, _ := strings.Cut(text, " ")
	_, version, ok := strings.Cut(rest, " #")
	if !ok {
		return kernelImage{release: release}
	}
	return kernelImage{release: release, version: "#" + strings.TrimSpace(version)}
}

// readPayload unpacks and reads a kernel.
func readPayload(r io.Reader) (kernelImage, error) {
	content, err := unpackKernel(bufio.NewReaderSize(r, 1<<16))
	if err != nil {
		return kernelImage{}, err
	}
	b := bufio.NewReaderSize(content, 1<<16)
	if magic, err := b.Peek(len(elf.ELFMAG)); err != nil {
		return kernelImage{}, err
	} else if string(magic) != elf.ELFMAG {
		return findBanner(b)
	}
	id, err := elfBuildID(b)
	return kernelImage{buildID: id}, err
}

// unpackKernel unpacks a kernel by its first bytes, as the kernel's scripts/extract-vmlinux does. Data that is not
// packed is returned as it is.
func unpackKernel(r *bufio.Reader) (io.Reader, error) {
	magic, err := r.Peek(6)
	if err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")):
		return openXZ(r)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(1<<30), zstd.WithDecoderMaxWindow(1<<28),
			zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	case bytes.HasPrefix(magic, []byte("BZh")):
		return bzip2.NewReader(r), nil
	case bytes.HasPrefix(magic, []byte{0x5d, 0, 0}):
		return lzma.NewReader(r)
	case bytes.HasPrefix(magic, []byte{0x02, 0x21}), bytes.HasPrefix(magic, []byte{0x89, 'L', 'Z', 'O'}):
		return nil, errors.New("packed in a way that is not read here")
	}
	return r, nil
}

// openXZ opens an .xz stream. The kernel's build packs x86 with that architecture's branch filter and with a
// dictionary of at most 128 MiB (scripts/xz_wrap.sh, Linux 6.12). It appends the size of the content to the stream.
func openXZ(r io.Reader) (io.Reader, error) {
	z, err := xz.NewReader(r, 128<<20)
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	return z, nil
}

// elfBuildID reads an ELF64 file from its beginning up to its notes; the rest need not be unpacked.
func elfBuildID(r *bufio.Reader) (string, error) {
	const most = 1 << 16
	head := make([]byte, 64)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", err
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	start, size, count := order.Uint64(head[32:]), uint64(order.Uint16(head[54:])), uint64(order.Uint16(head[56:]))
	if elf.Class(head[elf.EI_CLASS]) != elf.ELFCLASS64 || start < 64 || start > most || size < 56 || size*count > most {
		return "", errors.New("not the ELF file of a kernel")
	}
	at := int64(64)
	read := func(from, n uint64) ([]byte, error) {
		if _, err := io.CopyN(io.Discard, r, int64(from)-at); err != nil {
			return nil, err
		}
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		at = int64(from) + int64(n)
		return b, err
	}
	headers, err := read(start, size*count)
	if err != nil {
		return "", err
	}
	for i := range count {
		h := headers[i*size:]
		from, n := order.Uint64(h[8:]), order.Uint64(h[32:])
		if elf.ProgType(order.Uint32(h)) != elf.PT_NOTE || from < uint64(at) || from > 1<<32 || n > most {
			continue
		}
		notes, err := read(from, n)
		if err != nil {
			return "", err
		}
		if id := buildID(notes); id != "" {
			return id, nil
		}
	}
	return "", errors.New("no build id in it")
}

// findBanner looks for "Linux version <release> (<builder>) (<compiler>) #<version>\n" (init/version.c) in a kernel
// that is not an ELF file. Its own notes cannot be told apart from those of files embedded in it.
func findBanner(r *bufio.Reader) (kernelImage, error) {
	const start = "Linux version "
	var window []byte
	chunk := make([]byte, 1<<16)
	for {
		n, err := r.Read(chunk)
		window = append(window, chunk[:n]...)
		for {
			i := bytes.Index(window, []byte(start))
			if i < 0 {
				window = window[max(0, len(window)-len(start)):]
				break
			}
			end := bytes.IndexByte(window[i:], '\n')
			if end < 0 && err == nil {
				if len(window)-i < 1<<12 {
					window = window[i:]
					break // the rest of the line comes with the next chunk
				}
				end = len(start)
			}
			if end < 0 {
				break
			}
			line := string(window[i : i+end])
			if k := bannerOf(line[strings.LastIndex(line, start)+len(start):]); k.version != "" {
				return k, nil
			}
			window = window[i+len(start):]
		}
		if err != nil {
			return kernelImage{}, fmt.Errorf("no kernel's banner in it: %w", err)
		}
	}
}
