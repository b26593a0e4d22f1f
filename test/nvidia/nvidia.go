// Package nvidia is the true broken kernel upgrade: Debian 12's package nvidia-open-kernel-source 535.261.03 compiles
// for the older of the two kernels of test/vm/kernels and not for the newer, into which a change of pci_resize_resource
// was ported back. The package gets that source, whole and as the smallest part that breaks the same way, from the
// distribution's own archive; nothing of it is in this repository. It may not load what comes out.
package nvidia

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/hostpkg"
	"github.com/acceld/acceld/test/vm/image"
	"github.com/acceld/acceld/test/vm/kernels"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
)

// Version is the driver's version.
const Version = "535.261.03"

// Error is the compiler's sentence for the newer kernel.
const Error = "too few arguments to function 'pci_resize_resource'"

// recipe is raised when what is made here changes.
const recipe = "1"

// Source returns the directory of the unpacked source, from the cache.
func Source(ctx context.Context, c cache.Dir, log *progress.Log) (string, error) {
	dir, err := c.Entry(ctx, "nvidia-source", cache.NewKey(recipe, Version), func(tmp string) error {
		return log.Do("fetching NVIDIA's source", func() error {
			root := filepath.Join(tmp, "root")
			// The archive's own client with the archive's own keys; mmdebstrap prepares it for another suite and
			// component.
			const download = `cd "$1" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q download nvidia-open-kernel-source && dpkg-deb -x nvidia-open-kernel-source_*.deb source`
			err := run(ctx, "mmdebstrap", "--variant=extract", "--components=main,contrib", "--include=base-files",
				"--extract-hook="+download, "bookworm", root)
			if err != nil {
				return err
			}
			if err := extract(ctx, filepath.Join(root, "source"), tmp); err != nil {
				return err
			}
			return os.RemoveAll(root)
		})
	})
	return filepath.Join(dir, "nvidia-open-kernel"), err
}

// extract unpacks the archive that the package holds.
func extract(ctx context.Context, from, to string) error {
	if err := run(ctx, "tar", "-xJf", filepath.Join(from, "usr/src/nvidia-open-kernel.tar.xz"), "-C", to,
		"--strip-components=1"); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(to, "nvidia-open-kernel", "Kbuild"))
	if err == nil && !strings.Contains(string(text), Version) {
		err = fmt.Errorf("the archive has another version than %s", Version)
	}
	return err
}

// Kernels are the two kernels of the guests.
func Kernels(ctx context.Context, c cache.Dir, log *progress.Log) (kernels.Pair, error) {
	root, err := parts.ModuleRoot(ctx)
	if err != nil {
		return kernels.Pair{}, err
	}
	return kernels.Get(ctx, root, c, log)
}

// Root returns a Debian with both kernels, their headers, a compiler and the whole source at /usr/src/nvidia-<Version>,
// from the cache. Whoever builds in it writes to a copy of var.
func Root(ctx context.Context, c cache.Dir, log *progress.Log) (string, error) {
	source, err := Source(ctx, c, log)
	if err != nil {
		return "", err
	}
	pair, err := Kernels(ctx, c, log)
	if err != nil {
		return "", err
	}
	if !pair.Both() {
		return "", errors.New(pair.Lost())
	}
	packages := append([]string{"gcc", "make", "kmod"}, pair.Packages()...)
	dir, err := c.Entry(ctx, "nvidia-root", cache.NewKey(recipe, Version).Add(packages...), func(tmp string) error {
		return log.Do("installing a Debian with both kernels", func() error {
			root := filepath.Join(tmp, "root")
			args := append([]string{
				"mmdebstrap", "--variant=minbase", "--include=" + strings.Join(packages, ","),
				"--dpkgopt=path-exclude=/usr/share/doc/*",
			}, pair.Bootstrap()...)
			err := run(ctx, append(args, "bookworm", root)...)
			if err != nil {
				return err
			}
			initrds, _ := filepath.Glob(filepath.Join(root, "boot/initrd*")) // nobody boots it
			for _, name := range initrds {
				_ = os.Remove(name)
			}
			return run(ctx, "cp", "-r", source, filepath.Join(root, "usr/src/nvidia-"+Version))
		})
	})
	return filepath.Join(dir, "root"), err
}

