// Package stage puts acceld on a guest of the test bed, the way a user would, for the demo and for the end-to-end
// tests. It builds the programs of this tree; it may not know what a scenario checks.
package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage/programs"
	"github.com/acceld/acceld/test/vm/bed"
)

// Kind, Resource and the versions are of the stand-in accelerator.
const (
	Kind     = "qemu-edu"
	Resource = "qemu.org/edu"
	Version  = "1.0.0"
	Version2 = "2.0.0"
	// VersionWrong loads, binds and computes wrongly.
	VersionWrong = "3.0.0"
	// SourceDir is where the definition looks for the driver's source.
	SourceDir = "/usr/src/edu-" + Version
)

// Stage holds the programs that were built from the tree.
type Stage struct {
	root, bin string
	tag       string // of the images
	pushed    string // the registry that has the agent's image
}

// New builds the programs into a directory of its own below dir, or copies them from the folder that
// [programs.Variable] names.
func New(ctx context.Context, dir string) (*Stage, error) {
	root, err := programs.Root(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stage{root: root, bin: filepath.Join(dir, "bin"), tag: "test"}
	if err := os.MkdirAll(s.bin, 0o755); err != nil {
		return nil, err
	}
	built := os.Getenv(programs.Variable)
	if built == "" {
		return s, programs.Build(ctx, root, s.bin)
	}
	return s, os.CopyFS(s.bin, os.DirFS(built))
}

// Program returns the path of a built program: acceld, acceld-hook, edu-check, tree, plainplugin or switches.
func (s *Stage) Program(name string) string {
	switch name { // two packages are named for their place
	case "edu-check":
		name = "check"
	case "tree":
		name = "cmd"
	}
	return filepath.Join(s.bin, name)
}

// File returns a path of the tree.
func (s *Stage) File(name string) string { return filepath.Join(s.root, name) }

// Units installs programs, units and a configuration as a package would. It does not start anything.
func (s *Stage) Units(ctx context.Context, g *bed.Guest, config string) error {
	for _, p := range []string{"acceld", "acceld-hook", "edu-check"} {
		if err := g.Put(ctx, s.Program(p), "/usr/bin/"+p, 0o755); err != nil {
			return err
		}
	}
	units, err := filepath.Glob(s.File("systemd/acceld*.s*"))
	if err != nil {
		return err
	}
	for _, u := range units {
		if err := g.Put(ctx, u, "/usr/lib/systemd/system/"+filepath.Base(u), 0o644); err != nil {
			return err
		}
	}
	if err := g.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(config), 0o644); err != nil {
		return err
	}
	return Must(g.Run(ctx, "systemctl", "daemon-reload"))
}

// Credentials gives the agent under the unit an administrator's credentials, in /etc/acceld/kubeconfig: what the roles
// of the manifests give to a pod together.
func Credentials(ctx context.Context, n *bed.Node) error {
	kubeconfig, err := n.Plane().GuestKubeconfig()
	if err != nil {
		return err
	}
	return n.WriteFile(ctx, "/etc/acceld/kubeconfig", kubeconfig, 0o600)
}

// Enable enables and starts the units.
func (s *Stage) Enable(ctx context.Context, g *bed.Guest) error {
	return Must(g.Run(ctx, "systemctl", "enable", "--now", "acceld.socket", "acceld.service", "acceld-early.service"))
}

// Image pushes the agent's image, once, and returns the name that a pod gives for it.
func (s *Stage) Image(ctx context.Context, b *bed.Bed) (string, error) {
	name := b.GuestRegistry() + "/acceld:" + s.tag
	if s.pushed == b.Registry() {
		return name, nil
	}
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-bin", s.bin, "-push", b.Registry()+"/acceld:"+s.tag, "-insecure",
		"-compression", "1")
	cmd.Dir = s.File("packaging/image")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot make the agent's image: %w\n%s", err, out)
	}
	s.pushed = b.Registry()
	return name, nil
}

// Get asks the agent's endpoint on the guest's loopback, such as "/metrics", and returns the answer and its status.
func Get(ctx context.Context, g *bed.Guest, path string) (string, int, error) {
	a, err := ask(ctx, g, path, http.Header{})
	return string(a.body), a.status, err
}

// held is how many seconds the agent may hold an answer back until something has changed.
const held = 5

// answer is what the endpoint answered; tag is of the machine.
type answer struct {
	status int
	tag    string
	body   []byte
}

func ask(ctx context.Context, g *bed.Guest, path string, header http.Header) (a answer, err error) {
	client := &http.Client{Timeout: (10 + held) * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return g.Dial(ctx, "127.0.0.1:9480")
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return a, err
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.status, a.tag = resp.StatusCode, resp.Header.Get("ETag")
	a.body, err = io.ReadAll(resp.Body)
	return a, err
}

// Machine asks the agent of the guest for its machine.
func Machine(ctx context.Context, g *bed.Guest) (accel.Machine, error) {
	m, _, err := next(ctx, g, "")
	return m, err
}

// next asks for another machine than the one with the tag, and returns its tag. The agent answers when it has one, and
// after a while with a zero machine and the same tag.
func next(ctx context.Context, g *bed.Guest, tag string) (m accel.Machine, newTag string, err error) {
	header := http.Header{}
	if tag != "" {
		header.Set("If-None-Match", tag)
		header.Set("Prefer", fmt.Sprintf("wait=%d", held))
	}
	a, err := ask(ctx, g, "/v1/machine", header)
	switch {
	case err != nil:
		return m, "", err
	case a.status == http.StatusNotModified:
		return m, tag, nil
	case a.status != http.StatusOK:
		return m, "", fmt.Errorf("the agent answered %d: %s", a.status, a.body)
	}
	return m, a.tag, json.Unmarshal(a.body, &m)
}

// WaitMachine waits until the machine satisfies the predicate; what names it. The agent tells when it changed: asking
// over and over would take a tenth of an emulated processor from what is waited for.
func WaitMachine(ctx context.Context, g *bed.Guest, what string, ok func(accel.Machine) bool) (accel.Machine, error) {
	const pause = 200 * time.Millisecond // while no agent answers
	var last accel.Machine
	tag := ""
	for {
		m, now, err := next(ctx, g, tag)
		if err == nil && now != tag {
			if last = m; !m.Taken.IsZero() && ok(m) { // the first one is from before the host was read
				return m, nil
			}
		}
		tag = now
		if err == nil && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("cannot wait for %s: %w; last: %s (%v)", what, ctx.Err(),
				last.Status[Kind].Sentence, err)
		case <-time.After(pause):
		}
	}
}

// InState is a predicate for [WaitMachine].
func InState(state accel.State) func(accel.Machine) bool {
	return func(m accel.Machine) bool { return m.Status[Kind].State == state }
}

// Blocked is a predicate for [WaitMachine].
func Blocked(reason accel.Reason) func(accel.Machine) bool {
	return func(m accel.Machine) bool {
		f := m.Status[Kind].Blocked
		return f != nil && f.Reason == reason
	}
}

// Must makes a command that failed in the guest an error.
func Must(r bed.Result, err error) error {
	if err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("exit status %d: %s%s", r.Status, r.Stdout, r.Stderr)
	}
	return nil
}
