// Command ongpu tries acceld on a machine that has devices of a kind, and writes what it saw as a report that can be
// shared: it has no serial numbers and no names of the machine. `make on-gpu` starts it, as root. It runs an agent with
// a configuration of its own for a while, changes what such an agent changes, and undoes it in the end. Drivers that
// are loaded stay.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
)

func main() {
	t := trial{}
	flag.StringVar(&t.kind, "kind", "nvidia-gpu", "the kind to try")
	flag.StringVar(&t.bin, "bin", "bin", "the directory with acceld and its programs")
	flag.StringVar(&t.driver, "driver", "", "the driver of the kind as in the configuration, such as {version: 535.261.03}")
	flag.DurationVar(&t.patience, "wait", 15*time.Minute, "how long to wait for the kind to be ready")
	out := flag.String("out", "on-gpu.md", "the file of the report")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := t.run(ctx)
	stop()
	if e := os.WriteFile(*out, []byte(t.report()), 0o644); e != nil {
		err = errors.Join(err, e)
	} else {
		fmt.Println("the report is in", *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ongpu:", err)
		os.Exit(1)
	}
}

// trial is one run of an agent.
type trial struct {
	kind, bin, driver string
	patience          time.Duration

	dir      string // of this run
	sections []section
	machine  accel.Machine // as the agent saw it last
	secrets  []string      // what the report leaves out
}

// section is a part of the report: the output of a command, or why there is none.
type section struct{ title, text string }

func (t *trial) note(title, text string) {
	text = cmp.Or(strings.TrimSpace(text), "nothing")
	fmt.Printf("== %s\n%s\n", title, text)
	t.sections = append(t.sections, section{title, text})
}

// run does everything that can be done here. What cannot be done is noted, and is no error unless the devices are not
// ready in the end.
func (t *trial) run(ctx context.Context) (err error) {
	if os.Getuid() != 0 {
		return errors.New("only root may load drivers and read what they show")
	}
	if t.bin, err = filepath.Abs(t.bin); err != nil {
		return err
	}
	if t.dir, err = os.MkdirTemp("", "on-gpu-"); err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	if err := t.configure(); err != nil {
		return err
	}
	t.command(ctx, "the kernel", "uname", "-srm")
	t.command(ctx, "what acceld detects", t.program("acceld"), "detect", "--config", t.config())
	err = t.agent(ctx)
	t.prove(ctx)
	t.note("what is undone", t.output(context.WithoutCancel(ctx), t.program("acceld"), "purge", "--config", t.config()))
	return err
}

func (t *trial) program(name string) string { return filepath.Join(t.bin, name) }
func (t *trial) config() string             { return filepath.Join(t.dir, "config.yaml") }

// configure writes the configuration of an agent that disturbs no other software.
func (t *trial) configure() error {
	text := fmt.Sprintf(`kubernetes: {enabled: "off"}
endpoint: {listen: "", socket: %[1]s/acceld.sock}
runtime: {edit: never, hook: false}
stateDir: %[1]s/state
`, t.dir)
	if t.driver != "" {
		text += fmt.Sprintf("kinds: {%s: {driver: %s}}\n", t.kind, t.driver)
	}
	return os.WriteFile(t.config(), []byte(text), 0o600)
}

// command notes the output of a command.
func (t *trial) command(ctx context.Context, title, name string, args ...string) {
	t.note(title, t.output(ctx, name, args...))
}

// output is what a command says, and how it failed.
func (t *trial) output(ctx context.Context, name string, args ...string) string {
	const longest = time.Minute
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s\n%s: %v", out, filepath.Base(name), err)
	}
	return string(out)
}

