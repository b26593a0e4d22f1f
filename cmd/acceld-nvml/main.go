// Command acceld-nvml watches NVIDIA's devices through NVML, the driver's library, and writes its reports to standard
// output as accel.ProbeLine. The agent starts it inside the host's root, so that it uses the host's library. It is a
// separate program because an NVML call can take minutes, or never return, when a GPU is faulty, and because the agent
// is not linked to a C library. It changes the instances and the settings of a GPU, and only on request.
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

	"github.com/acceld/acceld/host/shield"
)

func main() {
	if err := shield.Start("acceld-nvml"); err != nil {
		fmt.Fprintln(os.Stderr, "acceld-nvml: NVML may make device nodes:", err)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "acceld-nvml:", err)
		os.Exit(1)
	}
}

func run() error {
	library := flag.String("library", "libnvidia-ml.so.1", "the path of NVML, or a name that the loader finds")
	root := flag.String("root", "", "the directory that holds /proc and /sys, for a copy of a machine")
	every := flag.Duration("every", 10*time.Second, "the time between two readings")
	patience := flag.Duration("patience", 8*time.Second, "how long a device may take to answer")
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

// version returns the program's name and the commit that it was built from.
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
