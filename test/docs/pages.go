// Package docs renders the generated pages of docs and reads the written ones. `make generate` writes the former, and
// its test holds both to the code. It builds and asks the agent's program for its help, and touches nothing else.
package docs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/exporter"
)

// Page is one generated page.
type Page struct {
	// Path is relative to the root of the repository.
	Path string
	Text string
}

// Pages renders every generated page of the repository at root. It builds cmd/acceld, some seconds with a warm cache.
func Pages(ctx context.Context, root string) ([]Page, error) {
	pages := []Page{
		{"docs/metrics.md", metrics()},
		{"docs/reasons.md", reasons()},
		{"docs/states.md", agent.StatesMarkdown()},
	}
	if _, err := os.Stat(filepath.Join(root, "cmd/acceld")); errors.Is(err, fs.ErrNotExist) {
		return pages, nil // a tree without the program has no page about it
	}
	commands, err := commandLine(ctx, root)
	return append(pages, Page{"docs/cli.md", commands}), err
}

func reasons() string {
	var b strings.Builder
	b.WriteString("# Reasons\n\nGenerated from the reasons of package accel; do not edit.\n\n" +
		"A kind of accelerator that is blocked says why with one of these codes: in `acceld status`, in the node condition\n" +
		"`AcceleratorsReady`, in events and in the metrics. A permanent one is not tried again before something changes.\n\n" +
		"| code | what happened | who acts | what to do | tried again |\n|---|---|---|---|---|\n")
	for _, r := range accel.Reasons() {
		again := "yes"
		if r.Permanent {
			again = "after a change"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Reason, cell(r.Sentence), r.Actor, cell(r.Remedy), again)
	}
	return b.String()
}

func metrics() string {
	return "# Metrics\n\nGenerated from the rows of package exporter; do not edit.\n\n" +
		"They are served on `/metrics` of the local endpoint. A scrape shows the last reading and never touches a driver.\n\n" +
		strings.TrimSpace(exporter.Docs()) + "\n"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func commandLine(ctx context.Context, root string) (string, error) {
	dir, err := os.MkdirTemp("", "acceld-docs-")
	if err != nil {
		return "", fmt.Errorf("cannot build the program: %w", err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "acceld")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, "./cmd/acceld")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the program: %w\n%s", err, out)
	}
	var b strings.Builder
	b.WriteString("# Command line\n\nGenerated from the program's own help; do not edit.\n")
	if err := describe(ctx, &b, program); err != nil {
		return "", err
	}
	return b.String(), nil
}

// describe writes the help of the command at path, then that of every command below it.
func describe(ctx context.Context, b *strings.Builder, program string, path ...string) error {
	help := exec.CommandContext(ctx, program, append(path, "--help")...)
	help.Env = []string{"HOME=/nonexistent"} // no default depends on who asks
	out, err := help.Output()
	if err != nil {
		return fmt.Errorf("cannot get the help of %q: %w", path, err)
	}
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n", strings.Join(append([]string{"acceld"}, path...), " "), clean(string(out)))
	for _, name := range subcommands(string(out)) {
		if err := describe(ctx, b, program, append(path[:len(path):len(path)], name)...); err != nil {
			return err
		}
	}
	return nil
}

// subcommands reads the names under "Available Commands:" of a help text, without those every program has.
func subcommands(help string) []string {
	_, list, ok := strings.Cut(help, "Available Commands:\n")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "help" && f[0] != "completion" {
			names = append(names, f[0])
		}
	}
	return names
}

// clean takes trailing space off every line.
func clean(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.Join(lines, "\n")
}