// pack puts what compiles into an archive: no kernels, no headers.
const pack = `cd "$1"
tar -cf "$2" --exclude=usr/lib/modules --exclude='usr/lib/linux-kbuild-*' bin lib lib64 etc/alternatives usr/bin usr/lib usr/lib64 usr/libexec usr/include`

// Builder pushes the programs and libraries of [Root], without kernels and headers, to a registry as the builder image
// that the definition of nvidia-gpu names.
func Builder(ctx context.Context, c cache.Dir, log *progress.Log, r *image.Registry) error {
	root, err := Root(ctx, c, log)
	if err != nil {
		return err
	}
	dir, err := c.Entry(ctx, "nvidia-builder", cache.NewKey(recipe, pack, filepath.Base(filepath.Dir(root))),
		func(tmp string) error {
			return run(ctx, "sh", "-euc", pack, "sh", root, filepath.Join(tmp, "builder.tar"))
		})
	if err != nil {
		return err
	}
	return r.PushLayer(ctx, "library/buildpack-deps:bookworm", filepath.Join(dir, "builder.tar"))
}

// Next installs Debian 13 with its newest kernel and a compiler below dir, which must be empty, pushes the builder
// image that the definition names for it, and returns the root and the kernel's release. It is not kept: the archive
// drops a kernel and its headers when it gets the next.
func Next(ctx context.Context, dir string, log *progress.Log, r *image.Registry) (root, release string, err error) {
	root = filepath.Join(dir, "root")
	err = log.Do("installing Debian 13", func() error {
		return run(ctx, "mmdebstrap", "--variant=minbase", "--include=gcc,libc6-dev,make,kmod,linux-image-amd64",
			"--dpkgopt=path-exclude=/usr/share/doc/*", "trixie", root)
	})
	if err != nil {
		return "", "", err
	}
	kernels, err := os.ReadDir(filepath.Join(root, "usr/lib/modules"))
	if err != nil || len(kernels) != 1 {
		return "", "", fmt.Errorf("want one kernel in Debian 13, got %v (%v)", kernels, err)
	}
	archive := filepath.Join(dir, "builder.tar")
	if err := run(ctx, "sh", "-euc", pack, "sh", root, archive); err != nil {
		return "", "", err
	}
	return root, kernels[0].Name(), r.PushLayer(ctx, "library/buildpack-deps:trixie", archive)
}

// Newest is the upstream version of a package in a suite's component of the archive, such as "bookworm-security" and
// "non-free".
func Newest(ctx context.Context, suite, component, name string) (string, error) {
	mirror, err := mirrorOf(ctx, suite)
	if err != nil {
		return "", err
	}
	text, err := index(ctx, strings.TrimSuffix(mirror, "/")+"/dists/"+suite+"/"+component+"/binary-amd64/Packages.xz")
	if err != nil {
		return "", fmt.Errorf("cannot read the index of Debian's %s: %w", suite, err)
	}
	version := regexp.MustCompile(`(?m)^Package: ` + regexp.QuoteMeta(name) + `\n(?:.+\n)*?Version: ([0-9.]+)-`)
	m := version.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("the index of Debian's %s has no %s", suite, name)
	}
	return string(m[1]), nil
}

// mirrorOf is the mirror of a suite: a mirror of Debian 12 has Debian 13, too.
func mirrorOf(ctx context.Context, suite string) (string, error) {
	return hostpkg.Mirror(ctx, strings.Replace(suite, "trixie", "bookworm", 1))
}

// index downloads and unpacks an index of the archive.
func index(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	in, closed, err := unpack.Decompress(answer.Body)
	defer closed()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}

