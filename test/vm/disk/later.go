package disk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/kernels"
	"github.com/acceld/acceld/test/vm/progress"
)

// Later is the kernel of the next Debian, with its modules on a disk of their own: the guests' disk does not have it,
// because a newer kernel there gives every agent something to do. It has no headers.
type Later struct{ dir string }

// Kernel is the kernel image.
func (l Later) Kernel() string { return filepath.Join(l.dir, "vmlinuz") }

// Modules are as in [Debian.Modules].
func (l Later) Modules() ([]string, error) { return modulesIn(filepath.Join(l.dir, "boot")) }

// Disk is the raw ext4 image of the modules' folder.
func (l Later) Disk() string { return filepath.Join(l.dir, "modules.ext4") }

// MakeLater makes it, unless the cache has it: the one that was the newest then.
func MakeLater(ctx context.Context, c cache.Dir, log *progress.Log) (Later, error) {
	key := cache.NewKey("1").Add(bootModules()...)
	dir, err := c.Entry(ctx, "later", key, func(tmp string) error {
		return log.Do("fetching a later kernel", func() error {
			deb, err := kernels.Later(ctx, tmp)
			if err != nil {
				return err
			}
			return unpackLater(ctx, deb, tmp)
		})
	})
	return Later{dir}, err
}

// unpackLater takes out of the package what a guest boots, and removes the package.
func unpackLater(ctx context.Context, deb, dir string) error {
	const script = `cd "$1"
dpkg-deb -x "$2" tree
ln -s usr/lib tree/lib
set -- tree/lib/modules/*
depmod -b tree "${1##*/}"
mv "$1" modules
mv tree/boot/vmlinuz-* vmlinuz
rm -r tree *.deb`
	cmd := exec.CommandContext(ctx, "sh", "-euc", script, "sh", dir, deb)
	// depmod lives where a plain user's PATH does not reach.
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot unpack %q: %w\n%s", deb, err, tail(output))
	}
	modules := filepath.Join(dir, "modules")
	if err := copyBootModules(ctx, modules, filepath.Join(dir, "boot")); err != nil {
		return err
	}
	if err := format(ctx, modules, filepath.Join(dir, "modules.ext4"), "512M"); err != nil {
		return err
	}
	return os.RemoveAll(modules)
}
