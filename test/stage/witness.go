package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/acceld/acceld/test/vm/bed"
)

// WitnessLog is where the lines of [Stage.Witness] are in the guest.
const WitnessLog = "/run/witness.log"

// Witness starts test/cmd/witness in the guest, where it listens to the kernel, to udev, to changes in these
// directories and to the agent.
func (s *Stage) Witness(ctx context.Context, g *bed.Guest, dirs ...string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", s.bin+"/",
		"./test/cmd/witness")
	build.Dir, build.Env = s.root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the witness: %w\n%s", err, text)
	}
	if err := g.Put(ctx, s.Program("witness"), "/usr/bin/witness", 0o755); err != nil {
		return err
	}
	return Must(g.Run(ctx, append([]string{
		"systemd-run", "--unit=witness",
		"--property=StandardOutput=file:" + WitnessLog, "/usr/bin/witness",
	}, dirs...)...))
}