func run(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, "nice", argv...).CombinedOutput()
	if err != nil {
		const most = 4000
		return fmt.Errorf("cannot run %q: %w\n%s", argv[0], err, out[max(0, len(out)-most):])
	}
	return nil
}

// Subset makes the directory to, which must not be there, the source of a driver like the one in edu, test/edu/module,
// whose build also compiles the one file of NVIDIA's source that breaks, with NVIDIA's own probing of the kernel and
// NVIDIA's own flags. So edu.ko is what it always is where that file compiles, and where it does not the build ends
// with NVIDIA's true error. Source is [Source]'s. The files carry NVIDIA's licence (MIT or GPL-2.0).
//
// A guest that has the result at /usr/src/edu-<version> builds, loads and computes on the older kernel, and on the
// newer says Error. Nearly all of its 40 s of processor time is NVIDIA's probing of the kernel, 150 runs of the
// compiler: an emulated guest should get what [Probe] found out before.
func Subset(source, edu, to string) error {
	for _, dir := range []string{"nvidia", "common"} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
			return fmt.Errorf("cannot make the subset: %w", err)
		}
	}
	err := errors.Join(
		copyFiles(edu, to, func(name string) bool {
			return !strings.Contains(name, "/") && name != "Kbuild" && name != "dkms.conf"
		}),
		copyFiles(filepath.Join(source, "common"), filepath.Join(to, "common"), func(name string) bool {
			return strings.HasSuffix(name, ".h")
		}),
		copyFiles(filepath.Join(source, "nvidia"), filepath.Join(to, "nvidia"), func(name string) bool {
			return strings.HasSuffix(name, ".h") || name == "nv-pci.c"
		}),
		copyFiles(source, to, func(name string) bool { return name == "conftest.sh" }),
	)
	if err != nil {
		return fmt.Errorf("cannot make the subset: %w", err)
	}
	theirs, err := os.ReadFile(filepath.Join(source, "Kbuild"))
	if err != nil {
		return fmt.Errorf("cannot make the subset: %w", err)
	}
	tests, err := probes(source, to)
	if err != nil {
		return fmt.Errorf("cannot make the subset: %w", err)
	}
	ours := `# The edu driver, and beside it one file of NVIDIA's.
obj-m := edu.o
edu-y := edu_main.o edu_engine.o edu_file.o edu_part.o edu_sysfs.o
ARCH ?= $(SRCARCH)
NV_KERNEL_SOURCES := $(abs_srctree)
NV_KERNEL_OUTPUT := $(abs_objtree)
NV_OBJECTS_DEPEND_ON_CONFTEST := nvidia/nv-pci.o
` + tests + `
always-y += nvidia/nv-pci.o
theirs := -I$(src)/nvidia -DNVIDIA_UNDEF_LEGACY_BIT_MACROS -UDEBUG -U_DEBUG -DNDEBUG
probed := $(src)/probed/$(KERNELRELEASE)
ifneq ($(wildcard $(probed)/conftest/headers.h),)
# The kernel was asked already; the flags are those that NVIDIA's Kbuild sets for x86_64.
theirs += -I$(probed) -I$(src)/common/inc -I$(src) -Wall -Wno-cast-qual -Wno-format-extra-args -D__KERNEL__ -DMODULE -DNVRM \
 -DNV_VERSION_STRING=\"` + Version + `\" -Wno-unused-function -Wuninitialized -fno-strict-aliasing -ffreestanding -mno-red-zone \
 -mcmodel=kernel -DNV_UVM_ENABLE -Werror=undef -DNV_SPECTRE_V2=0 -DNV_KERNEL_INTERFACE_LAYER
endif
CFLAGS_nv-pci.o := $(theirs)
CFLAGS_nvidia/nv-pci.o := $(theirs)
ifeq ($(wildcard $(probed)/conftest/headers.h),)
include $(src)/nvidia.Kbuild
endif
`
	return errors.Join(
		os.WriteFile(filepath.Join(to, "nvidia.Kbuild"), theirs, 0o644),
		os.WriteFile(filepath.Join(to, "Kbuild"), []byte(ours), 0o644),
	)
}