// agent runs an agent until the kind is ready and notes what it shows.
func (t *trial) agent(ctx context.Context) error {
	log, err := os.Create(filepath.Join(t.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	agent := exec.Command(t.program("acceld"), "run", "--config", t.config())
	agent.Stdout, agent.Stderr = log, log
	agent.Env = append(os.Environ(), "PATH="+t.bin+":"+os.Getenv("PATH")) // the probe and the proof are its programs
	if err := agent.Start(); err != nil {
		return fmt.Errorf("cannot start the agent: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	began := time.Now()
	err = t.ready(ctx, ended)
	took := time.Since(began)
	t.learn()
	verdict := fmt.Sprintf("ready %.1f s after the start of the agent", took.Seconds())
	if err != nil {
		verdict = err.Error()
	}
	t.note("verdict", verdict)
	t.command(ctx, "acceld status", t.program("acceld"), "status", "--config", t.config())
	metrics := t.output(ctx, "curl", "-sS", "--unix-socket", filepath.Join(t.dir, "acceld.sock"),
		"http://localhost/metrics")
	for _, prefix := range []string{"accelerator_", "gpu_operator_"} {
		t.note("metrics "+prefix+"*", lines(metrics, func(line string) bool { return strings.HasPrefix(line, prefix) }))
	}
	t.note("what containers get", t.spec())
	t.container(ctx)
	if e := agent.Process.Signal(syscall.SIGTERM); e == nil {
		err = errors.Join(err, <-ended)
	}
	text, _ := os.ReadFile(log.Name())
	t.note("the agent's log", lines(string(text), func(line string) bool {
		return strings.Contains(line, "state changed") || strings.Contains(line, "accelerators found") ||
			strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")
	}))
	return err
}

// ready waits until the kind is ready, or stays blocked.
func (t *trial) ready(ctx context.Context, ended chan error) error {
	const blocked = time.Minute
	var since time.Time
	for began := time.Now(); ; {
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("the agent ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
		text, err := exec.CommandContext(ctx, t.program("acceld"), "status", "--config", t.config(), "-o", "json").Output()
		if len(text) == 0 || json.Unmarshal(text, &t.machine) != nil {
			if time.Since(began) > blocked {
				return fmt.Errorf("the agent does not answer: %w", err)
			}
			continue
		}
		s, there := t.machine.Status[t.kind]
		switch {
		case there && s.State == accel.Ready:
			return nil
		case t.machine.Taken.IsZero():
		case !there || s.State == accel.Absent:
			return fmt.Errorf("this machine has no device of kind %q", t.kind)
		case s.Blocked == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > blocked:
			return fmt.Errorf("blocked: %s", s.Sentence)
		}
		if time.Since(began) > t.patience {
			return fmt.Errorf("not ready after %v: %s", t.patience, s.Sentence)
		}
	}
}

// learn notes what the report must leave out.
func (t *trial) learn() {
	if name, err := os.Hostname(); err == nil {
		t.secrets = append(t.secrets, name)
	}
	for _, have := range t.machine.Have {
		for _, a := range have.Accelerators {
			t.secrets = append(t.secrets, a.Serial, a.UUID)
		}
	}
}

// check is the program that shows that a device of the kind computes; nil if the kind has none.
func (t *trial) check() *accel.CheckProgram {
	def := t.machine.Want.Kinds[t.kind]
	if def == nil || def.Check == nil {
		return nil
	}
	return def.Check.Program
}

// proof is the arguments of acceld-prove for a device, by its PCI address; empty means the only one that it sees.
func proof(check *accel.CheckProgram, device string) []string {
	args := []string{"-api", check.API, "-seed", fmt.Sprint(time.Now().UnixNano())}
	if device != "" {
		args = append(args, "-device", device)
	}
	return args
}

// prove lets each device compute through the library of its kind, once more than the agent did, with the time that it
// took.
func (t *trial) prove(ctx context.Context) {
	check := t.check()
	if check == nil {
		t.note("proof", "not done: the kind has no program that computes")
		return
	}
	for _, a := range t.machine.Have[t.kind].Accelerators {
		t.command(ctx, "proof of "+a.Address(), t.program("acceld-prove"), proof(check, a.Address())...)
	}
}

// spec sums up the CDI spec of the kind.
func (t *trial) spec() string {
	file := t.machine.Have[t.kind].Runtime.Spec
	if file == "" {
		return "no CDI spec was written"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// container lets a device compute in a container that has a C library and acceld-prove: the device and all of its user
// space come from what the agent wrote for container runtimes.
func (t *trial) container(ctx context.Context) {
	const title = "a container"
	check, names := t.check(), t.machine.Have[t.kind].Runtime.Devices
	podman, err := exec.LookPath("podman")
	switch {
	case len(names) == 0:
		t.note(title, "not done: no device can be given to one")
		return
	case err != nil:
		t.note(title, "not done: there is no podman")
		return
	case check == nil:
		t.note(title, "not done: the kind has no program that computes")
		return
	}
	root := filepath.Join(t.dir, "root")
	if err := smallRoot(root, t.program("acceld-prove"), "/acceld-prove"); err != nil {
		t.note(title, "not done: "+err.Error())
		return
	}
	args := []string{"run", "--rm", "--network=none", "--device", names[0], "--rootfs", root, "/acceld-prove"}
	t.command(ctx, title, podman, append(args, proof(check, "")...)...)
}

// lines are the lines of a text that are wanted.
func lines(text string, want func(string) bool) string {
	var out []string
	for line := range strings.Lines(text) {
		if want(line) {
			out = append(out, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(out, "\n")
}

// report is the report as Markdown.
func (t *trial) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# acceld with %s\n", t.kind)
	for _, s := range t.sections {
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", s.title, s.text)
	}
	text := b.String()
	for _, secret := range t.secrets {
		if len(secret) > 3 {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}
