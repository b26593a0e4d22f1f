package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// court is a node with one subject, and what a scenario has done to it.
type court struct {
	*bed.Node
	subject *Subject
	devices int
	image   string // of the pods

	unplugged map[int]bool
	pods      int // names are numbered
	holder    string
	stream    *stream
}

// verdict is what became of one scenario.
type verdict struct {
	took    time.Duration
	err     error  // why it failed, or why it could not be tried
	untried bool   // something before it failed
	notFor  string // why it makes no sense
}

func (v verdict) String() string {
	switch {
	case v.notFor != "":
		return "does not apply: " + v.notFor
	case v.untried:
		return "not tried"
	case v.err != nil:
		return "failed: " + v.err.Error()
	}
	return fmt.Sprintf("passed in %.0f s", v.took.Seconds())
}

// ownUnit is the unit in the guest of a subject that brings none.
const ownUnit = "judged.service"

// unit is the subject's unit in the guest.
func (c *court) unit() string { return cmp.Or(c.subject.Unit, ownUnit) }

// install puts the subject into the guest and starts it.
func (c *court) install(ctx context.Context) error {
	s := c.subject
	for _, b := range s.Builds {
		if err := c.build(ctx, b); err != nil {
			return err
		}
	}
	for _, f := range s.Files {
		if err := c.copy(ctx, filepath.Join(s.dir, f.From), f.To); err != nil {
			return err
		}
	}
	for path, text := range s.Texts {
		if err := c.WriteFile(ctx, path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if s.Kubeconfig != "" {
		text, err := c.Plane().GuestKubeconfig()
		if err != nil {
			return err
		}
		if err := c.WriteFile(ctx, s.Kubeconfig, text, 0o600); err != nil {
			return err
		}
	}
	if s.Setup != "" {
		if err := c.script(ctx, begin, s.Setup); err != nil {
			return fmt.Errorf("setup: %w", err)
		}
	}
	for _, file := range s.Manifests {
		text, err := os.ReadFile(filepath.Join(s.dir, file))
		if err != nil {
			return fmt.Errorf("cannot read a manifest: %w", err)
		}
		if err := c.Apply(ctx, text); err != nil {
			return err
		}
	}
	if err := c.pushImage(ctx); err != nil {
		return err
	}
	if s.Unit == "" {
		if err := c.WriteFile(ctx, "/etc/systemd/system/"+ownUnit, []byte(s.unitFile()), 0o644); err != nil {
			return err
		}
	}
	return c.script(ctx, begin, "systemctl daemon-reload; systemctl enable --now "+c.unit())
}

// unitFile is how an administrator would run the subject: after the runtime, started again whenever it ends.
func (s *Subject) unitFile() string {
	var argv []string
	for _, a := range s.Run {
		argv = append(argv, systemdQuoted(a))
	}
	return "[Unit]\nAfter=network.target\nStartLimitIntervalSec=0\n" +
		"[Service]\nExecStart=" + strings.Join(argv, " ") + "\nRestart=always\nRestartSec=1\n" +
		"Environment=NODE_NAME=" + bed.NodeName + "\n[Install]\nWantedBy=multi-user.target\n"
}

// systemdQuoted is an argument as systemd.service(5) reads it: nothing in it is expanded.
func systemdQuoted(a string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", "$$", "%", "%%", "\n", `\n`).Replace(a) + `"`
}

// build compiles a program and puts it into the guest.
func (c *court) build(ctx context.Context, b Build) error {
	file := filepath.Join(c.Dir(), "judged-build")
	if err := compile(ctx, b, file); err != nil {
		return err
	}
	return c.Put(ctx, file, b.To, 0o755)
}

// compile makes a static program.
func compile(ctx context.Context, b Build, file string) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, b.Package)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %q: %w\n%s", b.Package, err, out)
	}
	return nil
}

// copy puts a file, or all files of a directory, into the guest.
func (c *court) copy(ctx context.Context, from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("cannot copy into the guest: %w", err)
	}
	if !info.IsDir() {
		return c.Put(ctx, from, to, info.Mode().Perm())
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("cannot copy into the guest: %w", err)
	}
	for _, e := range entries {
		if err := c.copy(ctx, filepath.Join(from, e.Name()), path.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// pushImage makes the image of the pods.
func (c *court) pushImage(ctx context.Context) error {
	files := map[string]image.File{}
	if pkg := c.subject.Pod.Program; pkg != "" {
		file := filepath.Join(c.Dir(), "judged-program")
		if err := compile(ctx, Build{Package: pkg}, file); err != nil {
			return err
		}
		program, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		files["/program"] = image.File{Mode: 0o755, Content: program}
	}
	var err error
	c.image, err = c.PushImage(ctx, "judged:1", files, "/bin/sh", "-c")
	return err
}

// script runs a script in the guest and fails with what it said.
func (c *court) script(ctx context.Context, limit time.Duration, script string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := c.Sh(ctx, script)
	if err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("status %d: %s", r.Status, tail(r.Stdout+r.Stderr))
	}
	return nil
}

// tail is the end of a text, on one line.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// judge carries out a scenario.
func (c *court) judge(ctx context.Context, s *Scenario) verdict {
	if why := c.subject.NotFor[s.Name]; why != "" {
		return verdict{notFor: why}
	}
	since := time.Now()
	known := verbs()
	for i, step := range s.Steps {
		ctx, cancel := context.WithTimeout(ctx, step.within()+time.Minute)
		err := known[step.Do].do(c, ctx, step)
		cancel()
		if err != nil {
			return verdict{took: time.Since(since), err: fmt.Errorf("step %d, %s: %w", i+1, step.Do, err)}
		}
	}
	return verdict{took: time.Since(since)}
}

// restore makes the node as it was for the next scenario.
func (c *court) restore(ctx context.Context) error {
	if c.stream != nil {
		c.stream.end()
		c.stream = nil
	}
	c.holder = ""
	if err := c.removePods(ctx); err != nil {
		return err
	}
	if err := c.script(ctx, time.Minute, freeScript); err != nil {
		return err
	}
	for slot := range c.unplugged {
		if err := c.Plug(ctx, slot); err != nil {
			return err
		}
	}
	c.unplugged = nil
	if c.waitOffered(ctx, c.devices, time.Minute) == nil {
		return nil
	}
	if err := c.replug(ctx); err != nil {
		return err
	}
	if err := c.script(ctx, time.Minute, "systemctl restart "+c.unit()); err != nil {
		return err
	}
	if err := c.waitOffered(ctx, c.devices, 5*time.Minute); err != nil {
		return fmt.Errorf("the node could not be restored: %w", err)
	}
	return nil
}

// replug takes every device out and puts it back: one that has failed works again after that. Linux ignores a device
// that comes in the second after its slot was switched off (remove_board, drivers/pci/hotplug/pciehp_ctrl.c).
func (c *court) replug(ctx context.Context) error {
	for slot := range c.devices {
		if err := c.Unplug(ctx, slot); err != nil {
			return err
		}
	}
	if err := c.script(ctx, time.Minute, "sleep 3"); err != nil {
		return err
	}
	for slot := range c.devices {
		if err := c.Plug(ctx, slot); err != nil {
			return err
		}
	}
	return nil
}