// Headers are those of a kernel: this machine's own, or those of [Root], and where they are in it.
func Headers(ctx context.Context, c cache.Dir, log *progress.Log, release string) (root, dir string, err error) {
	dir = "/lib/modules/" + release + "/build"
	if _, err := os.Stat(dir + "/Module.symvers"); err == nil {
		return "/", dir, nil
	}
	root, err = Root(ctx, c, log)
	return root, dir, err
}

// Probe lets NVIDIA's scripts ask a kernel on this machine, once for a cache, and leaves the answers in the subset,
// which for that kernel then compiles only what it is about: the edu driver and one file more. The caller must be root.
func Probe(ctx context.Context, c cache.Dir, log *progress.Log, subset, release string) error {
	root, _, err := Headers(ctx, c, log, release)
	if err != nil {
		return err
	}
	answers, err := c.Entry(ctx, "nvidia-probed", cache.NewKey(recipe, Version, release), func(tmp string) error {
		return log.Do("asking kernel "+release+" NVIDIA's questions", func() error {
			return probe(ctx, subset, root, release, tmp)
		})
	})
	if err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(subset, "probed", release, "conftest"), os.DirFS(answers))
}

// probe puts the answers into the directory to.
func probe(ctx context.Context, subset, root, release, to string) error {
	work, err := os.MkdirTemp(filepath.Join(root, "var/tmp"), "acceld-probe")
	if err != nil {
		return fmt.Errorf("cannot probe kernel %q: %w", release, err)
	}
	defer os.RemoveAll(work)
	if err := os.CopyFS(filepath.Join(work, "edu"), os.DirFS(subset)); err != nil {
		return fmt.Errorf("cannot probe kernel %q: %w", release, err)
	}
	inside := "/" + strings.TrimPrefix(strings.TrimPrefix(work, root), "/")
	argv := []string{"make", "-j2", "-C", "/lib/modules/" + release + "/build", "M=" + inside + "/edu", "modules"}
	if root != "/" {
		argv = append([]string{"chroot", root}, argv...)
	}
	failed := run(ctx, argv...) // as it should for one of the kernels: the answers come before
	answers := filepath.Join(work, "edu/conftest")
	if _, err := os.Stat(filepath.Join(answers, "headers.h")); err != nil {
		return fmt.Errorf("cannot probe kernel %q: %w", release, errors.Join(err, failed))
	}
	return copyFiles(answers, to, func(name string) bool { return !strings.Contains(name, "/") })
}

// probes are those of NVIDIA's questions to the kernel that the copied files ask for the answer of. Each one is a
// compiler's run.
func probes(source, to string) (string, error) {
	list, err := os.ReadFile(filepath.Join(source, "nvidia/nvidia.Kbuild"))
	if err != nil {
		return "", err
	}
	var used strings.Builder
	err = filepath.WalkDir(to, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(name) != ".h" && filepath.Ext(name) != ".c" {
			return err
		}
		text, err := os.ReadFile(name)
		used.Write(text)
		return err
	})
	var out []string
	for _, m := range regexp.MustCompile(
		`(?m)^(NV_CONFTEST_[A-Z]+_COMPILE_TESTS) \+= (\w+)[ \t]*$`).FindAllStringSubmatch(string(list), -1) {
		if strings.Contains(strings.ToUpper(used.String()), strings.ToUpper(m[2])) {
			out = append(out, m[1]+" += "+m[2])
		}
	}
	return strings.Join(out, "\n"), err
}

// copyFiles copies the files of a tree that are wanted, by their path in it.
func copyFiles(from, to string, want func(name string) bool) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		relative, err := filepath.Rel(from, name)
		if err != nil || !want(relative) {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		return errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, text, 0o644))
	})
}
