package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
)

// cl is the work in OpenCL C 1.0, which every implementation compiles.
//
//go:embed kernel.cl
var cl string

// Numbers of the OpenCL headers (CL/cl.h and CL/cl_ext.h, 2023).
const (
	clAllDevices       = 0xFFFFFFFF
	clPlatformName     = 0x0902
	clDeviceName       = 0x102B
	clDeviceVersion    = 0x102D // CL_DRIVER_VERSION
	clBuildLog         = 0x1183
	clReadWrite        = 1
	clBlocking         = 1
	clNotFound         = -1  // CL_DEVICE_NOT_FOUND
	clBuildFailure     = -11 // CL_BUILD_PROGRAM_FAILURE
	clPCIBusInfo       = 0x410F
	clNVIDIABus        = 0x4008
	clNVIDIASlot       = 0x4009
	clNVIDIADomain     = 0x400A
	clAMDTopology      = 0x4037
	clAMDTopologyOfPCI = 1
)

// opencl computes through OpenCL. Nothing is released: the driver does that when the process ends.
func opencl(name string, w *work, line *accel.ProofLine) error {
	if name == "" {
		name = "libOpenCL.so.1"
	}
	l, err := load(name, openclCodes())
	if err != nil {
		return err
	}
	device, err := openclDevice(l, line)
	if err != nil {
		return err
	}
	var status int32
	context, err := l.object("clCreateContext", &status, 0, 1, &device, 0, 0, &status)
	if err != nil {
		return err
	}
	queue, err := l.object("clCreateCommandQueue", &status, context, device, 0, &status)
	if err != nil {
		return err
	}
	kernel, err := openclKernel(l, context, device)
	if err != nil {
		return err
	}
	return openclCompute(l, context, queue, kernel, w)
}

// openclDevice finds the device among those of all platforms, and says what it is.
func openclDevice(l *library, line *accel.ProofLine) (uintptr, error) {
	var count uint32
	if err := l.call("clGetPlatformIDs", 0, 0, &count); err != nil {
		return 0, err
	}
	platforms := make([]uintptr, max(1, min(count, 64)))
	if err := l.call("clGetPlatformIDs", len(platforms), &platforms[0], &count); err != nil {
		return 0, err
	}
	var there []uintptr
	var others []string
	for _, platform := range platforms[:min(int(count), len(platforms))] {
		all, err := openclDevices(l, platform)
		if err != nil {
			return 0, err
		}
		for _, device := range all {
			address := openclAddress(l, device, line.Device)
			if line.Device == "" || address == line.Device {
				there = append(there, device)
				continue
			}
			if address == "" {
				address = "at no PCI address"
			}
			others = append(others, openclText(l, "clGetDeviceInfo", device, clDeviceName)+" "+address)
		}
	}
	if len(there) == 0 || line.Device == "" && len(there) > 1 {
		return 0, noOpenCL(line.Device, len(there), others)
	}
	line.Name = openclText(l, "clGetDeviceInfo", there[0], clDeviceName)
	line.Driver = openclText(l, "clGetDeviceInfo", there[0], clDeviceVersion)
	return there[0], nil
}

// noOpenCL says that there is no device to compute on, or no single one.
func noOpenCL(address string, there int, others []string) error {
	f := &failure{kind: accel.FaultNoDevice, name: "no device"}
	switch {
	case there > 1:
		f.message = fmt.Sprintf("there are %d OpenCL devices, and no address says which one is meant", there)
	case address == "":
		f.message = "there is no OpenCL device"
	case len(others) == 0:
		f.message = fmt.Sprintf("no OpenCL device at %s, and no other", address)
	default:
		f.message = fmt.Sprintf("no OpenCL device at %s; there is %s", address, strings.Join(others, ", "))
	}
	return f
}

// openclDevices returns the devices of a platform.
func openclDevices(l *library, platform uintptr) ([]uintptr, error) {
	var count uint32
	code, err := l.result("clGetDeviceIDs", platform, clAllDevices, 0, 0, &count)
	switch {
	case err != nil:
		return nil, err
	case int32(code) == clNotFound || int32(code) == 0 && count == 0:
		return nil, nil
	case int32(code) != 0:
		return nil, l.failed("clGetDeviceIDs", int(int32(code)))
	}
	devices := make([]uintptr, min(count, 256))
	if err := l.call("clGetDeviceIDs", platform, clAllDevices, len(devices), &devices[0], 0); err != nil {
		return nil, err
	}
	return devices, nil
}

