package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// With -vfio the program is a driver in user space: it computes on the registers of the devices that its container was
// given with VFIO, as their environment names them. The numbers are those of include/uapi/linux/vfio.h (Linux 6.12) and
// of QEMU's docs/specs/edu.rst.

const (
	vfioSetIOMMU     = 0x3b66 // _IO(';', 100 + 2)
	vfioGroupStatus  = 0x3b67
	vfioSetContainer = 0x3b68
	vfioGetDevice    = 0x3b6a
	vfioRegionInfo   = 0x3b6c
	vfioType1v2      = 3
	vfioViable       = 1 // VFIO_GROUP_FLAGS_VIABLE

	atIdent     = 0x00 // 0xRRrr00ed
	atFactorial = 0x08
	atStatus    = 0x20 // bit 0: it computes

	metadataGlob = "/var/run/kubernetes.io/dra-device-attributes/*/*/*/*-metadata.json"
)

// vfioRegion is struct vfio_region_info.
type vfioRegion struct {
	Argsz, Flags, Index, CapOffset uint32
	Size, Offset                   uint64
}

// vfioAddresses returns the PCI addresses that the environment names.
func vfioAddresses(environ []string) (all []string) {
	for _, e := range environ {
		if name, address, ok := strings.Cut(e, "="); ok && strings.HasPrefix(name, "ACCELD_VFIO_") {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return all
}

// metadataAddresses returns the PCI addresses in the files with the metadata of the container's devices.
func metadataAddresses(files []string, read func(string) ([]byte, error)) (all []string, err error) {
	for _, file := range files {
		text, err := read(file)
		if err != nil {
			return nil, err
		}
		var m struct {
			APIVersion string
			Requests   []struct {
				Devices []struct {
					Attributes map[string]struct{ String string }
				}
			}
		}
		if err := json.NewDecoder(strings.NewReader(string(text))).Decode(&m); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if !strings.HasPrefix(m.APIVersion, "metadata.resource.k8s.io/") {
			return nil, fmt.Errorf("%s: it is of %q", file, m.APIVersion)
		}
		for _, r := range m.Requests {
			for _, d := range r.Devices {
				all = append(all, d.Attributes["resource.kubernetes.io/pciBusID"].String)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// checkVFIO lets every device compute, and keeps them for as long as c says.
func checkVFIO(ctx context.Context, c config, stdout io.Writer) (int, error) {
	addresses := vfioAddresses(os.Environ())
	files, err := filepath.Glob(metadataGlob)
	if err != nil {
		return 0, err
	}
	told, err := metadataAddresses(files, os.ReadFile)
	if err != nil {
		return 0, err
	}
	if !slices.Equal(addresses, told) {
		return 0, fmt.Errorf("the environment names %q, and the metadata %q", addresses, told)
	}
	if c.expect >= 0 && len(addresses) != c.expect || len(addresses) == 0 {
		return 0, fmt.Errorf("%d device(s) given with vfio, %d expected", len(addresses), c.expect)
	}
	for _, address := range addresses {
		registers, err := openVFIO(address)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", address, err)
		}
		if err := computeVFIO(registers); err != nil {
			return 0, fmt.Errorf("%s: %w", address, err)
		}
		fmt.Fprintf(stdout, "%s computes 10! through vfio\n", address)
	}
	if c.hold > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(c.hold):
		}
	}
	return len(addresses), nil
}

// openVFIO opens a device, which stays open until the program ends, and maps its registers.
func openVFIO(address string) ([]byte, error) {
	group, err := os.Readlink("/sys/bus/pci/devices/" + address + "/iommu_group")
	if err != nil {
		return nil, err
	}
	container, err := unix.Open("/dev/vfio/vfio", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/dev/vfio/vfio", Err: err}
	}
	node := "/dev/vfio/" + filepath.Base(group)
	fd, err := unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: node, Err: err}
	}
	status := struct{ Argsz, Flags uint32 }{Argsz: 8}
	if err := ioctl(fd, vfioGroupStatus, unsafe.Pointer(&status)); err != nil {
		return nil, fmt.Errorf("status of the group: %w", err)
	}
	if status.Flags&vfioViable == 0 {
		return nil, errors.New("a driver of the host has a function of the group")
	}
	handle := int32(container)
	if err := ioctl(fd, vfioSetContainer, unsafe.Pointer(&handle)); err != nil {
		return nil, fmt.Errorf("container of the group: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(container), vfioSetIOMMU, vfioType1v2); errno != 0 {
		return nil, fmt.Errorf("IOMMU: %w", errno)
	}
	name, err := unix.BytePtrFromString(address)
	if err != nil {
		return nil, err
	}
	device, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), vfioGetDevice, uintptr(unsafe.Pointer(name)))
	if errno != 0 {
		return nil, fmt.Errorf("device of the group: %w", errno)
	}
	region := vfioRegion{Index: 0} // BAR 0
	region.Argsz = uint32(unsafe.Sizeof(region))
	if err := ioctl(int(device), vfioRegionInfo, unsafe.Pointer(&region)); err != nil {
		return nil, fmt.Errorf("registers: %w", err)
	}
	return unix.Mmap(int(device), int64(region.Offset), int(min(region.Size, 4096)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// register is one register of an edu device.
func register(registers []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&registers[at])) }

// computeVFIO lets a device compute 10!.
func computeVFIO(registers []byte) error {
	if len(registers) < atStatus+4 {
		return fmt.Errorf("it has %d bytes of registers", len(registers))
	}
	if ident := atomic.LoadUint32(register(registers, atIdent)); ident&0xffff != 0x00ed {
		return fmt.Errorf("it identifies itself as %#x", ident)
	}
	atomic.StoreUint32(register(registers, atFactorial), 10)
	for end := time.Now().Add(10 * time.Second); atomic.LoadUint32(register(registers, atStatus))&1 != 0; {
		if time.Now().After(end) {
			return errors.New("it computes for more than 10 s")
		}
		time.Sleep(time.Millisecond)
	}
	if got := atomic.LoadUint32(register(registers, atFactorial)); got != 3628800 {
		return fmt.Errorf("10! is %d", got)
	}
	return nil
}
