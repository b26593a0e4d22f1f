package accel

import "encoding/binary"

// ConfigSpace is the configuration space of a PCI function, as far as it could be read: 64 bytes without the right to
// read more, 256 of a conventional function, 4096 of one of PCI Express. The device writes its bytes, so they may be
// anything: each lookup is bounded and stays inside.
type ConfigSpace []byte

const (
	headerBytes  = 64  // what everybody may read (PCI_STD_HEADER_SIZEOF)
	classicBytes = 256 // where the extended configuration space begins
)

// Readable reports whether more than the header could be read.
func (c ConfigSpace) Readable() bool { return len(c) > headerBytes }

// HasExtended reports whether the extended configuration space could be read.
func (c ConfigSpace) HasExtended() bool { return len(c) > classicBytes }

// Express reports whether the function is one of PCI Express; unknown if its capabilities could not be read.
func (c ConfigSpace) Express() Answer[bool] {
	if len(c) < classicBytes {
		return Answer[bool]{}
	}
	const express = 0x10
	_, found := c.Capability(express)
	return Known(found)
}

// Capability returns the offset of a capability (PCI Express Base Specification 6.0, 7.5.1.1.11). A list that leads
// into the header, out of the space or round in a circle ends there.
func (c ConfigSpace) Capability(id byte) (at int, found bool) {
	if len(c) < classicBytes {
		return 0, false
	}
	at = int(c[0x34]) &^ 3
	for range (classicBytes - headerBytes) / 4 { // a capability has 4 bytes at least
		if at < headerBytes {
			return 0, false
		}
		if c[at] == id {
			return at, true
		}
		at = int(c[at+1]) &^ 3
	}
	return 0, false
}

// Extended returns the offset of an extended capability (PCI Express Base Specification 6.0, 7.6.3): a header of 32
// bits with the ID, a version and the offset of the next one. A list that leads out of the extended space or round in a
// circle ends there.
func (c ConfigSpace) Extended(id uint16) (at int, found bool) {
	at = classicBytes
	for range (4096 - classicBytes) / 8 { // as many as the kernel looks at (pci_find_next_ext_capability)
		header := c.Word(at)
		if at < classicBytes || header == 0 || header == 0xffffffff { // no capability, or no answer
			return 0, false
		}
		if header&0xffff == uint32(id) {
			return at, true
		}
		at = int(header>>20) &^ 3
	}
	return 0, false
}

// Word returns the 32 bits at an offset; all ones, which is what a function that does not answer returns, if they are
// outside.
func (c ConfigSpace) Word(at int) uint32 {
	if at < 0 || at > len(c)-4 {
		return 0xffffffff
	}
	return binary.LittleEndian.Uint32(c[at:])
}

// ACS are the controls of Access Control Services of a function (7.7.11.3 of the same). A port with a redirect sends
// requests between devices below it, or their completions, up to the root complex instead of straight on.
type ACS uint16

// The controls that redirect traffic between peers: those that the kernel looks at before it lets devices reach each
// other (pci_bridge_has_acs_redir in drivers/pci/p2pdma.c).
const (
	ACSRequestRedirect    ACS = 1 << 2
	ACSCompletionRedirect ACS = 1 << 3
	ACSEgressControl      ACS = 1 << 5
)

// Redirects reports whether traffic between peers is redirected.
func (a ACS) Redirects() bool {
	return a&(ACSRequestRedirect|ACSCompletionRedirect|ACSEgressControl) != 0
}

// ACS returns the controls, which are all off for a function without them. They are not known if the capabilities could
// not be read.
func (c ConfigSpace) ACS() Answer[ACS] {
	const accessControl = 0x000d
	switch express := c.Express(); {
	case express.Is(false):
		return Known(ACS(0))
	case !express.Known || !c.HasExtended():
		return Answer[ACS]{}
	}
	at, found := c.Extended(accessControl)
	if !found {
		return Known(ACS(0))
	}
	if at > len(c)-8 {
		return Answer[ACS]{}
	}
	return Known(ACS(c.Word(at+4) >> 16)) // the capability register is below
}

// BAR is a base address register: the window through which others reach the memory of a function.
type BAR struct {
	Index int   `json:"index"`
	Size  int64 `json:"size"` // bytes
	// Largest is the largest size that the function supports, as far as it says; 0 if it does not.
	Largest int64 `json:"largest,omitempty"`
}

// ResizableBARs returns the registers whose size can be changed (7.8.6 of the same).
func (c ConfigSpace) ResizableBARs() (out []BAR) {
	const resizable = 0x0015
	at, found := c.Extended(resizable)
	if !found || at > len(c)-12 {
		return nil
	}
	number := int(c.Word(at+8) >> 5 & 7)
	for i := range min(number, 6) {
		entry := at + 4 + 8*i
		if entry > len(c)-8 {
			break
		}
		supported, control := c.Word(entry), c.Word(entry+4)
		b := BAR{Index: int(control & 7), Size: mebibytes(int(control >> 8 & 0x3f))}
		for bit := 4; bit < 32; bit++ {
			if supported>>bit&1 != 0 {
				b.Largest = mebibytes(bit - 4)
			}
		}
		if b.Index < 6 && b.Size > 0 && b.Largest > 0 && !hasBAR(out, b.Index) {
			out = append(out, b)
		}
	}
	return out
}

// mebibytes returns 2^n MiB in bytes, or 0 for more than the 128 TiB that the field of sizes can name.
func mebibytes(n int) int64 {
	if n > 27 {
		return 0
	}
	return 1 << (20 + n)
}

func hasBAR(bars []BAR, index int) bool {
	for _, b := range bars {
		if b.Index == index {
			return true
		}
	}
	return false
}
