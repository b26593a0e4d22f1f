package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host"
)

// Limits of a report. What is longer is cut at its beginning, because the end happened last.
const (
	reportLines   = 400
	reportSection = 4 << 20
	// journalTime is how long journalctl may take to answer.
	journalTime = 10 * time.Second
	// listening is how long the kernel log may be silent before it counts as read.
	listening = 200 * time.Millisecond
)

// section is a part of a report.
type section struct{ title, text string }

// report writes what is known about this host into a file in this process's file system that only root may read. It
// overwrites only an earlier report or an empty file.
func (c *common) report(cmd *cobra.Command, file string, findings []finding) error {
	own, err := host.New("/")
	if err != nil {
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	if own.Exists(file) {
		if old, err := own.ReadFile(file); err != nil || len(old) > 0 && !strings.HasPrefix(string(old), reportTitle) {
			return errors.New("the file exists and is not a report")
		}
	}
	hide := &redactor{}
	sections := []section{
		{"program", fmt.Sprintf("acceld %s, %s, host root %s", version(), time.Now().UTC().Format(time.RFC3339),
			c.hostRoot)},
		{"findings", asText(findings)},
		{"configuration", "the defaults: there is no " + c.config},
	}
	if config, err := filepath.Abs(c.config); err == nil && own.Exists(config) {
		content, err := own.ReadFile(config)
		sections[2] = outcome("configuration "+c.config, string(content), err)
	}
	if p, problem := c.open(cmd); problem == nil { // otherwise the problem is among the findings
		p.secrets(hide, own)
		sections = append(sections, p.sections()...)
	}
	return own.WriteFile(file, []byte(render(hide, sections)), 0o600)
}

const reportTitle = "acceld report\n"

// render joins the sections into one text without secrets. Each section is redacted separately: one that ends in the
// middle of a key does not affect the next.
func render(hide *redactor, sections []section) string {
	var b strings.Builder
	b.WriteString(reportTitle)
	b.WriteString(
		"Passwords, tokens, keys and certificates are left out, as far as acceld recognises them.\n" +
			"Names of nodes, pods and devices are not.\n")
	for _, s := range sections {
		text := strings.TrimRight(hide.text(printable(s.text)), "\n")
		if len(text) > reportSection {
			text = "[the beginning is cut off]\n" + text[len(text)-reportSection:]
		}
		fmt.Fprintf(&b, "\n==== %s ====\n%s\n", s.title, text)
	}
	return b.String()
}

// printable keeps lines and replaces control characters, which a terminal would obey.
func printable(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\t", "    "), "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

func asText(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil { // cannot happen with plain values
		return err.Error()
	}
	return string(b)
}

// secrets reads the host's secrets from the places that acceld knows, so that they are found anywhere in the report.
// A secret that acceld cannot read cannot get into a report through acceld either. own is the file system of this
// process.
func (p *parts) secrets(hide *redactor, own *host.Host) {
	files := []string{
		"/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf",
		"/etc/kubernetes/admin.conf", "/var/lib/kubelet/kubeconfig", "/var/lib/kubelet/config.json",
	}
	sources := slices.Clone(p.Config.Prebuilt)
	for _, def := range p.Kinds {
		sources = append(sources, def.Driver.Sources...)
	}
	for _, s := range sources {
		if s.Credentials != "" {
			files = append(files, s.Credentials)
		}
	}
	for _, f := range files {
		if content, err := p.Host.ReadFile(f); err == nil {
			hide.learns(content)
		}
	}
	for _, f := range []string{p.Config.Kubeconfig, "/var/run/secrets/kubernetes.io/serviceaccount/token"} {
		if content, err := own.ReadFile(f); f != "" && err == nil {
			hide.learns(content)
		}
	}
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); secretName().MatchString(name) {
			hide.knows(value)
		}
	}
}

// sections returns the parts of a report after the configuration.
func (p *parts) sections() []section {
	out := []section{
		{"facts of the host", asText(p.Detect(detect.Options{Names: true, Around: true}))},
		{"definitions in force", strings.Join(sorted(p.Kinds), "\n")},
	}
	for _, name := range p.Host.Glob(p.Config.Definitions, "*.yaml") {
		if content, err := p.Host.ReadFile(name); err == nil {
			out = append(out, section{"definition " + name, string(content)})
		}
	}
	out = append(out, p.answers()...)
	entries, err := p.Driver(nil).List()
	out = append(out, outcome("drivers in the store", asText(entries), err))
	for _, name := range p.Host.Glob(p.Config.StateDir+"/kmod/failed", "*.log") {
		content, err := p.Host.ReadFile(name)
		out = append(out, outcome("build log "+name, tail(string(content)), err))
	}
	changed, err := p.Ledger.Changed()
	out = append(out, outcome("files of acceld that somebody else has changed", asText(changed), err))
	if p.Host.Live() {
		journal, err := p.journal()
		out = append(out, outcome("journal of the agent", journal, err))
		kernel, err := p.kernelLog()
		out = append(out, outcome("kernel log", kernel, err))
	}
	return out
}

func outcome(title, text string, err error) section {
	if err != nil {
		text = strings.TrimSpace(text + "\ncannot be read: " + err.Error())
	}
	return section{title, text}
}

// answers returns the agent's responses.
func (p *parts) answers() []section {
	a := p.agent()
	var out []section
	for _, path := range []string{
		"/v1/machine", "/v1/holders", "/v1/events", "/v1/progress", "/v1/history", "/readyz", "/livez",
		"/healthz", "/metrics",
	} {
		text, err := a.Text(p.ctx, path)
		out = append(out, outcome("agent "+path, text, err))
		if err != nil { // no agent answers
			break
		}
	}
	return out
}

// journal returns the last lines of the unit's journal.
func (p *parts) journal() (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, journalTime)
	defer cancel()
	out, err := p.Host.Programs().Command(ctx, "journalctl", "--unit=acceld.service", "--no-pager", "--output=short-iso",
		fmt.Sprintf("--lines=%d", reportLines)).Output()
	return string(out), err
}

// kernelLog returns the last lines of the kernel's own messages, without debug messages.
func (p *parts) kernelLog() (string, error) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	records, err := p.Host.Kernel().Kmsg(ctx)
	if err != nil {
		return "", err
	}
	const debug = 7 // a level of Documentation/core-api/printk-basics.rst
	var b strings.Builder
	silence := time.AfterFunc(listening, cancel) // which ends the records
	defer silence.Stop()
	for range 1 << 20 {
		r, ok := <-records
		if !ok {
			break
		}
		if r.Facility == 0 && r.Level < debug {
			fmt.Fprintf(&b, "[%12.6f] <%d> %s\n", r.Boot.Seconds(), r.Level, plain(r.Text))
		}
		silence.Reset(listening)
	}
	return tail(b.String()), nil
}

// tail returns the last lines of a text.
func tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if more := len(lines) - reportLines; more > 0 {
		lines = append([]string{fmt.Sprintf("[%d lines are left out]", more)}, lines[more:]...)
	}
	return strings.Join(lines, "\n")
}
