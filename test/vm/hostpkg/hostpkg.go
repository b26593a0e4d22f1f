// Package hostpkg makes sure that the machine the test bed runs on has the distribution's programs that it needs. It
// installs only what is missing or much slower than it could be, only on Debian as root, and removes nothing.
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

func needs() []need {
	return []need{
		{pkg: "qemu-system-x86", program: "qemu-system-x86_64"},
		{pkg: "qemu-utils", program: "qemu-img"},
		{pkg: "mmdebstrap", program: "mmdebstrap"},
		{pkg: "e2fsprogs", file: "/usr/sbin/mke2fs"},
		{pkg: "gcc", program: "gcc"},
		{pkg: "libc6-dev", file: "/usr/lib/x86_64-linux-gnu/libc.a"},
		{pkg: "pkg-config", program: "pkg-config"},
		{pkg: "libseccomp-dev", file: "/usr/include/seccomp.h"},
	}
}

// Missing lists the packages that are not installed.
func Missing() []string {
	var missing []string
	for _, n := range needs() {
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

// Ensure installs what is missing, and a newer QEMU where the distribution's backports have one.
func Ensure(ctx context.Context, log *progress.Log) error {
	if missing := Missing(); len(missing) > 0 {
		if os.Geteuid() != 0 {
			return fmt.Errorf("cannot install %s: not root; install them and try again", strings.Join(missing, ", "))
		}
		err := log.Count("installing "+strings.Join(missing, ", "), func(step *progress.Step) error {
			return install(ctx, step, nil, missing...)
		})
		if err != nil {
			return err
		}
	}
	return renewQEMU(ctx, log)
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

// renewQEMU replaces the QEMU 7.2 of Debian 12: 10.0 emulates a quarter to a third quicker (a build of the edu driver
// in a guest: 21 s instead of 29). Where it cannot be had, the old one does it.
func renewQEMU(ctx context.Context, log *progress.Log) error {
	const release = "bookworm"
	system, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return fmt.Errorf("cannot tell the distribution: %w", err)
	}
	version, err := qemu.Version(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(version, "version 7.") || !strings.Contains(string(system), "VERSION_CODENAME="+release) ||
		os.Geteuid() != 0 {
		return nil
	}
	site, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages",
		"Codename: "+release).Output()
	mirror, _, _ := strings.Cut(string(site), "\n")
	if err != nil || mirror == "" {
		log.Say("the old QEMU does it: no package source of %s is known (%v)", release, err)
		return nil
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
	err = log.Count("installing QEMU from "+release+"-backports", func(step *progress.Step) error {
		return install(ctx, step, []string{"-o", "Dir::Etc::SourceList=" + name, "-t", release + "-backports"},
			"qemu-system-x86", "qemu-utils")
	})
	if err != nil {
		log.Say("the old QEMU does it: %v", err)
	}
	return nil
}
