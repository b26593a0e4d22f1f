package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// patience bounds one command of a page; the longest builds drivers, on an emulated processor.
const patience = 15 * time.Minute

// lookedAt is how long something that goes on until it is interrupted may take to show anything.
const lookedAt = 90 * time.Second

// endings are the exit statuses beside 0 that the pages give to commands which begin so.
func endings() map[string][]int {
	return map[string][]int{
		"acceld status": {3}, // something is not ready (status.md)
	}
}

// world is where pages are read: a guest, and the desk of whoever reads, with a clone of the repository. It lives as
// long as the scenario; the guest is started by the first chapter that is read.
type world struct {
	t        *testing.T
	o        bed.Options
	chapters []chapter
	n        *bed.Node
	s        *stage.Stage
	pages    map[string][]step
	desk     string
	env      []string
	acceld   string // the program that reads what pages show, where there is no cluster the node's own
	// names are what pages call something, and what it is called here, in turn.
	names []string
	// prepare makes the guest what a reader has before the first page; installed tells whether acceld is there; strip
	// takes it off; ready waits until it is ready.
	prepare   func(w *world)
	installed func(w *world) bool
	strip     func(r *reader)
	ready     func(r *reader)
}

// open starts the guest, unless it runs. It belongs to the scenario: a failure of it ends the chapter too.
func (w *world) open() {
	if w.n != nil {
		return
	}
	n, s := stage.StartNode(w.t, w.o)
	var err error
	w.pages, err = book(s.File("."))
	stage.Check(w.t, err)
	w.desk = filepath.Join(w.t.TempDir(), "acceld")
	stage.Check(w.t, s.Clone(w.t.Context(), w.desk, "v1.0.0"))
	programs := w.t.TempDir()
	// One processor's programs are enough here, and half the time.
	w.env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "ARCHES=amd64")
	if !w.o.NoKubernetes {
		helm, err := s.HelmProgram(w.t.Context())
		stage.Check(w.t, err)
		for name, program := range map[string]string{"helm": helm, "kubectl": n.Program("kubectl")} {
			stage.Check(w.t, os.Symlink(program, filepath.Join(programs, name)))
		}
		w.env = append(w.env, append(s.HelmHome(), "KUBECONFIG="+n.Kubeconfig())...)
	}
	w.n, w.s, w.acceld = n, s, "acceld"
	if !w.o.NoKubernetes {
		w.acceld = s.Program("acceld")
	}
	w.names = []string{
		"PUSH=registry.example.com", "PUSH=" + n.Registry(), // the same registry, as the desk sees it
		"registry.example.com", strings.TrimSuffix(n.Image(""), "/"),
		"registry.example/", n.Image(""),
		"node-7", n.Name(),
	}
	w.prepare(w)
}

// reader reads one chapter.
type reader struct {
	t *testing.T
	*world
	// seen are the steps that were carried out, the last one last.
	seen []step
	// running are what was started in the background.
	running []func()
}

// read reads a chapter from top to bottom.
func (w *world) read(t *testing.T, c chapter) {
	t.Helper()
	w.open()
	r := &reader{t: t, world: w}
	switch there := w.installed(w); {
	case there && c.bare:
		w.strip(r)
	case !there && !c.bare:
		t.Logf("%s takes acceld for granted; first of all what the README says", c.page)
		w.read(t, w.chapters[0])
	}
	if !c.bare {
		w.ready(r)
	}
	defer func() {
		for _, stop := range slices.Backward(r.running) {
			stop()
		}
		if c.after != nil {
			c.after(r)
		}
	}()
	for _, s := range c.of(w.pages, slices.Concat(hostChapters(), clusterChapters())) {
		if why, ok := excused(excuses(), s); ok {
			t.Logf("%s  left out: %s\n    (%s)", s.where(), s.summary(), why)
			continue
		}
		for _, b := range c.before {
			if strings.HasPrefix(s.text, b.begins) {
				b.do(r)
			}
		}
		if s.command() {
			r.command(s)
		} else {
			r.write(s)
		}
		r.seen = append(r.seen, s)
	}
}

