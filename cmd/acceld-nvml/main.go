// Command acceld-nvml watches NVIDIA's devices through NVML, the library of their driver, and writes what it sees to
// its standard output in the words of accel.ProbeLine. The agent starts it, among the host's files: the library is the
// host's. It is a program of its own because a call of NVML can take minutes, or never return, when a GPU is sick, and
// because the agent has no C library. It changes nothing but the instances of a GPU, when it is asked to.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "acceld-nvml:", err)
		os.Exit(1)
	}
}

func run() error {
	library := flag.String("library", "libnvidia-ml.so.1", "NVML, a path or a name that the loader finds")
	root := flag.String("root", "", "directory in which /proc and /sys are, for a copy of a machine")
	every := flag.Duration("every", 10*time.Second, "time between two readings")
	patience := flag.Duration("patience", 8*time.Second, "time in which a device must have answered")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w := &watch{
		lib: nvml.New(nvml.WithLibraryPath(*library)), library: *library, files: files(*root), every: *every,
		patience: *patience,
		say:      newVoice(os.Stdout), orders: os.Stdin,
	}
	return w.run(ctx, version())
}

// version is the commit that the program was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "acceld-nvml " + s.Value[:12]
			}
		}
	}
	return "acceld-nvml"
}
