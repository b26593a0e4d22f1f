package disk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// bootModules are needed before the disk is there, and for the file system of a light guest. ext4 asks for crc32c only
// by alias, which nothing resolves that early, hence the name.
func bootModules() []string {
	return []string{"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4", "overlay"}
}

// copyBootModules copies the boot modules and what they depend on; the file names begin with the load order.
func copyBootModules(ctx context.Context, from, to string) error {
	content, err := os.ReadFile(filepath.Join(from, "modules.dep"))
	if err != nil {
		return fmt.Errorf("cannot read module dependencies: %w", err)
	}
	builtin, err := os.ReadFile(filepath.Join(from, "modules.builtin"))
	if err != nil {
		return fmt.Errorf("cannot read what is built into the kernel: %w", err)
	}
	order, err := loadOrder(string(content), string(builtin), bootModules())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of boot modules: %w", err)
	}
	for i, file := range order {
		name := fmt.Sprintf("%02d-%s", i, strings.TrimSuffix(path.Base(file), packed))
		if err := copyModule(ctx, filepath.Join(from, file), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// packed ends the name of a module that is compressed, as those of Debian 13 are.
const packed = ".xz"

// copyModule copies a module, and unpacks it: what loads the boot modules cannot.
func copyModule(ctx context.Context, from, to string) error {
	if !strings.HasSuffix(from, packed) {
		return copyFile(from, to)
	}
	content, err := exec.CommandContext(ctx, "xz", "-dc", from).Output()
	if err != nil {
		return fmt.Errorf("cannot unpack module %q: %w", from, err)
	}
	if err := os.WriteFile(to, content, 0o644); err != nil {
		return fmt.Errorf("cannot write module %q: %w", to, err)
	}
	return nil
}

// loadOrder reads modules.dep (modules.dep(5)): each line names a file and all that it needs, the last one to be loaded
// first. Modules that are built into the kernel are not in it but in modules.builtin, a file on each line.
func loadOrder(dep, builtin string, modules []string) ([]string, error) {
	needs := map[string][]string{}
	for line := range strings.Lines(dep) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		needs[moduleName(file)] = append([]string{file}, strings.Fields(rest)...)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(builtin) {
		seen[moduleName(strings.TrimSpace(line))] = true
	}
	var order []string
	for _, m := range modules {
		files := needs[m]
		if len(files) == 0 && !seen[m] {
			return nil, fmt.Errorf("cannot find module %q in modules.dep", m)
		}
		for i := len(files) - 1; i >= 0; i-- {
			if !seen[files[i]] {
				seen[files[i]] = true
				order = append(order, files[i])
			}
		}
	}
	return order, nil
}

// moduleName is the name that the kernel gives to the module in a file.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(path.Base(file), packed), ".ko"), "-", "_")
}
