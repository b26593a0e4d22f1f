// Package disk makes the guests' disks: a plain Debian with kernels, headers and a compiler, and a second small disk
// with the programs that the test bed built. Guests only ever write to overlays of them. It needs root, because the
// files on the disk belong to root, and takes everything from the distribution's own archive.
package disk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/hostpkg"
	"github.com/acceld/acceld/test/vm/kernels"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

// recipe is raised when the disk changes in a way that the package list does not show.
const recipe = "3"

// sizeGiB is the file system's size; the file is sparse.
const sizeGiB = 16

func packages(pair kernels.Pair) []string {
	list := []string{
		"systemd", "systemd-sysv", "udev", "dbus", "kmod", "procps", "iproute2", "iptables", "pciutils", "curl",
		"ca-certificates", "openssh-server", "gcc", "make", "e2fsprogs", "ethtool", "busybox-static",
		"containernetworking-plugins", "conmon", "libseccomp2", "dkms", "strace",
		"rpm",
	}
	return append(list, pair.Packages()...)
}

// unused are folders of modules that no guest has devices for and no scenario looks at: a third of what the kernels'
// packages have.
func unused() []string {
	return []string{
		"sound", "drivers/media/usb", "drivers/media/pci", "drivers/media/dvb-frontends", "drivers/net/wireless",
		"drivers/staging", "drivers/iio", "drivers/bluetooth", "drivers/hwmon", "drivers/usb", "drivers/hid", "drivers/mtd",
		"drivers/leds", "drivers/comedi", "drivers/gpu/drm/nouveau", "drivers/gpu/drm/radeon", "drivers/gpu/drm/vmwgfx",
		"drivers/gpu/drm/gma500", "net/wireless", "net/mac80211", "net/bluetooth",
	}
}

// Debian is a made disk and what a guest boots it with.
type Debian struct{ dir string }

// Root is the raw ext4 image.
func (d Debian) Root() string { return filepath.Join(d.dir, "root.ext4") }

// Kernels are the kernel releases that a guest can boot, the newest first, which is the default: on an older one an
// agent gets its drivers ready for the newer one too, which is a scenario of its own.
func (d Debian) Kernels() []string {
	const prefix = "vmlinuz-"
	// Only a malformed pattern is an error.
	files, _ := filepath.Glob(filepath.Join(d.dir, prefix+"*"))
	sort.Sort(sort.Reverse(sort.StringSlice(files)))
	var releases []string
	for _, f := range files {
		releases = append(releases, strings.TrimPrefix(filepath.Base(f), prefix))
	}
	return releases
}

// Kernel is the kernel image of a release.
func (d Debian) Kernel(release string) string { return filepath.Join(d.dir, "vmlinuz-"+release) }

// Busybox is a static busybox.
func (d Debian) Busybox() string { return filepath.Join(d.dir, "busybox") }

// Tree is the folder of the disk's files, less the kernels' modules: a compiler runs there on this machine's
// processors, which takes a thirtieth of the time that it takes in a guest.
func (d Debian) Tree() string { return filepath.Join(d.dir, "tree") }

// Modules are the files of the modules that a guest needs before it has its disk, in load order.
func (d Debian) Modules(release string) ([]string, error) {
	return modulesIn(filepath.Join(d.dir, "boot-"+release))
}

func modulesIn(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("cannot find boot modules in %q: %v", dir, err)
	}
	sort.Strings(files)
	return files, nil
}

// Key tells disks with different content apart.
func (d Debian) Key() string { return filepath.Base(d.dir) }

// Make makes the Debian disk, unless the cache has it. Without network one that was made before is as good.
func Make(ctx context.Context, c cache.Dir, log *progress.Log) (Debian, error) {
	source, err := parts.ModuleRoot(ctx)
	if err != nil {
		return Debian{}, err
	}
	pair, err := kernels.Get(ctx, source, c, log)
	if err != nil {
		made := Debian{c.Path("debian-" + key(kernels.First()).String())}
		if _, absent := os.Stat(made.Root()); absent != nil {
			return Debian{}, err
		}
		log.Say("%v: taking the disk that is there", err)
		return made, nil
	}
	dir, err := c.Entry(ctx, "debian", key(pair), func(tmp string) error {
		root := filepath.Join(tmp, "root")
		err := log.Count("installing Debian for the guests", func(step *progress.Step) error {
			return bootstrap(ctx, root, step, pair)
		})
		if err != nil {
			return err
		}
		return log.Do("making the guests' disk", func() error { return pack(ctx, root, tmp) })
	})
	return Debian{dir}, err
}

func key(pair kernels.Pair) *cache.Key {
	return cache.NewKey(recipe, fmt.Sprint(sizeGiB)).Add(packages(pair)...).Add(bootModules()...).Add(unused()...)
}

