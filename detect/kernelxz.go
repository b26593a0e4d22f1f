package detect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// The .xz file format, version 1.2.1 (tukaani.org): the kernel's build packs x86 with a filter that the library does not
// have, so that the first block is opened here. Checksums are not looked at: whoever reads this checks what comes out.

// Filters of the format, section 5.3.
const (
	filterX86   = 0x04
	filterLZMA2 = 0x21
)

// newKernelXZ unpacks the first block of an .xz stream, which is all that the kernel's build makes.
func newKernelXZ(r *bufio.Reader) (io.Reader, error) {
	const streamHeader = 12
	if _, err := r.Discard(streamHeader); err != nil {
		return nil, err
	}
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	header := make([]byte, (int(first[0])+1)*4)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	filters, rest := int(header[1]&3)+1, header[2:]
	number := func() uint64 {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			rest = nil
			return 0
		}
		rest = rest[size:]
		return n
	}
	for _, present := range []byte{0x40, 0x80} { // sizes
		if header[1]&present != 0 {
			number()
		}
	}
	x86 := false
	for range filters {
		id, size := number(), number()
		if size > uint64(len(rest)) {
			return nil, errors.New("an .xz block header that ends early")
		}
		properties := rest[:size]
		rest = rest[size:]
		switch {
		case id == filterX86 && size == 0:
			x86 = true
		case id == filterLZMA2 && size == 1 && properties[0] < 40:
			bits := properties[0]
			content, err := lzma.Reader2Config{DictCap: (2 | int(bits&1)) << (bits/2 + 11)}.NewReader2(r)
			if err != nil || !x86 {
				return content, err
			}
			return &x86Reader{in: content}, nil
		default:
			return nil, fmt.Errorf("packed with filter %#x, which is not read here", id)
		}
	}
	return nil, errors.New("an .xz block without content")
}

// x86Reader takes back what the x86 filter did: the packer replaced the relative targets of calls and jumps (opcodes e8 and
// e9) by absolute ones, which repeat more often. It did so only for targets whose highest byte is 0 or ff, and was careful
// with opcodes among the four bytes before: those of a target may look like one.
type x86Reader struct {
	in   io.Reader
	buf  []byte
	done int    // bytes of buf that are ready
	pos  uint32 // of buf's begin in the content
	seen uint32 // which of the three bytes before look like an opcode that was not converted, a bit each
	err  error
}

func (x *x86Reader) Read(p []byte) (int, error) {
	for x.done == 0 {
		if x.err != nil {
			if len(x.buf) == 0 {
				return 0, x.err
			}
			x.done = len(x.buf) // the last four bytes hold no whole target
			break
		}
		chunk := make([]byte, 1<<16)
		n, err := x.in.Read(chunk)
		x.buf, x.err = append(x.buf, chunk[:n]...), err
		x.done = x.convert()
	}
	n := copy(p, x.buf[:x.done])
	x.buf, x.done, x.pos = x.buf[n:], x.done-n, x.pos+uint32(n)
	return n, nil
}

// extends reports whether a byte is the highest of a near target, in either direction.
func extends(high byte) bool { return high == 0 || high == 0xff }

// convert works on buf from its begin and returns how many bytes are ready.
func (x *x86Reader) convert() int {
	const operand = 4
	i := 0
	for i+operand < len(x.buf) {
		before := x.seen
		x.seen = before << 1 & 7
		if x.buf[i]&0xfe != 0xe8 {
			i++
			continue
		}
		if !x.target(i, before) {
			x.seen |= 1
			i++
			continue
		}
		x.seen = 0
		i += 1 + operand
	}
	return i
}

// target makes the operand of the opcode at i relative again, and reports whether it was absolute.
func (x *x86Reader) target(i int, before uint32) bool {
	var shift uint32 // how far the one doubtful opcode before reaches into the operand, in bits
	switch before {
	case 0:
	case 1, 2:
		shift = 8 * before
	case 4:
		shift = 24
	default: // with two of them nothing was converted
		return false
	}
	operand := x.buf[i+1 : i+5]
	if shift > 0 && extends(operand[3-shift/8]) || !extends(operand[3]) {
		return false
	}
	here := x.pos + uint32(i) + 5
	to := binary.LittleEndian.Uint32(operand) - here
	for shift > 0 && extends(byte(to>>(24-shift))) {
		to = (to ^ (1<<(32-shift) - 1)) - here
	}
	const sign = 1 << 24 // of what a near target needs
	to &= sign<<1 - 1
	to |= -(to & sign)
	binary.LittleEndian.PutUint32(operand, to)
	return true
}
