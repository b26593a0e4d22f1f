package stage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/cache"
)

// Store puts one version of the driver, built, into the guest's store, so that a scenario that is not about building
// waits for no compiler. The first one builds it; the bed's cache keeps it for as long as acceld, the source and the
// guest's disk stay the same.
func (s *Stage) Store(ctx context.Context, g *bed.Guest, version string) error {
	const script = `/mnt/acceld driver build --config /mnt/build.yaml --kernel "$1" qemu-edu
tar -C /mnt/built -cf /mnt/out/store.tar kmod`
	packed, err := s.built(ctx, g, "store", version, script, "store.tar", s.Program("acceld"))
	if err != nil {
		return err
	}
	if err := g.Put(ctx, packed, "/tmp/store.tar", 0o600); err != nil {
		return err
	}
	return Must(g.Sh(ctx, `mkdir -p /var/lib/acceld; tar -C /var/lib/acceld -xf /tmp/store.tar; rm /tmp/store.tar`))
}

// Module returns a file of this host: the driver's module in one version, made by plain make. The bed's cache keeps it
// for as long as the source and the guest's disk stay the same.
func (s *Stage) Module(ctx context.Context, g *bed.Guest, version string) (string, error) {
	const script = `make -s -C "/lib/modules/$1/build" M=/mnt/source modules
strip -g /mnt/source/edu.ko
mv /mnt/source/edu.ko /mnt/out`
	return s.built(ctx, g, "module", version, script, "edu.ko")
}

// built returns a file that a script makes in the files of the guest's disk, for the guest's kernel, which is its
// argument. It finds the driver's source in /mnt/source, the programs and a configuration beside it, and leaves the
// file in /mnt/out.
func (s *Stage) built(ctx context.Context, g *bed.Guest, kind, version, script, file string, programs ...string,
) (string, error) {
	files, err := s.sourceFiles(version)
	if err != nil {
		return "", err
	}
	key := cache.NewKey(script, version, g.Key())
	for _, name := range slices.Sorted(maps.Keys(files)) {
		key.Add(name, string(files[name]))
	}
	for _, p := range programs {
		key.AddFile(p)
	}
	if err := key.Err(); err != nil {
		return "", err
	}
	dir, err := g.Keep(ctx, kind+"-"+version, key, func(tmp string) error {
		work := filepath.Join(tmp, "work")
		if err := s.lay(work, version, files, programs); err != nil {
			return err
		}
		if err := inTree(ctx, g.Tree(), work, script, g.Kernel()); err != nil {
			return fmt.Errorf("cannot build version %s of the driver for %q: %w", version, g.Kernel(), err)
		}
		return errors.Join(os.Rename(filepath.Join(work, "out", file), filepath.Join(tmp, file)), os.RemoveAll(work))
	})
	return filepath.Join(dir, file), err
}

// lay fills the folder in which a version is built.
func (s *Stage) lay(work, version string, source map[string][]byte, programs []string) error {
	for _, dir := range []string{"source", "out"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return err
		}
	}
	for name, content := range source {
		if err := os.WriteFile(filepath.Join(work, "source", name), content, 0o644); err != nil {
			return err
		}
	}
	for _, p := range programs {
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, filepath.Base(p)), content, 0o755); err != nil {
			return err
		}
	}
	config := fmt.Appendf(nil,
		"stateDir: /mnt/built\nkinds: {qemu-edu: {driver: {version: %q, sources: [{type: build, path: /mnt/source}]}}}\n",
		version)
	return os.WriteFile(filepath.Join(work, "build.yaml"), config, 0o600)
}

// inTree runs a fixed script as root with the tree as its file system and the folder work at /mnt. It leaves no mount.
func inTree(ctx context.Context, tree, work, script string, args ...string) error {
	const enter = `tree=$1
mount --bind "$2" "$tree/mnt"
mount --rbind /dev "$tree/dev"
mount -t proc proc "$tree/proc"
mount -t tmpfs tmp "$tree/tmp"
shift 2
exec chroot "$tree" sh -euc "$@"`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{
		"--mount", "sh", "-euc", enter, "sh", tree, work, script, "sh",
	}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		const most = 4000
		return fmt.Errorf("%w\n%s", err, out[max(0, len(out)-most):])
	}
	return nil
}