func bootstrap(ctx context.Context, root string, step *progress.Step, pair kernels.Pair) error {
	const unsafe = "force-unsafe-io"
	args := []string{
		"mmdebstrap", "--verbose", "--variant=minbase", "--include=" + strings.Join(packages(pair), ","),
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		// A tree that is half made is thrown away, so dpkg need not flush each file. Guests' own dpkg does.
		"--dpkgopt=" + unsafe, `--customize-hook=sed -i /` + unsafe + `/d "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"`,
	}
	for _, dir := range unused() {
		args = append(args, "--dpkgopt=path-exclude=/lib/modules/*/kernel/"+dir+"/*")
	}
	args = append(append(args, pair.Bootstrap()...), "bookworm", root)
	// It mounts /proc and /sys into the tree and, killed, leaves them there, for the next run to stumble over when it
	// clears the tree: in a mount namespace of its own they go with it.
	// It is not niced as compilers are: a guest boots when the disk is there.
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount"}, args...)...)
	// Debian's hook of a kernel's installation makes no initramfs then: it would take a minute, and the guests have one
	// of their own.
	cmd.Env = append(os.Environ(), "INITRD=No")
	var output bytes.Buffer
	both := io.MultiWriter(&output, hostpkg.Follow(step))
	cmd.Stdout, cmd.Stderr = both, both
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot install Debian: %w\n%s", err, tail(output.Bytes()))
	}
	return nil
}

// pack turns the installed tree into an image, with what boots it beside it, and leaves of the tree what compiles.
func pack(ctx context.Context, root, dir string) error {
	installed, err := os.ReadDir(filepath.Join(root, "lib", "modules"))
	if err != nil {
		return fmt.Errorf("cannot list the installed kernels: %w", err)
	}
	for _, entry := range installed {
		k := entry.Name()
		if err := copyFile(filepath.Join(root, "boot", "vmlinuz-"+k), filepath.Join(dir, "vmlinuz-"+k)); err != nil {
			return err
		}
		if err := copyBootModules(ctx, filepath.Join(root, "lib", "modules", k), filepath.Join(dir, "boot-"+k)); err != nil {
			return err
		}
	}
	if err := copyFile(filepath.Join(root, "bin", "busybox"), filepath.Join(dir, "busybox")); err != nil {
		return err
	}
	if err := format(ctx, root, filepath.Join(dir, "root.ext4"), fmt.Sprintf("%dG", sizeGiB)); err != nil {
		return err
	}
	for _, entry := range installed {
		if err := os.RemoveAll(filepath.Join(root, "lib", "modules", entry.Name(), "kernel")); err != nil {
			return fmt.Errorf("cannot thin out the installed tree: %w", err)
		}
	}
	return os.Rename(root, filepath.Join(dir, "tree"))
}

// format makes an ext4 image with the content of a folder.
func format(ctx context.Context, from, image, size string) error {
	cmd := exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=16",
		"-E", "lazy_itable_init=1,root_owner=0:0", "-d", from, image, size)
	// mke2fs lives where a plain user's PATH does not reach.
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot make image %q: %w\n%s", image, err, tail(output))
	}
	return nil
}

// Programs makes the disk with the programs that the bed built, laid out as /bin, and returns the image. The programs
// come from the cache, so their paths change when their content does and the paths alone make the key.
func Programs(ctx context.Context, c cache.Dir, programs map[string]string) (string, error) {
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	sort.Strings(names)
	key := cache.NewKey(recipe)
	var bytes int64
	for _, name := range names {
		key.Add(name, programs[name])
		if info, err := os.Stat(programs[name]); err == nil {
			bytes += info.Size()
		}
	}
	dir, err := c.Entry(ctx, "programs", key, func(tmp string) error {
		bin := filepath.Join(tmp, "tree", "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			return fmt.Errorf("cannot lay out programs: %w", err)
		}
		for _, name := range names {
			if err := copyFile(programs[name], filepath.Join(bin, name)); err != nil {
				return err
			}
		}
		size := fmt.Sprintf("%dM", bytes>>20+64)
		if err := format(ctx, filepath.Join(tmp, "tree"), filepath.Join(tmp, "programs.ext4"), size); err != nil {
			return err
		}
		return os.RemoveAll(filepath.Join(tmp, "tree"))
	})
	return filepath.Join(dir, "programs.ext4"), err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("cannot copy: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("cannot copy %q: %w", from, err)
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("cannot copy %q: %w", from, err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("cannot copy %q: %w", from, err)
	}
	return nil
}

// tail keeps the end of a program's output, where its error is.
func tail(output []byte) []byte {
	const most = 4000
	return output[max(0, len(output)-most):]
}
