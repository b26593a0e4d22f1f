package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"
)

// Bounds of what a failed test may keep.
const (
	keepFailures  = 20
	keepFileBytes = 4 << 20
)

// Collect keeps what explains a failure (serial console, journal, kernel log, cluster state, component logs) in a
// folder named after the test, and returns the folder. What cannot be had any more is left out.
func (n *Node) Collect(ctx context.Context, test string) (string, error) {
	dir, err := n.Guest.Collect(ctx, test)
	if err != nil || n.plane == nil {
		return dir, err
	}
	logs, err := filepath.Glob(filepath.Join(n.plane.Logs(), "*.log"))
	if err != nil {
		return dir, fmt.Errorf("cannot list component logs: %w", err)
	}
	for _, log := range logs {
		keepFile(dir, filepath.Base(log), log)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for name, args := range map[string][]string{
		"events.txt": {"get", "events", "-A", "--sort-by=.lastTimestamp", "-o", "wide"},
		"nodes.yaml": {"get", "nodes", "-o", "yaml"},
		"pods.yaml":  {"get", "pods", "-A", "-o", "yaml"},
	} {
		out, err := n.Kubectl(ctx, nil, append(args, "--request-timeout=5s")...)
		if err != nil {
			out += err.Error()
		}
		keep(dir, name, []byte(out))
	}
	return dir, nil
}

// Collect keeps a guest's console, journal, kernel log and the state of its processors.
func (g *Guest) Collect(ctx context.Context, test string) (string, error) {
	dir, err := g.failureDir(test)
	if err != nil {
		return "", err
	}
	keepFile(dir, "console.log", g.config.Console)
	keepFile(dir, "qemu.log", g.log.Name())
	within, cancel := context.WithTimeout(ctx, 20*time.Second)
	keep(dir, "processors.txt", []byte(g.machine.Processors(within)))
	cancel()
	for name, argv := range map[string][]string{
		"journal.txt":   {"journalctl", "-b", "--no-pager", "-o", "short-precise", "-n", "20000"},
		"kernel.txt":    {"dmesg"},
		"processes.txt": {"ps", "axfww", "-o", "pid,ppid,stat,etime,rss,args"},
		"devices.txt":   {"lspci", "-nnkv"},
		"network.txt":   {"ip", "-s", "-s", "link"},
		"irqs.txt":      {"cat", "/proc/interrupts"},
	} {
		within, cancel := context.WithTimeout(ctx, 20*time.Second)
		r, err := g.Run(within, argv...)
		cancel()
		if err != nil {
			r.Stdout += err.Error()
		}
		keep(dir, name, []byte(r.Stdout+r.Stderr))
	}
	return dir, nil
}

// failureDir makes a folder for one failure and removes the oldest ones.
func (g *Guest) failureDir(test string) (string, error) {
	root := g.bed.Failures()
	name := regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(test, "_")
	dir := filepath.Join(root, time.Now().UTC().Format("20060102-150405.000")+"-"+name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the folder of a failure: %w", err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return dir, fmt.Errorf("cannot list failures: %w", err)
	}
	sort.Slice(entries, func(i, j int) bool { return strings.Compare(entries[i].Name(), entries[j].Name()) < 0 })
	for _, old := range entries[:max(0, len(entries)-keepFailures)] {
		os.RemoveAll(filepath.Join(root, old.Name()))
	}
	return dir, nil
}

func keepFile(dir, name, from string) {
	content, err := os.ReadFile(from)
	if err != nil {
		content = []byte(err.Error())
	}
	keep(dir, name, content)
}

// keep writes the end of a text. A failure to do so must not hide the failure that is being kept.
func keep(dir, name string, content []byte) {
	_ = os.WriteFile(filepath.Join(dir, name), content[max(0, len(content)-keepFileBytes):], 0o644)
}
