package stage

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// Prebuilt writes a definition of the stand-in accelerator into the guest whose driver comes from a registry of the
// test, and which publishes there what it had to build. More lines, such as "keys: [/etc/acceld/key.pub]", are of that
// source.
func (s *Stage) Prebuilt(ctx context.Context, g *bed.Guest, r *image.Registry, push bool, more ...string) error {
	text, err := os.ReadFile(s.File("vendors/qemu/edu.yaml"))
	if err != nil {
		return err
	}
	const before = "  sources:\n"
	if !strings.Contains(string(text), before) {
		return fmt.Errorf("cannot add a source to the definition: it has no %q", before)
	}
	source := fmt.Sprintf("    - type: oci\n      image: %s/%s\n      plainHTTP: true\n      push: %v\n",
		r.GuestAddress(), Repository, push)
	for _, line := range more {
		source += "      " + line + "\n"
	}
	return g.WriteFile(ctx, "/etc/acceld/definitions.d/edu.yaml",
		[]byte(strings.Replace(string(text), before, before+source, 1)), 0o644)
}

// Repository is the reference, less the registry, that [Stage.Prebuilt] gives to drivers.
const Repository = "drivers/edu:v{{.DriverVersion}}-{{.KernelVersion}}"
