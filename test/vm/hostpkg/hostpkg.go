// Package hostpkg makes sure that the machine the test bed runs on has the distribution's programs that it needs. It
// installs only what is missing or much slower than it could be, only on Debian as root, and removes nothing. What
// makes the guests' disk and compiles programs is one step and QEMU another, because guests boot long after the disk
// is begun.
package hostpkg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/qemu"
)

// need is a package and a way to see that it is there: a program, or a file.
type need struct{ pkg, program, file string }

// tools make disks and compile.
func tools() []need {
	return []need{
		{pkg: "mmdebstrap", program: "mmdebstrap"},
		{pkg: "e2fsprogs", file: "/usr/sbin/mke2fs"},
		{pkg: "kmod", file: "/usr/sbin/depmod"},
		{pkg: "xz-utils", program: "xz"},
		{pkg: "gcc", program: "gcc"},
		{pkg: "libc6-dev", file: "/usr/lib/x86_64-linux-gnu/libc.a"},
		{pkg: "pkg-config", program: "pkg-config"},
		{pkg: "libseccomp-dev", file: "/usr/include/seccomp.h"},
	}
}

// machine runs guests.
func machine() []need {
	return []need{
		{pkg: "qemu-system-x86", program: "qemu-system-x86_64"},
		{pkg: "qemu-utils", program: "qemu-img"},
	}
}

// missing lists the packages that are not installed.
func missing(needs []need) []string {
	var missing []string
	for _, n := range needs {
		var err error
		if n.program != "" {
			_, err = exec.LookPath(n.program)
		} else {
			_, err = os.Stat(n.file)
		}
		if err != nil {
			missing = append(missing, n.pkg)
		}
	}
	return missing
}

// EnsureTools installs what makes disks and compiles.
func EnsureTools(ctx context.Context, log *progress.Log) error {
	return ensure(ctx, log, missing(tools()))
}

// EnsureQEMU installs QEMU, from the distribution's backports where they have a newer one: QEMU 10.0 emulates a quarter
// to a third quicker than the 7.2 of Debian 12 (a build of the edu driver in a guest: 21 s instead of 29). Where it
// cannot be had, the old one does it, except for the faults that need a device of QEMU 8, igb.
func EnsureQEMU(ctx context.Context, log *progress.Log) error {
	old := len(missing(machine())) > 0
	if !old {
		version, err := qemu.Version(ctx)
		if err != nil {
			return err
		}
		old = strings.Contains(version, "version 7.")
	}
	if old && os.Geteuid() == 0 {
		if err := fromBackports(ctx, log); err != nil {
			log.Say("Debian's own QEMU does it: %v", err)
		}
	}
	return ensure(ctx, log, missing(machine()))
}

func ensure(ctx context.Context, log *progress.Log, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	names := strings.Join(packages, ", ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("cannot install %s: not root; install them and try again", names)
	}
	return log.Count("installing "+names, func(step *progress.Step) error {
		return install(ctx, step, nil, packages...)
	})
}

// install has no recommended packages and asks nothing.
func install(ctx context.Context, step *progress.Step, options []string, packages ...string) error {
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"},
		packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		var output bytes.Buffer
		both := io.MultiWriter(&output, Follow(step))
		cmd.Stdout, cmd.Stderr = both, both
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("cannot run apt-get %q: %w\n%s", args[0], err, output.Bytes())
		}
	}
	return nil
}

// release is the name of Debian 12.
const release = "bookworm"

// Mirror is the URL from which this machine's apt gets a suite, such as "bookworm-security".
func Mirror(ctx context.Context, codename string) (string, error) {
	site, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages",
		"Codename: "+codename).Output()
	mirror, _, _ := strings.Cut(string(site), "\n")
	if err != nil || mirror == "" {
		return "", fmt.Errorf("no package source of %s is known (%v)", codename, err)
	}
	return mirror, nil
}

// fromBackports installs QEMU from the backports of Debian 12. On another system it does nothing.
func fromBackports(ctx context.Context, log *progress.Log) error {
	system, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return fmt.Errorf("cannot tell the distribution: %w", err)
	}
	if !strings.Contains(string(system), "VERSION_CODENAME="+release) {
		return nil
	}
	mirror, err := Mirror(ctx, release)
	if err != nil {
		return err
	}
	// The machine's own list of sources stays as it is.
	dir, err := os.MkdirTemp("", "bed-")
	if err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	const list = "/etc/apt/sources.list"
	text, err := os.ReadFile(list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the list of package sources: %w", err)
	}
	text = fmt.Appendf(text, "\ndeb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s-backports main\n",
		mirror, release)
	name := filepath.Join(dir, "sources.list")
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return fmt.Errorf("cannot write a list of package sources: %w", err)
	}
	return log.Count("installing QEMU from "+release+"-backports", func(step *progress.Step) error {
		return install(ctx, step, []string{"-o", "Dir::Etc::SourceList=" + name, "-t", release + "-backports"},
			"qemu-system-x86", "qemu-utils")
	})
}
