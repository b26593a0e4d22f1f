package stage

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/cache"
)

// Source puts the driver's source where a distribution's source package would, and nothing else: the guest has no
// driver.
func (s *Stage) Source(ctx context.Context, g *bed.Guest) error {
	return s.SourceOf(ctx, g, Version)
}

// SourceOf puts the source of one version of the driver at /usr/src/edu-<version>.
func (s *Stage) SourceOf(ctx context.Context, g *bed.Guest, version string) error {
	return s.sourceIn(ctx, g, version, "/usr/src/edu-"+version)
}

func (s *Stage) sourceIn(ctx context.Context, g *bed.Guest, version, dir string) error {
	files, err := s.sourceFiles(version)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := g.WriteFile(ctx, dir+"/"+name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sourceFiles are the files of one version, by name.
func (s *Stage) sourceFiles(version string) (map[string][]byte, error) {
	dir := s.File("test/edu/module")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		name := e.Name()
		if ext := filepath.Ext(name); ext != ".c" && ext != ".h" && name != "Kbuild" && name != "Makefile" &&
			name != "dkms.conf" {
			continue
		}
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	for _, change := range []struct{ file, from, to string }{
		{"dkms.conf", fmt.Sprintf("PACKAGE_VERSION=%q", Version), fmt.Sprintf("PACKAGE_VERSION=%q", version)},
		{"edu_version.h", fmt.Sprintf("EDU_VERSION\t%q", Version), fmt.Sprintf("EDU_VERSION\t%q", version)},
		{"edu_version.h", "EDU_WRONG_BY\t0", "EDU_WRONG_BY\t" + map[bool]string{
			true:  "1",
			false: "0",
		}[version == VersionWrong]},
	} {
		if !strings.Contains(string(files[change.file]), change.from) {
			return nil, fmt.Errorf("cannot make version %s of the driver: %q has no %q", version, change.file,
				change.from)
		}
		files[change.file] = bytes.Replace(files[change.file], []byte(change.from), []byte(change.to), 1)
	}
	return files, nil
}

// Store puts one version of the driver, built, into the guest's store, so that a scenario that is not about building
// waits for no compiler. The first one builds it, in its guest, which must have a device; the bed's cache keeps it for
// as long as acceld, the source and the guest's disk stay the same.
func (s *Stage) Store(ctx context.Context, g *bed.Guest, version string) error {
	files, err := s.sourceFiles(version)
	if err != nil {
		return err
	}
	key := cache.NewKey(version, g.Key()).AddFile(s.Program("acceld"))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		key.Add(name, string(files[name]))
	}
	if err := key.Err(); err != nil {
		return err
	}
	dir, err := g.Keep(ctx, "store-"+version, key, func(tmp string) error {
		return s.build(ctx, g, version, filepath.Join(tmp, "store.tar"))
	})
	if err != nil {
		return err
	}
	if err := g.Put(ctx, filepath.Join(dir, "store.tar"), "/tmp/store.tar", 0o600); err != nil {
		return err
	}
	return Must(g.Sh(ctx, `mkdir -p /var/lib/acceld; tar -C /var/lib/acceld -xf /tmp/store.tar; rm /tmp/store.tar`))
}

// Module returns a file of this host: the driver's module in one version, made by plain make in the guest. The bed's
// cache keeps it for as long as the source and the guest's disk stay the same.
func (s *Stage) Module(ctx context.Context, g *bed.Guest, version string) (string, error) {
	files, err := s.sourceFiles(version)
	if err != nil {
		return "", err
	}
	key := cache.NewKey(version, g.Key())
	for _, name := range slices.Sorted(maps.Keys(files)) {
		key.Add(name, string(files[name]))
	}
	dir, err := g.Keep(ctx, "module-"+version, key, func(tmp string) error {
		if err := s.sourceIn(ctx, g, version, "/tmp/source"); err != nil {
			return err
		}
		if err := Must(g.Sh(ctx,
			`make -s -C "/lib/modules/$(uname -r)/build" M=/tmp/source modules; strip -g /tmp/source/edu.ko`)); err !=
			nil {
			return err
		}
		return g.Get(ctx, "/tmp/source/edu.ko", filepath.Join(tmp, "edu.ko"))
	})
	return filepath.Join(dir, "edu.ko"), err
}

// build builds one version of the driver in the guest, packs the store, and leaves the guest as it was.
func (s *Stage) build(ctx context.Context, g *bed.Guest, version, into string) error {
	if err := s.sourceIn(ctx, g, version, "/tmp/source"); err != nil {
		return err
	}
	config := fmt.Appendf(nil,
		"stateDir: /tmp/built\nkinds: {qemu-edu: {driver: {version: %q, sources: [{type: build, path: /tmp/source}]}}}\n",
		version)
	if err := g.WriteFile(ctx, "/tmp/build.yaml", config, 0o600); err != nil {
		return err
	}
	const program = "/tmp/acceld-that-builds" // the guest may have none of its own yet
	if err := g.Put(ctx, s.Program("acceld"), program, 0o755); err != nil {
		return err
	}
	const script = program +
		` driver ensure --config /tmp/build.yaml qemu-edu 2>&1 || test -s /tmp/built/kmod/*/edu.ko; rmmod edu 2>/dev/null || true
tar -C /tmp/built -cf /tmp/store.tar kmod; rm -rf /tmp/built /tmp/build.yaml /tmp/source ` + program
	if err := Must(g.Sh(ctx, script)); err != nil {
		return err
	}
	return g.Get(ctx, "/tmp/store.tar", into)
}

// PutTree copies a folder of this host into the guest.
func (s *Stage) PutTree(ctx context.Context, g *bed.Guest, local, path string) error {
	packed := filepath.Join(s.bin, "tree.tar")
	if out, err := exec.CommandContext(ctx, "tar", "-C", local, "-cf", packed, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot pack %q: %w: %s", local, err, out)
	}
	if err := g.Put(ctx, packed, "/tmp/tree.tar", 0o600); err != nil {
		return err
	}
	return Must(g.Sh(ctx, `mkdir -p "$1"; tar -C "$1" -xf /tmp/tree.tar --no-same-owner; rm /tmp/tree.tar`, path))
}