// here says a text of a page in the names of this bed.
func (r *reader) here(text string) string {
	for i := 0; i < len(r.names); i += 2 {
		text = strings.ReplaceAll(text, r.names[i], r.names[i+1])
	}
	return text
}

// page returns the YAML of the page, as far as it was read, that has all of these words.
func (r *reader) page(words ...string) string {
	r.t.Helper()
next:
	for _, s := range slices.Backward(r.seen) {
		for _, w := range words {
			if s.command() || !strings.Contains(s.text, w) {
				continue next
			}
		}
		return r.here(s.text)
	}
	r.t.Fatalf("the page has shown nothing with %q", words)
	return ""
}

// command carries out a command of the page.
func (r *reader) command(s step) {
	r.t.Helper()
	where, err := place(s.text)
	stage.Check(r.t, err)
	text := r.here(s.text)
	begin := time.Now()
	kept, background := strings.CutSuffix(text, " &")
	var out string
	if background || strings.Contains(text, " --watch") || strings.Contains(text, " port-forward ") {
		out = r.follow(where, kept, background)
	} else {
		var status int
		out, status = r.run(where, text)
		if status != 0 && !slices.ContainsFunc(endings()[begins(text)], func(e int) bool { return e == status }) {
			r.t.Fatalf("%s: on the %s: %s\nended with status %d:\n%s", s.where(), where, text, status, out)
		}
	}
	r.t.Logf("%s  %s$ %s   (%.0f s)\n%s", s.where(), where, text, time.Since(begin).Seconds(), indented(out))
	if s.output != "" && !slices.Equal(strings.Fields(firstLine(out)), strings.Fields(firstLine(s.output))) {
		r.t.Errorf("%s: the first line is %q, the page shows %q", s.where(), firstLine(out), firstLine(s.output))
	}
}

