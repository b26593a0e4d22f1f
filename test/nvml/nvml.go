// Package nvml plays NVIDIA's management library from a script, for the true acceld-nvml to load: eight GPUs,
// instances, errors, one that falls off the bus. It needs gcc, and neither NVIDIA's driver nor a GPU.
package nvml

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Player is a library that plays a machine.
type Player struct {
	// Library is its file; the script is beside it.
	Library string
}

// Processor is what player and program are built for.
type Processor struct {
	// GOARCH is Go's name of it, and CC the C compiler.
	GOARCH, CC string
}

// Here is this machine's processor.
func Here() Processor { return Processor{GOARCH: runtime.GOARCH, CC: "gcc"} }

// Build compiles the player of the tree at root into dir.
func Build(ctx context.Context, root, dir string, cpu Processor) (*Player, error) {
	p := &Player{Library: filepath.Join(dir, "libnvidia-ml.so.1")}
	cmd := exec.CommandContext(ctx, cpu.CC, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", p.Library,
		filepath.Join(root, "test/nvml/player/player.c"), "-ldl", "-lpthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the player: %w\n%s", err, out)
	}
	return p, nil
}

// Program builds acceld-nvml of the tree at root into dir and returns its path.
func Program(ctx context.Context, root, dir string, cpu Processor) (string, error) {
	program := filepath.Join(dir, "acceld-nvml")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".")
	cmd.Dir, cmd.Env = filepath.Join(root, "cmd/acceld-nvml"), append(os.Environ(), "GOARCH="+cpu.GOARCH, "CC="+cpu.CC,
		"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build acceld-nvml: %w\n%s", err, out)
	}
	return program, nil
}

// Script is what a player plays, by key.
type Script map[string]string

// Machine is a script with GPUs of one model at PCI addresses.
func Machine(model string, addresses ...string) Script {
	s := Script{
		"driver": "580.82.07", "nvml": "13.580.82.07", "cuda": "13000", "init": "0",
		"count":      fmt.Sprint(len(addresses)),
		"gpu.*.name": model, "gpu.*.capability": "9.0", "gpu.*.temperature": "41", "gpu.*.power": "78250",
		"gpu.*.power.limit": "700000",
		"gpu.*.energy":      "123456789", "gpu.*.clock.sm": "1980", "gpu.*.clock.memory": "3201", "gpu.*.busy": "25",
		"gpu.*.busy.memory": "5", "gpu.*.busy.encoder": "40", "gpu.*.busy.decoder": "7",
		"gpu.*.memory": "150754820096", "gpu.*.memory.used": "1048576", "gpu.*.ecc.corrected": "2",
		"gpu.*.ecc.uncorrected": "0",
		"gpu.*.replays":         "3", "gpu.*.rows": "0 1 0 0", "gpu.*.throttled.heat": "1500000000",
		"gpu.*.throttled.power": "500000000", "gpu.*.mig": "0",
		"gpu.*.field.82": "55", "gpu.*.field.138": "2048", "gpu.*.field.139": "1024", "gpu.*.field.52": "7",
		"gpu.*.field.230": "0",
	}
	for i, address := range addresses {
		s.gpu(i, "pci", address)
		s.gpu(i, "minor", fmt.Sprint(i))
		s.gpu(i, "uuid", fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i))
		s.gpu(i, "serial", fmt.Sprintf("16520240%05d", i))
		s.gpu(i, "link.0", "switch")
	}
	return s
}

func (s Script) gpu(i int, name, value string) { s[fmt.Sprintf("gpu.%d.%s", i, name)] = value }

// Event adds an event of a GPU: its type and number.
func (s Script) Event(gpu, typ, data int) {
	for n := 1; ; n++ {
		if key := fmt.Sprintf("event.%d", n); s[key] == "" {
			s[key] = fmt.Sprintf("%d %d %d", gpu, typ, data)
			return
		}
	}
}

// String is the script's text.
func (s Script) String() string {
	var b strings.Builder
	for key, value := range s {
		fmt.Fprintf(&b, "%s %s\n", key, value)
	}
	return b.String()
}

// Play makes the machine as the script says, from the next call on.
func (p *Player) Play(s Script) error {
	file := filepath.Join(filepath.Dir(p.Library), "script")
	if err := os.WriteFile(file+".new", []byte(s.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
