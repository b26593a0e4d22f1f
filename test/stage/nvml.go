package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/nvml"
	"github.com/acceld/acceld/test/vm/bed"
)

// playerDir is where the player of NVIDIA's library is in the guest.
const playerDir = "/opt/nvml"

// Watched puts acceld-nvml and a player of its library into the guest, and a definition of the stand-in accelerator
// that names them: what the script says of GPUs at the addresses of the devices is said of these. The guest's C library
// is to be one of the host's age.
func (s *Stage) Watched(ctx context.Context, g *bed.Guest, script nvml.Script) error {
	dir, err := os.MkdirTemp(filepath.Dir(s.bin), "nvml")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	player, err := nvml.Build(ctx, s.root, dir, nvml.Here())
	if err != nil {
		return err
	}
	program, err := nvml.Program(ctx, s.root, dir, nvml.Here())
	if err != nil {
		return err
	}
	library := playerDir + "/" + filepath.Base(player.Library)
	if err := Must(g.Run(ctx, "mkdir", "-p", playerDir)); err != nil {
		return err
	}
	for local, there := range map[string]string{program: "/usr/bin/acceld-nvml", player.Library: library} {
		if err := g.Put(ctx, local, there, 0o755); err != nil {
			return err
		}
	}
	if err := Play(ctx, g, script); err != nil {
		return err
	}
	text, err := os.ReadFile(s.File("vendors/qemu/edu.yaml"))
	if err != nil {
		return err
	}
	// The domain makes its labels the node's.
	definition := strings.Replace(string(text), "resource: qemu.org/edu\n",
		"vendor: nvidia.com\nresource: qemu.org/edu\n", 1) +
		fmt.Sprintf("probe:\n  argv: [acceld-nvml, -library, %s, -every, 5s, -patience, 15s]\n  silence: 30s\n", library)
	return g.WriteFile(ctx, "/etc/acceld/definitions.d/edu.yaml", []byte(definition), 0o644)
}

// Play makes the machine in the guest as the script says.
func Play(ctx context.Context, g *bed.Guest, script nvml.Script) error {
	if err := g.WriteFile(ctx, playerDir+"/script.new", []byte(script.String()), 0o644); err != nil {
		return err
	}
	return Must(g.Run(ctx, "mv", playerDir+"/script.new", playerDir+"/script"))
}
