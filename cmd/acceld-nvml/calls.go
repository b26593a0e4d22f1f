package main

import (
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// calls makes the NVML calls for one reading of one device. Drivers of different ages have different functions, and
// calling a missing one ends the program. So each function is looked up before it is called.
type calls struct {
	lib     nvml.Interface
	symbols map[string]bool
	// lost is true if a call has reported that the GPU is lost; then nothing more is called. reset is true if a call
	// has reported that the GPU must be reset.
	lost, reset bool
}

func newCalls(lib nvml.Interface) *calls { return &calls{lib: lib, symbols: map[string]bool{}} }

// has reports whether a function may be called.
func (c *calls) has(symbol string) bool {
	there, known := c.symbols[symbol]
	if !known {
		there = c.lib.Extensions().LookupSymbol(symbol) == nil
		c.symbols[symbol] = there
	}
	return there && !c.lost
}

// ok reports whether a call succeeded. Most calls that fail are not supported on this model.
func (c *calls) ok(ret nvml.Return) bool {
	c.lost = c.lost || ret == nvml.ERROR_GPU_IS_LOST
	c.reset = c.reset || ret == nvml.ERROR_RESET_REQUIRED
	return ret == nvml.SUCCESS
}

// value calls a function that returns one value; it is empty if the call fails.
func value[T string | int](c *calls, symbol string, get func() (T, nvml.Return)) (v T) {
	if c.has(symbol) {
		if got, ret := get(); c.ok(ret) {
			v = got
		}
	}
	return v
}

// resolved returns the file that the library's name now leads to, even if it was replaced after it was loaded; empty
// if unknown.
func resolved(library string) string {
	if !strings.Contains(library, "/") {
		for line := range strings.Lines(files("").text("/proc/self/maps")) {
			if i := strings.Index(line, "/"); i > 0 && strings.Contains(line, "/libnvidia-ml.so") {
				library = filepath.Join(filepath.Dir(strings.TrimSpace(line[i:])), library)
				break
			}
		}
	}
	file, err := filepath.EvalSymlinks(library)
	if err != nil {
		return ""
	}
	return file
}
