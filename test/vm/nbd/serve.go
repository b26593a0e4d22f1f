package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
)

// The protocol's numbers: NBD's doc/proto.md of 2023, "fixed newstyle negotiation" and "simple reply".
const (
	magicServer  = 0x4e42444d41474943 // NBDMAGIC
	magicOption  = 0x49484156454f5054 // IHAVEOPT
	magicAnswer  = 0x3e889045565a9
	magicRequest = 0x25609513
	magicReply   = 0x67446698

	fixedNewstyle, noZeroes = 1, 2

	optionName, optionAbort, optionInfo, optionGo = 1, 2, 6, 7
	answerAck, answerInfo, answerUnsupported      = 1, 3, 1<<31 | 1

	hasFlags, sendsFlush, sendsFUA = 1, 4, 8

	commandRead, commandWrite, commandEnd, commandFlush = 0, 1, 2, 3

	flagFUA = 1
	longest = 64 << 20 // bytes of one request; QEMU sends at most 32 MiB
)

// Devices are QEMU's arguments for a disk with this serial number that is served on a socket. Its address is behind
// those of the test bed's own disks, whose names are by their order.
func Devices(socket, serial string) []string {
	return []string{
		"-blockdev", "driver=nbd,node-name=" + serial + ",server.type=unix,server.path=" + strings.ReplaceAll(socket,
			",", ",,"),
		"-device",
		fmt.Sprintf("virtio-blk-pci,drive=%s,serial=%s,logical_block_size=%d,physical_block_size=%d,addr=08.0", serial,
			serial, Block, Block),
	}
}

// Server serves a disk on a socket.
type Server struct {
	disk     *Disk
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// Serve serves the disk on a unix socket until the server is closed. QEMU may come and go.
func (d *Disk) Serve(socket string) (*Server, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("cannot serve a disk: %w", err)
	}
	s := &Server{disk: d, listener: l, conns: map[net.Conn]bool{}}
	go s.accept()
	return s, nil
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		go func() {
			defer c.Close()
			if s.greet(c) == nil {
				_ = s.answer(c) // it ends with QEMU
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		}()
	}
}

func put(c io.Writer, values ...any) error {
	var out []byte
	for _, v := range values {
		if b, ok := v.([]byte); ok {
			out = append(out, b...)
			continue
		}
		var err error
		if out, err = binary.Append(out, binary.BigEndian, v); err != nil {
			return err
		}
	}
	_, err := c.Write(out)
	return err
}

func (s *Server) flags() uint16 { return hasFlags | sendsFlush | sendsFUA }

var errEnd = errors.New("the client does not want the disk")

// greet agrees with the client on the one disk that there is.
func (s *Server) greet(c net.Conn) error {
	if err := put(c, uint64(magicServer), uint64(magicOption), uint16(fixedNewstyle|noZeroes)); err != nil {
		return err
	}
	var client uint32
	if err := binary.Read(c, binary.BigEndian, &client); err != nil {
		return err
	}
	for {
		var option struct {
			Magic     uint64
			ID, Bytes uint32
		}
		if err := binary.Read(c, binary.BigEndian, &option); err != nil {
			return err
		}
		if option.Magic != magicOption || option.Bytes > 4096 {
			return errors.New("not the protocol of NBD")
		}
		if _, err := io.CopyN(io.Discard, c, int64(option.Bytes)); err != nil {
			return err
		}
		answer := func(kind uint32, data ...any) error {
			length := 0
			for _, d := range data {
				length += binary.Size(d)
			}
			return put(c, append([]any{uint64(magicAnswer), option.ID, kind, uint32(length)}, data...)...)
		}
		switch option.ID {
		case optionName:
			values := []any{uint64(s.disk.size), s.flags()}
			if client&noZeroes == 0 {
				values = append(values, make([]byte, 124))
			}
			return put(c, values...)
		case optionInfo, optionGo:
			const infoExport, infoBlockSize = 0, 3
			err := errors.Join(
				answer(answerInfo, uint16(infoExport), uint64(s.disk.size), s.flags()),
				answer(answerInfo, uint16(infoBlockSize), uint32(1), uint32(Block), uint32(32<<20)),
				answer(answerAck),
			)
			if err != nil || option.ID == optionGo {
				return err
			}
		case optionAbort:
			return errors.Join(answer(answerAck), errEnd)
		default:
			if err := answer(answerUnsupported); err != nil {
				return err
			}
		}
	}
}

// answer answers requests, one after the other, until the client ends.
func (s *Server) answer(c net.Conn) error {
	for {
		var r struct {
			Magic          uint32
			Flags, Command uint16
			Handle, Offset uint64
			Length         uint32
		}
		if err := binary.Read(c, binary.BigEndian, &r); err != nil {
			return err
		}
		if r.Magic != magicRequest || r.Length > longest {
			return errors.New("not the protocol of NBD")
		}
		var data []byte
		if r.Command == commandWrite {
			data = make([]byte, r.Length)
			if _, err := io.ReadFull(c, data); err != nil {
				return err
			}
		}
		outside := r.Offset+uint64(r.Length) > uint64(s.disk.size)
		var err error
		switch {
		case r.Command == commandEnd:
			return nil
		case outside:
			err = syscall.EINVAL
		case r.Command == commandRead:
			data = make([]byte, r.Length)
			err = s.disk.read(data, int64(r.Offset))
		case r.Command == commandWrite && r.Length > 0:
			err = s.disk.do(write{offset: int64(r.Offset), data: data, lasting: r.Flags&flagFUA != 0})
		case r.Command == commandWrite:
		case r.Command == commandFlush:
			err = s.disk.do(write{})
		default:
			err = syscall.EINVAL
		}
		if errors.Is(err, errOff) {
			return err // who has no power does not answer
		}
		code := uint32(0)
		if err != nil {
			code = uint32(syscall.EIO)
		}
		reply := []any{uint32(magicReply), code, r.Handle}
		if r.Command == commandRead && err == nil {
			reply = append(reply, data)
		}
		if err := put(c, reply...); err != nil {
			return err
		}
	}
}
