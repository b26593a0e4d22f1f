package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// ptx is the work in the assembly language that every driver translates for its device. Version 6.3 is older than any
// driver that matters, and target sm_75 (Turing) is the oldest one that CUDA 13 still has.
//
//go:embed kernel.ptx
var ptx string

// forms returns the work for current drivers, and for devices before Turing.
func forms() []string {
	old := strings.Replace(ptx, ".version 6.3\n.target sm_75", ".version 6.0\n.target sm_50", 1)
	return []string{ptx, old}
}

// cuda computes through the CUDA driver interface (CUDA Driver API reference, 12.2). Nothing is released: the driver
// does that when the process ends.
func cuda(name, uuid string, w *work, line *accel.ProofLine) error {
	if name == "" {
		name = "libcuda.so.1"
	}
	// A result that the driver kept from an earlier run would prove the cache.
	if err := os.Setenv("CUDA_CACHE_DISABLE", "1"); err != nil {
		return err
	}
	if uuid != "" {
		if err := os.Setenv("CUDA_VISIBLE_DEVICES", uuid); err != nil {
			return err
		}
	}
	l, err := load(name, cudaCodes())
	if err != nil {
		return err
	}
	if err := l.call("cuInit", 0); err != nil {
		return err
	}
	device, err := cudaDevice(l, uuid, line)
	if err != nil {
		return err
	}
	var context uintptr
	if err := l.call("cuDevicePrimaryCtxRetain", &context, int(device)); err != nil {
		return err
	}
	if err := l.call("cuCtxSetCurrent", context); err != nil {
		return err
	}
	module, err := cudaModule(l)
	if err != nil {
		return err
	}
	return cudaCompute(l, module, w)
}

// cudaDevice finds the device and says what it is.
func cudaDevice(l *library, uuid string, line *accel.ProofLine) (device int32, err error) {
	var version int32
	if err := l.call("cuDriverGetVersion", &version); err != nil {
		return 0, err
	}
	line.Driver = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	switch {
	case uuid != "":
		device, err = cudaAlone(l, uuid)
	case line.Device == "":
		err = l.call("cuDeviceGet", &device, 0)
	default:
		bus := append([]byte(line.Device), 0)
		err = l.call("cuDeviceGetByPCIBusId", &device, &bus[0])
	}
	var f *failure
	if errors.As(err, &f) && f.name == "CUDA_ERROR_INVALID_VALUE" {
		f.kind = accel.FaultNoDevice // that is what it says of an address that it does not have
	}
	if err != nil {
		return 0, err
	}
	title := make([]byte, 128)
	if err := l.call("cuDeviceGetName", &title[0], len(title), int(device)); err != nil {
		return 0, err
	}
	line.Name = text(title)
	return device, nil
}

// cudaAlone returns the only device that the library sees, if it has the UUID. That of a part of a device is the part's
// own.
func cudaAlone(l *library, uuid string) (device int32, err error) {
	const call = "cuDeviceGetUuid_v2"
	if err := l.call("cuDeviceGet", &device, 0); err != nil {
		return 0, err
	}
	var got [16]byte
	if err := l.call(call, &got[0], int(device)); err != nil {
		return 0, err
	}
	_, want, _ := strings.Cut(uuid, "-") // "GPU-" or "MIG-"
	if digits := fmt.Sprintf("%x", got); digits != strings.ToLower(strings.ReplaceAll(want, "-", "")) {
		return 0, &failure{
			kind: accel.FaultNoDevice, call: call, name: l.name,
			message: fmt.Sprintf("the library was told to show only %q, and shows %s", uuid, digits),
		}
	}
	return device, nil
}

// cudaModule has the driver translate the work.
func cudaModule(l *library) (module uintptr, err error) {
	const (
		// CUjit_option
		errorLogBuffer     = 5
		errorLogBufferSize = 6
	)
	for _, form := range forms() {
		source, log := append([]byte(form), 0), make([]byte, 4096)
		options := [2]uint32{errorLogBuffer, errorLogBufferSize}
		err = l.call("cuModuleLoadDataEx", &module, &source[0], len(options), &options[0], table{&log[0], len(log)})
		var f *failure
		if !errors.As(err, &f) {
			return module, err
		}
		if said := strings.Join(strings.Fields(text(log)), " "); said != "" {
			f.message = strings.TrimSpace(f.message + " (" + said + ")")
		}
		// no binary for the device, invalid PTX, PTX of an unsupported version
		if !slices.Contains([]int{209, 218, 222}, f.code) {
			return 0, err
		}
	}
	return 0, err
}

// cudaCompute runs the work.
func cudaCompute(l *library, module uintptr, w *work) error {
	const block = 256
	var function, memory uintptr
	name := []byte("work\x00")
	size, count := 4*len(w.in), uint32(len(w.in))
	if err := l.call("cuModuleGetFunction", &function, module, &name[0]); err != nil {
		return err
	}
	if err := l.call("cuMemAlloc_v2", &memory, size); err != nil {
		return err
	}
	if err := l.call("cuMemcpyHtoD_v2", memory, &w.in[0], size); err != nil {
		return err
	}
	if err := l.call("cuLaunchKernel", function, len(w.in)/block, 1, 1, block, 1, 1, 0, 0, table{&memory, &count},
		0); err != nil {
		return err
	}
	if err := l.call("cuCtxSynchronize"); err != nil {
		return err
	}
	return l.call("cuMemcpyDtoH_v2", &w.out[0], memory, size)
}
