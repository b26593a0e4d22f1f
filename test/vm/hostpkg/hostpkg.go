// Package hostpkg makes sure that the machine the test bed runs on has the distribution's programs that it needs. It
// installs only what is missing, only on Debian as root, and removes nothing.
package hostpkg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/acceld/acceld/test/vm/progress"
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

// Ensure installs what is missing.
func Ensure(ctx context.Context, log *progress.Log) error {
	missing := Missing()
	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("cannot install %s: not root; install them and try again", strings.Join(missing, ", "))
	}
	return log.Do("installing "+strings.Join(missing, ", "), func() error {
		for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, missing...)} {
			cmd := exec.CommandContext(ctx, "apt-get", args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if output, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("cannot run apt-get %q: %w\n%s", args[0], err, output)
			}
		}
		return nil
	})
}
