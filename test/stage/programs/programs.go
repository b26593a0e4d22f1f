// Package programs builds the programs of this tree that a guest gets. It imports nothing but the standard library, so
// that a command that only builds them compiles quickly.
package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variable names a folder that [Build] filled. Tests of many processes then build the programs once.
const Variable = "ACCELD_PROGRAMS"

// Build builds the programs of the tree at root into a folder, and those of its tests. It leaves programs that are up
// to date alone.
func Build(ctx context.Context, root, into string) error {
	if err := BuildProduct(ctx, root, into); err != nil {
		return err
	}
	return build(ctx, root, into, "./test/edu/check", "./test/tree/cmd", "./test/cmd/plainplugin", "./test/cmd/switches")
}

// BuildProduct builds what an agent's image has, as [Build] does. Any older tree has it, too.
func BuildProduct(ctx context.Context, root, into string) error {
	if err := build(ctx, root, into, "./cmd/acceld", "./cmd/acceld-hook"); err != nil {
		return err
	}
	return build(ctx, filepath.Join(root, "cmd", "acceld-prove"), into, ".") // a module of its own
}

func build(ctx context.Context, dir, into string, packages ...string) error {
	// VCS stamping would change the programs with every commit of the tests.
	cmd := exec.CommandContext(ctx, "go", append([]string{
		"build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", into + "/",
	}, packages...)...)
	cmd.Dir, cmd.Env = dir, Compiler()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build acceld: %w\n%s", err, out)
	}
	return nil
}

// Collector lets the compiler collect garbage less often, which saves a fifth of its processor time.
const Collector = "GOGC=400"

// Compiler is the environment in which the go command compiles without C.
func Compiler() []string { return append(os.Environ(), "CGO_ENABLED=0", Collector) }

// Root returns the folder of the module that the working directory is in.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