// begins finds the row of endings that is about a command.
func begins(command string) string {
	for b := range endings() {
		if strings.HasPrefix(command, b) {
			return b
		}
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// indented is the part of an output that a transcript shows.
func indented(out string) string {
	const most = 40
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) > most {
		lines = append(lines[:most:most], "…")
	}
	return "    " + strings.Join(lines, "\n    ")
}

// argv is a command of a page for a shell of the node: root needs no sudo.
func argv(text string) []string {
	return []string{
		"env", "-C", "/root", "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "bash", "-o", "pipefail",
		"-c", "sudo() { \"$@\"; }\n" + text,
	}
}

// run carries out a command to its end.
func (r *reader) run(where, text string) (out string, status int) {
	r.t.Helper()
	ctx := stage.Within(r.t, patience)
	if where == onNode {
		res, err := r.n.Run(ctx, argv(text)...)
		stage.Check(r.t, err)
		return res.Stdout + res.Stderr, res.Status
	}
	cmd := r.typed(text)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	stage.Check(r.t, cmd.Start())
	defer context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return all.String(), cmd.ProcessState.ExitCode()
}

// typed is a command at the desk, in a process group of its own.
func (r *reader) typed(text string) *exec.Cmd {
	cmd := exec.Command("bash", "-o", "pipefail", "-c", text)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = r.desk, r.env, &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// shown is what somebody has said so far.
type shown struct {
	mu    sync.Mutex
	text  bytes.Buffer
	first chan struct{}
	once  sync.Once
}

func (s *shown) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.once.Do(func() { close(s.first) })
	return s.text.Write(p)
}

func (s *shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// follow starts a command that goes on until it is interrupted, sees that it shows something, and interrupts it: at
// once, or, when it is kept, at the end of the page.
func (r *reader) follow(where, text string, keep bool) string {
	r.t.Helper()
	said := &shown{first: make(chan struct{})}
	var interrupt func()
	var ended <-chan struct{}
	if where == onNode {
		session, err := r.n.Start(r.t.Context(), said, said, argv("exec "+text)...)
		stage.Check(r.t, err)
		interrupt, ended = func() { _ = session.Signal("INT") }, session.Done()
	} else {
		cmd := r.typed("exec " + text)
		cmd.Stdout, cmd.Stderr = said, said
		stage.Check(r.t, cmd.Start())
		done := make(chan struct{})
		go func() { defer close(done); _ = cmd.Wait() }()
		interrupt, ended = func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }, done
	}
	stop := func() {
		interrupt()
		select {
		case <-ended:
		case <-time.After(lookedAt):
			r.t.Errorf("%s does not end when it is interrupted", text)
		}
	}
	select {
	case <-said.first:
	case <-time.After(lookedAt):
		stop()
		r.t.Fatalf("on the %s: %s shows nothing", where, text)
	case <-ended:
		r.t.Fatalf("on the %s: %s ended by itself: %s", where, text, said)
	}
	if keep {
		r.running = append(r.running, stop)
	} else {
		stop()
	}
	return said.String()
}

// partitioned is a definition of which the last field is left to be said.
const partitioned = `kind: example-npu
resource: example.com/npu
match: [{vendor: "f00d", device: "0100"}]
driver: {binds: npu, modules: [{name: npu}]}
partitions:
`

// write does with a block of YAML what a reader does: a file that is named is written, the rest is given to the program
// that it is for, which must have nothing to say against it.
func (r *reader) write(s step) {
	r.t.Helper()
	text := r.here(s.text)
	if s.use() == usePartitions {
		text = partitioned + "  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
	where, dir := onNode, "/root"
	if !r.o.NoKubernetes {
		where, dir = atDesk, r.desk
	}
	name := s.named()
	if name == "" {
		name = "block.yaml"
	}
	file := filepath.Join(dir, name)
	if where == onNode {
		stage.Check(r.t, r.n.WriteFile(stage.Within(r.t, soon), file, []byte(text), 0o644))
	} else {
		stage.Check(r.t, os.MkdirAll(filepath.Dir(file), 0o755))
		stage.Check(r.t, os.WriteFile(file, []byte(text), 0o644))
	}
	command := map[string]string{
		useConfig:     r.acceld + " definition list --config " + file,
		useDefinition: r.acceld + " definition validate " + file,
		usePartitions: r.acceld + " definition validate " + file,
		useObject:     "kubectl apply --dry-run=server -f " + file,
		useFile:       "true",
	}[s.use()]
	out, status := r.run(where, command)
	r.t.Logf("%s  %s, %s\n    %s$ %s\n%s", s.where(), s.summary(), s.use(), where, command, indented(out))
	if status != 0 {
		r.t.Errorf("%s: what the page shows is refused (status %d):\n%s\n%s", s.where(), status, out, text)
	}
}

// setUp carries out, on the node, what a page takes for granted.
func (r *reader) setUp(script string, args ...string) string {
	r.t.Helper()
	return stage.Sh(r.t, r.n.Guest, 10*time.Minute, script, args...)
}

// tidy is setUp for what follows a page that may have failed: it goes on whatever happens.
func (r *reader) tidy(script string, args ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), 10*time.Minute)
	defer cancel()
	if err := stage.Must(r.n.Sh(ctx, script, args...)); err != nil {
		r.t.Logf("left behind: %v", err)
	}
}

// must carries out, at the desk, what a page takes for granted.
func (r *reader) must(command string) string {
	r.t.Helper()
	out, status := r.run(atDesk, command)
	if status != 0 {
		r.t.Fatalf("%s: status %d\n%s", command, status, out)
	}
	return out
}

// carry copies a file of the desk to the node, under the same name in the home directory of root.
func (r *reader) carry(pattern string) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.desk, pattern))
	stage.Check(r.t, err)
	if len(files) == 0 {
		r.t.Fatalf("the desk has no %q", pattern)
	}
	for _, f := range files {
		name, err := filepath.Rel(r.desk, f)
		stage.Check(r.t, err)
		stage.Check(r.t, r.n.Put(stage.Within(r.t, soon), f, filepath.Join("/root", name), 0o600))
	}
}