// openclAddress returns the PCI address of a device as sysfs writes it, by the extension that the implementation has;
// empty if it has none. AMD's extension knows no domain: there the domain of the wanted address is taken.
func openclAddress(l *library, device uintptr, wanted string) string {
	info := func(what int, into any, size int) bool {
		code, err := l.result("clGetDeviceInfo", device, what, size, into, 0)
		return err == nil && int32(code) == 0
	}
	var khr [4]uint32 // domain, bus, device, function
	if info(clPCIBusInfo, &khr, 16) {
		return fmt.Sprintf("%04x:%02x:%02x.%x", khr[0], khr[1], khr[2], khr[3])
	}
	var bus, slot, domain uint32
	if info(clNVIDIABus, &bus, 4) && info(clNVIDIASlot, &slot, 4) {
		_ = info(clNVIDIADomain, &domain, 4) // older ones have no domain: it is 0
		return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, slot>>3, slot&7)
	}
	var amd struct {
		kind                  uint32
		_                     [17]byte
		bus, device, function byte
	}
	if info(clAMDTopology, &amd, 24) && amd.kind == clAMDTopologyOfPCI {
		same, _, _ := strings.Cut(wanted, ":")
		return fmt.Sprintf("%s:%02x:%02x.%x", same, amd.bus, amd.device, amd.function)
	}
	return ""
}

// openclText returns a text about an object; empty if there is none.
func openclText(l *library, function string, object uintptr, what int) string {
	buffer := make([]byte, 1024)
	if err := l.call(function, object, what, len(buffer), &buffer[0], 0); err != nil {
		return ""
	}
	return strings.TrimSpace(text(buffer))
}

// openclKernel has the implementation compile the work.
func openclKernel(l *library, context, device uintptr) (uintptr, error) {
	source, name := append([]byte(cl), 0), []byte("work\x00")
	var status int32
	program, err := l.object("clCreateProgramWithSource", &status, context, 1, table{&source[0]}, 0, &status)
	if err != nil {
		return 0, err
	}
	code, err := l.result("clBuildProgram", program, 1, &device, 0, 0, 0)
	if err != nil {
		return 0, err
	}
	if int32(code) != 0 {
		err := l.failed("clBuildProgram", int(int32(code)))
		log := make([]byte, 4096)
		if f, ok := err.(*failure); ok && int32(code) == clBuildFailure && //nolint:errorlint // it was made above
			l.call("clGetProgramBuildInfo", program, device, clBuildLog, len(log), &log[0], 0) == nil {
			f.message = strings.Join(strings.Fields(text(log)), " ")
		}
		return 0, err
	}
	return l.object("clCreateKernel", &status, program, &name[0], &status)
}

// openclCompute runs the work.
func openclCompute(l *library, context, queue, kernel uintptr, w *work) error {
	var status int32
	size, count := 4*len(w.in), uint32(len(w.in))
	buffer, err := l.object("clCreateBuffer", &status, context, clReadWrite, size, 0, &status)
	if err != nil {
		return err
	}
	global := uintptr(len(w.in))
	for _, call := range []struct {
		function string
		args     []any
	}{
		{"clEnqueueWriteBuffer", []any{queue, buffer, clBlocking, 0, size, &w.in[0], 0, 0, 0}},
		{"clSetKernelArg", []any{kernel, 0, 8, &buffer}},
		{"clSetKernelArg", []any{kernel, 1, 4, &count}},
		{"clEnqueueNDRangeKernel", []any{queue, kernel, 1, 0, &global, 0, 0, 0, 0}},
		{"clFinish", []any{queue}},
		{"clEnqueueReadBuffer", []any{queue, buffer, clBlocking, 0, size, &w.out[0], 0, 0, 0}},
	} {
		if err := l.call(call.function, call.args...); err != nil {
			return err
		}
	}
	return nil
}

// openclCodes is what the results of OpenCL mean; what is not here is unknown.
func openclCodes() map[int]meaning {
	return map[int]meaning{
		-1:  {"CL_DEVICE_NOT_FOUND", accel.FaultNoDevice, ""},
		-2:  {"CL_DEVICE_NOT_AVAILABLE", accel.FaultBusy, ""},
		-3:  {"CL_COMPILER_NOT_AVAILABLE", accel.FaultUserSpace, ""},
		-4:  {"CL_MEM_OBJECT_ALLOCATION_FAILURE", accel.FaultBusy, ""},
		-5:  {"CL_OUT_OF_RESOURCES", accel.FaultBusy, ""},
		-6:  {"CL_OUT_OF_HOST_MEMORY", accel.FaultUnknown, "check how much memory the host has left"},
		-11: {"CL_BUILD_PROGRAM_FAILURE", accel.FaultUserSpace, ""},
		-1001: {
			"CL_PLATFORM_NOT_FOUND_KHR", accel.FaultNoDevice,
			"no driver is registered in /etc/OpenCL/vendors, or none of those can be loaded",
		},
	}
}
