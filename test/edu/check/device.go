package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// accelerator is what the checks need of a device.
type accelerator interface {
	Info() (info, error)
	Factorial(n uint32) (uint32, error)       // n! modulo 2^32
	Copy(data []byte) (out []byte, err error) // through the device's memory
}

// info is who a device is.
type info struct {
	Serial, BDF  string
	MaxFactorial uint32 // the largest n it takes
	DMAMax       int    // the most that it copies at once, bytes
}

// errGone is for a device that went away under its holder.
var errGone = errors.New("no such device")

// gone names the device in err, and gives a vanished one its own error.
func gone(path string, err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("device gone: %s: %w", path, errGone)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// numbers are those of a device node; part is -1 for a whole device.
type numbers struct{ device, part int }

// nodeName is /dev/edu<N> or /dev/edu<N>p<M>.
var nodeName = regexp.MustCompile(`^edu(0|[1-9][0-9]{0,5})(?:p([0-9]))?$`)

// find returns the paths of the device nodes in dev, lowest number first. A device is left out of which a partition is
// there: it cannot be opened while it is divided.
func find(dev fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(dev, ".")
	if err != nil {
		return nil, err
	}
	var found []numbers
	divided := map[int]bool{}
	for _, e := range entries {
		m := nodeName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		n := numbers{part: -1}
		n.device, _ = strconv.Atoi(m[1]) // at most six digits
		if m[2] != "" {
			n.part, _ = strconv.Atoi(m[2])
			divided[n.device] = true
		}
		found = append(found, n)
	}
	slices.SortFunc(found, func(a, b numbers) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.part, b.part))
	})
	var paths []string
	for _, n := range found {
		path := "/dev/edu" + strconv.Itoa(n.device)
		switch {
		case n.part >= 0:
			path += "p" + strconv.Itoa(n.part)
		case divided[n.device]:
			continue
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// The ioctls and structs of module/edu.h; a test compares them with it.
const (
	ioctlInfo      = 0x8040ed00
	ioctlFactorial = 0xc010ed01
	ioctlCopy      = 0x4018ed02
	ioctlRead      = 0x4018ed04

	abiVersion = 1
	dmaMax     = 4095
)

type eduInfo struct {
	BDF          [16]byte
	Serial       [32]byte
	Index        uint32
	ABIVersion   uint32
	MaxFactorial uint32
	DMAMax       uint32
}

type eduFactorial struct {
	N, Result, DoneBy, _ uint32
}

type eduCopy struct {
	Src, Dst uint64
	Len, _   uint32
}

// node is an open /dev/edu<N> or /dev/edu<N>p<M>. It is closed by the end of the process, as a
// workload's would be.
type node struct {
	fd int
}

func open(path string) (accelerator, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open: %w", err)
	}
	return node{fd}, nil
}

func (n node) ioctl(name string, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(n.fd), request, uintptr(arg)); errno != 0 {
		return fmt.Errorf("%s: %w", name, errno)
	}
	return nil
}

func (n node) Info() (info, error) {
	var i eduInfo
	if err := n.ioctl("EDU_INFO", ioctlInfo, unsafe.Pointer(&i)); err != nil {
		return info{}, err
	}
	if i.ABIVersion != abiVersion {
		return info{}, fmt.Errorf("driver speaks abi %d, not %d", i.ABIVersion, abiVersion)
	}
	if i.DMAMax == 0 { // of a driver from before there were partitions
		i.DMAMax = dmaMax
	}
	return info{unix.ByteSliceToString(i.Serial[:]), unix.ByteSliceToString(i.BDF[:]), i.MaxFactorial, int(i.DMAMax)},
		nil
}

func (n node) Factorial(x uint32) (uint32, error) {
	f := eduFactorial{N: x}
	err := n.ioctl("EDU_FACTORIAL", ioctlFactorial, unsafe.Pointer(&f))
	return f.Result, err
}

func (n node) Copy(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errors.New("nothing to copy")
	}
	out := make([]byte, len(data))
	var pin runtime.Pinner // the kernel gets the addresses as numbers
	defer pin.Unpin()
	pin.Pin(&data[0])
	pin.Pin(&out[0])
	c := eduCopy{
		Src: uint64(uintptr(unsafe.Pointer(&data[0]))),
		Dst: uint64(uintptr(unsafe.Pointer(&out[0]))),
		Len: uint32(len(data)),
	}
	err := n.ioctl("EDU_DMA_COPY", ioctlCopy, unsafe.Pointer(&c))
	return out, err
}

// Left reads the beginning of the device's memory as its last user has left it.
func (n node) Left(size int) ([]byte, error) {
	out := make([]byte, size)
	var pin runtime.Pinner // the kernel gets the address as a number
	defer pin.Unpin()
	pin.Pin(&out[0])
	c := eduCopy{Dst: uint64(uintptr(unsafe.Pointer(&out[0]))), Len: uint32(size)}
	return out, n.ioctl("EDU_DMA_READ", ioctlRead, unsafe.Pointer(&c))
}
