// Package nbd is a disk with a write cache that goes with the power, served to QEMU by the protocol of NBD. It keeps
// apart what was flushed and what was only written, and can record every write, so that a test finds the disk as it
// would be had the power gone at any moment. It knows nothing of what is on the disk.
package nbd

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
)

// Block is what the disk writes as a whole: the physical sector of today's disks, in bytes. A longer write may be cut.
const Block = 4096

// Content is what a disk holds.
type Content struct {
	lower  io.ReaderAt // below the blocks; nil for zeros
	blocks map[int64][]byte
}

// NewContent is the content of lower, which is not written to; nil for zeros.
func NewContent(lower io.ReaderAt) Content {
	return Content{lower, map[int64][]byte{}}
}

// clone is a copy; blocks are never changed, only replaced.
func (c Content) clone() Content { return Content{c.lower, maps.Clone(c.blocks)} }

func (c Content) block(n int64) ([]byte, error) {
	if b, ok := c.blocks[n]; ok {
		return b, nil
	}
	b := make([]byte, Block)
	if c.lower == nil {
		return b, nil
	}
	if _, err := c.lower.ReadAt(b, n*Block); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read what is below the disk: %w", err)
	}
	return b, nil
}

func (c Content) read(into []byte, offset int64) error {
	for len(into) > 0 {
		b, err := c.block(offset / Block)
		if err != nil {
			return err
		}
		n := copy(into, b[offset%Block:])
		into, offset = into[n:], offset+int64(n)
	}
	return nil
}

// apply does a write; of one that may be cut, the blocks that keep is true for.
func (c Content) apply(w write, keep func() bool) error {
	for at := 0; at < len(w.data); {
		offset := w.offset + int64(at)
		n, from := offset/Block, int(offset%Block)
		length := min(Block-from, len(w.data)-at)
		if w.lasting || keep() {
			b := make([]byte, Block)
			if length < Block {
				old, err := c.block(n)
				if err != nil {
					return err
				}
				copy(b, old)
			}
			copy(b[from:], w.data[at:at+length])
			c.blocks[n] = b
		}
		at += length
	}
	return nil
}

// write is one write, or a flush of all before it, which has no data.
type write struct {
	offset  int64
	data    []byte
	lasting bool // on the disk when it is answered: FUA
}

func (w write) flush() bool { return w.data == nil }

func all() bool { return true }

// Recording is everything that was written to a disk since a moment, in order.
type Recording struct {
	base Content
	log  []write
}

// Len is how many writes and flushes there were.
func (r Recording) Len() int { return len(r.log) }

// Flushes is how many of them were flushes.
func (r Recording) Flushes() (n int) {
	for _, w := range r.log {
		if w.flush() {
			n++
		}
	}
	return n
}

// Cut is what the disk holds when the power goes after the first n of them: what was flushed, and of what was only
// written the blocks that keep is true for.
func (r Recording) Cut(n int, keep func() bool) (Content, error) {
	flushed := 0
	for i, w := range r.log[:n] {
		if w.flush() {
			flushed = i
		}
	}
	c := r.base.clone()
	for i, w := range r.log[:n] {
		choose := keep
		if i < flushed {
			choose = all
		}
		if err := c.apply(w, choose); err != nil {
			return Content{}, err
		}
	}
	return c, nil
}

// Disk is a disk. Its methods may be called from any goroutine.
type Disk struct {
	size int64

	mu        sync.Mutex
	off       bool // the power
	now       Content
	flushed   Content
	cache     []write // since the last flush
	recording *Recording
}

// New returns a disk of size bytes, a multiple of [Block].
func New(size int64, c Content) *Disk {
	d := &Disk{size: size}
	d.Load(c)
	return d
}

// Load makes the disk hold c, all of it flushed. No guest may have it open.
func (d *Disk) Load(c Content) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.flushed, d.cache, d.recording = c.clone(), c.clone(), nil, nil
}

// Record begins a recording.
func (d *Disk) Record() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recording = &Recording{base: d.now.clone()}
}

// Recorded is how many writes and flushes have been recorded until now. What was answered to the guest before is among
// them.
func (d *Disk) Recorded() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recording == nil {
		return 0
	}
	return len(d.recording.log)
}

// Recording ends the recording and returns it.
func (d *Disk) Recording() Recording {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.recording
	d.recording = nil
	if r == nil {
		return Recording{}
	}
	return *r
}

// Off takes the power away: nothing is read or written any more, and of what was written and not flushed stay the
// blocks that keep is true for. It returns how many blocks are lost.
func (d *Disk) Off(keep func() bool) (lost int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	for _, w := range d.cache {
		err = errors.Join(err, d.flushed.apply(w, func() bool {
			kept := keep()
			if !kept {
				lost++
			}
			return kept
		}))
	}
	d.now, d.cache = d.flushed.clone(), nil
	return lost, err
}

// On gives the power back.
func (d *Disk) On() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = false
}

var errOff = errors.New("the power is off")

func (d *Disk) read(into []byte, offset int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return errOff
	}
	return d.now.read(into, offset)
}

// do takes a write or a flush.
func (d *Disk) do(w write) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return errOff
	}
	if d.recording != nil {
		d.recording.log = append(d.recording.log, w)
	}
	if !w.flush() {
		d.cache = append(d.cache, w)
		return d.now.apply(w, all)
	}
	for _, c := range d.cache {
		if err := d.flushed.apply(c, all); err != nil {
			return err
		}
	}
	d.cache = nil
	return nil
}
