// Package user builds the user-space half of the stand-in accelerator's driver with the C compiler of this machine:
// the library libedu, the programs edu-smi and edu-stayd, and the workload edu-app.
package user

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed src
var sources embed.FS

// Library is the soname; Libraries and Programs are where a root that [Root] made has them.
const (
	Library   = "libedu.so.1"
	Libraries = "usr/lib/x86_64-linux-gnu"
	Programs  = "usr/bin"
)

// Root fills dir with the user space of one version, laid out like the root of a system. Header is the module's edu.h.
func Root(ctx context.Context, dir, version, header string) error {
	for _, d := range []string{Libraries, Programs} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	library := filepath.Join(dir, Libraries, "libedu.so."+version)
	if err := compile(ctx, header, "libedu.c", "-o", library, "-shared", "-fPIC", "-Wl,-soname,"+Library,
		"-DEDU_USER_VERSION=\""+version+"\""); err != nil {
		return err
	}
	return errors.Join(
		compile(ctx, header, "edu_smi.c", "-o", filepath.Join(dir, Programs, "edu-smi"), library),
		compile(ctx, header, "edu_stayd.c", "-o", filepath.Join(dir, Programs, "edu-stayd"), library))
}

// App fills dir with the workload and what it needs of this machine's C library, laid out like the root of a system. It
// has no libedu.
func App(ctx context.Context, dir, header string) error {
	program := filepath.Join(dir, Programs, "edu-app")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	if err := compile(ctx, header, "edu_app.c", "-o", program, "-ldl"); err != nil {
		return err
	}
	for _, name := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"} {
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("cannot copy the C library: %w", err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// compile compiles one of the sources in a folder of its own, with the module's header beside it.
func compile(ctx context.Context, header, source string, args ...string) error {
	dir, err := os.MkdirTemp("", "edu-user-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(filepath.Join(dir, "user"), sources); err != nil {
		return err
	}
	text, err := os.ReadFile(header)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "module"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "module", "edu.h"), text, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "gcc", append([]string{
		"-O2", "-Wall", "-Wextra", "-Werror", "-s",
		filepath.Join(dir, "user", "src", source),
	}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot compile %q: %w\n%s", source, err, strings.TrimSpace(string(out)))
	}
	return nil
}
