// Package prove plays the libraries that the true acceld-prove loads: one that is CUDA's driver interface, and one that
// is OpenCL's, with devices that compute right or wrong, are busy, missing, or never answer. It needs gcc, and neither
// a driver nor a device.
package prove

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Players builds the libraries of the tree at root into dir.
func Players(ctx context.Context, root, dir string) error {
	for source, library := range map[string]string{"cuda.c": "libcuda.so.1", "opencl.c": "libOpenCL.so.1"} {
		cmd := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o",
			filepath.Join(dir, library), filepath.Join(root, "test/prove/player", source))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build the player %q: %w\n%s", library, err, out)
		}
	}
	return nil
}

// Program builds acceld-prove of the tree at root, an absolute path, into dir. Other replaces files of its source, by
// their names.
func Program(ctx context.Context, root, dir string, other map[string]string) error {
	source := filepath.Join(root, "cmd/acceld-prove")
	replace := map[string]string{}
	for name, by := range other {
		replace[filepath.Join(source, name)] = by
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", overlay, "-o",
		filepath.Join(dir, "acceld-prove"), ".")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build acceld-prove: %w\n%s", err, out)
	}
	return nil
}
