package disk

import (
	"fmt"
	"os"
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
func copyBootModules(from, to string) error {
	content, err := os.ReadFile(filepath.Join(from, "modules.dep"))
	if err != nil {
		return fmt.Errorf("cannot read module dependencies: %w", err)
	}
	order, err := loadOrder(string(content), bootModules())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of boot modules: %w", err)
	}
	for i, file := range order {
		if err := copyFile(filepath.Join(from, file),
			filepath.Join(to, fmt.Sprintf("%02d-%s", i, path.Base(file)))); err != nil {
			return err
		}
	}
	return nil
}

// loadOrder reads modules.dep (modules.dep(5)): each line names a file and all that it needs, the last one to be loaded
// first. Modules that are built into the kernel are not in it.
func loadOrder(dep string, modules []string) ([]string, error) {
	needs := map[string][]string{}
	for line := range strings.Lines(dep) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		name := strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
		needs[name] = append([]string{file}, strings.Fields(rest)...)
	}
	var order []string
	seen := map[string]bool{}
	for _, m := range modules {
		files := needs[m]
		if len(files) == 0 {
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
