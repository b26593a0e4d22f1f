package runtime

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime/engine"
)

// daemon is a container runtime that can be restarted. It answers on its socket with the pods that it has.
type daemon struct {
	cri.UnimplementedRuntimeServiceServer
	*testing.T
	root string
	e    accel.ContainerEngine

	mu       sync.Mutex
	server   *grpc.Server
	listener net.Listener
	pods     []string
	creating bool
	listed   func(d *daemon) // called after it has listed its pods, with its lock held
	version  string          // its answer to a version request
	read     string          // its files, as they were when it started
	calls    []string
	// spoil is called before each start; after an error nothing answers.
	spoil func() error
}

func newDaemon(t *testing.T, name, config, text string) *daemon {
	t.Helper()
	root, err := os.MkdirTemp("", "engine") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	d := &daemon{T: t, root: root, pods: []string{"a", "b"}, spoil: func() error {
		return nil
	}, e: accel.ContainerEngine{
		Name: name, Endpoint: "unix:///run/s", Config: config, Unit: name + ".service", PID: 1000,
		Started: time.Now().Add(-time.Hour),
	}}
	if name == "containerd" {
		d.version = "v1.7.27"
	}
	for file, text := range map[string]string{
		config: text, "/proc/1000/cmdline": "/usr/bin/" + name + "\x00",
		"/run/x": "",
	} {
		p := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	d.start()
	t.Cleanup(d.stop)
	return d
}

// files are what it reads when it starts: its configuration, and the file that acceld adds.
func (d *daemon) files() string { return d.file(d.e.Config) + d.file("/etc/conf.d/60-acceld.toml") }

func (d *daemon) start() {
	d.read = d.files()
	l, err := net.Listen("unix", filepath.Join(d.root, "run/s"))
	if err != nil {
		d.Error(err)
		return
	}
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, d)
	go func() { _ = s.Serve(l) }() // ends with the server
	d.server, d.listener = s, l
}

func (d *daemon) stop() {
	d.server.Stop()
	_ = d.listener.Close() // open if the server was not serving yet
}

func (d *daemon) call(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, what)
}

func (d *daemon) restart(context.Context, string) error {
	d.call("restart")
	d.stop()
	d.e.PID++
	if err := os.Rename(filepath.Join(d.root, "proc", strconv.Itoa(d.e.PID-1)),
		filepath.Join(d.root, "proc", strconv.Itoa(d.e.PID))); err != nil {
		return err
	}
	d.e.Started = time.Now()
	if err := d.spoil(); err != nil {
		return err
	}
	d.start()
	return nil
}

func (d *daemon) reload(context.Context, string) error {
	d.call("reload")
	return nil
}

func (d *daemon) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{{
		Type:   "RuntimeReady",
		Status: true,
	}}}}, nil
}

func (d *daemon) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: d.e.Name, RuntimeVersion: d.version}, nil
}

func (d *daemon) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var r cri.ListPodSandboxResponse
	for _, id := range d.pods {
		r.Items = append(r.Items, &cri.PodSandbox{Id: id, State: cri.PodSandboxState_SANDBOX_READY})
	}
	if d.listed != nil {
		d.listed(d)
	}
	return &r, nil
}

func (d *daemon) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var r cri.ListContainersResponse
	if d.creating {
		r.Containers = []*cri.Container{{Id: "c", State: cri.ContainerState_CONTAINER_CREATED}}
	}
	return &r, nil
}

// agent is a Runtime on the daemon's host.
func (d *daemon) agent(restart Restart) *Runtime {
	d.Helper()
	h, err := host.New(d.root)
	if err != nil {
		d.Fatal(err)
	}
	r := New(h, Options{
		Engine: d.e, Look: func() accel.ContainerEngine { return d.e }, Edit: engine.EditFull, Restart: restart,
		Units: Units{Reload: d.reload, Restart: d.restart, FirstError: func(context.Context, string, time.Time) string {
			return "level=fatal no"
		}},
	})
	r.client.live = func() bool { return true }
	const short = 10 * time.Millisecond
	r.restart.patience = patience{comeback: 500 * time.Millisecond, settle: short, again: short}
	return r
}

func (d *daemon) file(name string) string {
	b, err := os.ReadFile(filepath.Join(d.root, name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

const old = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"x\"\n"

func reason(p *accel.Problem) accel.Reason {
	if p == nil {
		return ""
	}
	return p.Reason
}

func TestRestartNever(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	rep, p := d.agent(RestartNever).ApplyConfig(t.Context())
	if reason(p) != accel.RuntimeRestartNeeded || len(rep.Change.Files) != 1 ||
		!strings.Contains(p.Message, "containerd.service") {
		t.Fatalf("%v, %+v", p, rep.Change)
	}
	after := d.file("/etc/c.toml")
	if rep, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded ||
		len(rep.Change.Files) != 0 {
		t.Errorf("a second apply: %v, %s", p, rep.Diff)
	}
	if after != d.file("/etc/c.toml") || d.calls != nil {
		t.Errorf("a second apply: %q", d.calls)
	}
	if err := d.restart(t.Context(), ""); err != nil { // by somebody else
		t.Fatal(err)
	}
	if _, p := d.agent(RestartNever).CheckConfig(); p != nil {
		t.Errorf("after the restart: %v", p)
	}
}

// An agent outlives the container runtime: a change is for the daemon that runs now.
func TestChangeAfterRestart(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	r := d.agent(RestartNever)
	if err := d.restart(t.Context(), ""); err != nil { // by somebody else
		t.Fatal(err)
	}
	if _, p := r.ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
		t.Errorf("the running daemon has not read the change: got %v", p)
	}
}

// A runtime that does not read the files makes no use of right ones. What somebody writes into its configuration has
// no effect before its next start.
func TestUnread(t *testing.T) {
	const file, offers = "/etc/c.toml", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  enable_cdi = true\n"
	d := newDaemon(t, "containerd", file, old)
	r := d.agent(RestartNever)
	def := &accel.Definition{Kind: "qemu-edu", Resource: "qemu.org/edu"}
	accs := []accel.Accelerator{{
		ID: "0000:01:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240}},
		Health: accel.Health{State: accel.Healthy},
	}}
	for _, c := range []struct {
		config  string
		restart bool
		want    accel.Reason
	}{
		{old, false, accel.RuntimeMissingCDI},
		{"[", false, accel.RuntimeConfigInvalid},
		{offers, true, ""},
		{"[", false, ""},
		{old, false, ""},
		{old, true, accel.RuntimeMissingCDI},
	} {
		if err := os.WriteFile(filepath.Join(d.root, file), []byte(c.config), 0o644); err != nil {
			t.Fatal(err)
		}
		if c.restart {
			if err := d.restart(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		have, p := r.Check(def, accs, accel.Want{CDI: true})
		if reason(have.NotHonored) != c.want || reason(p) != c.want {
			t.Errorf("%q, restarted: %v: unread %v, problem %v; want %q", c.config, c.restart, have.NotHonored, p,
				c.want)
		}
	}
	if _, p := r.ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
		t.Fatal(p)
	}
	if have, p := r.Apply(def, accs, accel.Want{CDI: true}); reason(p) != accel.RuntimeRestartNeeded || !have.Applied ||
		p != have.NotHonored {
		t.Errorf("while the change waits: %+v, %v", have, p)
	}
}

// A program that was built without modules reports at most its major version; the daemon reports all of it.
func TestVersionIsAsked(t *testing.T) {
	const on = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  enable_cdi = true\n"
	for _, c := range []struct {
		program, says, config string
		want                  accel.Reason
		message               string
	}{
		{"", "v2.1.4", old, "", ""},
		{"", "", old, accel.RuntimeRestartNeeded, ""},
		{
			"1", "1.6.20~ds1", on, accel.RuntimeMissingCDI,
			"containerd 1.6.20~ds1 does not read CDI specs, whatever its configuration: versions from 1.7.2 do",
		},
		{"1", "v1.7.24-0ubuntu1", on, "", ""},
		{"1.7.1", "1.7.27", on, accel.RuntimeMissingCDI, ""},
	} {
		d := newDaemon(t, "containerd", "/etc/c.toml", c.config)
		d.e.Version, d.version = c.program, c.says
		if _, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != c.want || c.message != "" &&
			p.Message != c.message {
			t.Errorf("program %q, daemon %q: %v", c.program, c.says, p)
		}
	}
}

// TestVersionIsNotKnown: a runtime whose version nobody tells is not said to read specs.
func TestVersionIsNotKnown(t *testing.T) {
	const on = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  enable_cdi = true\n"
	for _, says := range []string{"", "1", "1.\x1b[2J"} {
		d := newDaemon(t, "containerd", "/etc/c.toml", on)
		d.e.Version, d.version = "1", says
		r := d.agent(RestartNever)
		rep, p := r.ApplyConfig(t.Context())
		if p != nil || rep.Offers || len(rep.Change.Files) > 0 {
			t.Errorf("%q: %v, offers %t, %s", says, p, rep.Offers, rep.Diff)
		}
		def := &accel.Definition{Kind: "qemu-edu", Resource: "qemu.org/edu"}
		accs := []accel.Accelerator{{
			ID: "0000:01:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240}},
			Health: accel.Health{State: accel.Healthy},
		}}
		if have, _ := r.Check(def, accs, accel.Want{CDI: true}); reason(have.NotHonored) != accel.RuntimeMissingCDI ||
			!strings.Contains(have.NotHonored.Message, "it is not known whether containerd reads CDI specs") {
			t.Errorf("%q: %v", says, have.NotHonored)
		}
	}
}

// k0sConfig is a file that k0s has written, for a containerd that does not read specs.
const k0sConfig = "# k0s_managed=true\nversion = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  enable_cdi = false\n"

// k0s is a node on which k0s restarts containerd a while after a drop-in was written, unless it is an old one.
func k0s(t *testing.T, restart Restart, watches bool) (*daemon, *Runtime) {
	t.Helper()
	d := newDaemon(t, "containerd", "/etc/k0s/containerd.toml", k0sConfig)
	d.e.Layout, d.e.Unit = "k0s", "k0sworker.service"
	r := d.agent(restart)
	if watches {
		d.watched(r)
	}
	return d, r
}

// watched restarts the daemon at the third look at it, as its distribution does after a change.
func (d *daemon) watched(r *Runtime) {
	looks := 0
	r.restart.look = func() accel.ContainerEngine {
		if looks++; looks == 3 {
			_ = d.restart(d.Context(), "") // its error is what the daemon dies of
		}
		return d.e
	}
}

const k0sDropin = "/etc/k0s/containerd.d/60-acceld.toml"

// TestDropinRestarts: k0s restarts containerd when a drop-in appears. So that drop-in is not written where nothing may
// be restarted, and where something may, nothing else is.
func TestDropinRestarts(t *testing.T) {
	var d *daemon
	_, r := k0s(t, RestartNever, true)
	for range 2 {
		_, p := r.ApplyConfig(t.Context())
		if reason(p) != accel.RuntimeMissingCDI || !strings.Contains(p.Message, k0sDropin) ||
			!strings.Contains(p.Message, "k0s restarts it as soon as that is there") || r.host.Exists(k0sDropin) {
			t.Errorf("never: %v, written: %t", p, r.host.Exists(k0sDropin))
		}
	}
	for _, restart := range []Restart{RestartIdle, RestartNow} {
		d, r = k0s(t, restart, true)
		if rep, p := r.ApplyConfig(t.Context()); p != nil || !rep.Offers || len(d.calls) != 1 {
			t.Errorf("%s: %v, offers %t, calls %q", restart, p, rep.Offers, d.calls)
		}
	}
	d, r = k0s(t, RestartIdle, true)
	d.creating = true
	if _, p := r.ApplyConfig(t.Context()); reason(p) != accel.RuntimeMissingCDI || r.host.Exists(k0sDropin) {
		t.Errorf("while a container is created: %v, written: %t", p, r.host.Exists(k0sDropin))
	}
}

// TestDropinRestartFails: if containerd does not come back, the drop-in goes again, and k0s restarts it once more.
func TestDropinRestartFails(t *testing.T) {
	d, r := k0s(t, RestartNow, true)
	d.spoil = func() error { return errors.New("dead") }
	if _, p := r.ApplyConfig(t.Context()); reason(p) != accel.RuntimeDown || r.host.Exists(k0sDropin) ||
		len(d.calls) != 1 {
		t.Errorf("%v, calls %q, still there: %t", p, d.calls, r.host.Exists(k0sDropin))
	}
}

// TestPurgeOfADropin: k0s restarts containerd also when the drop-in goes, under every policy.
func TestPurgeOfADropin(t *testing.T) {
	d, r := k0s(t, RestartNow, true)
	if _, p := r.ApplyConfig(t.Context()); p != nil {
		t.Fatal(p)
	}
	d.calls = nil
	r = d.agent(RestartNever)
	d.watched(r)
	if p := r.BeforePurge([]string{k0sDropin}); p != nil {
		t.Fatal(p)
	}
	if _, err := r.ledger.Undo(ledger.UndoOptions{}); err != nil {
		t.Fatal(err)
	}
	if p := r.AfterPurge(t.Context()); p != nil || len(d.calls) != 1 || r.host.Exists(restartFile) {
		t.Errorf("%v, calls %q, still noted: %t", p, d.calls, r.host.Exists(restartFile))
	}
}

// TestDropinOfAnOldK0s: one that does not watch its drop-ins must be restarted like any other.
func TestDropinOfAnOldK0s(t *testing.T) {
	d, r := k0s(t, RestartNow, false)
	if _, p := r.ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded || len(d.calls) != 0 {
		t.Fatalf("%v, calls %q", p, d.calls)
	}
	if _, p := r.ApplyConfig(t.Context()); p != nil || len(d.calls) != 1 {
		t.Errorf("the next time: %v, calls %q", p, d.calls)
	}
}

// plain is a configuration for which two files must change: a line in it, and a file that the line imports.
const plain = "version = 2\n[debug]\n  level = \"info\"\n"

// told calls a function with each log line as it is written and the file that the line is about, so that a test can
// act in the middle of a call.
type told func(message, file string)

func (told) Enabled(context.Context, slog.Level) bool { return true }
func (f told) WithAttrs([]slog.Attr) slog.Handler     { return f }
func (f told) WithGroup(string) slog.Handler          { return f }
func (f told) Handle(_ context.Context, r slog.Record) error {
	file := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "path" {
			file = a.Value.String()
		}
		return true
	})
	f(r.Message, file)
	return nil
}

// TestKilledInAChange: wherever the agent is killed during a change of the configuration, the next agent knows
// whether the daemon has read its files, and restarts it if it has not.
func TestKilledInAChange(t *testing.T) {
	type killed struct{}
	for n := 0; ; n++ {
		d := newDaemon(t, "containerd", "/etc/c.toml", plain)
		r, lines := d.agent(RestartNow), 0
		r.log = slog.New(told(func(string, string) {
			if lines++; lines > n {
				panic(killed{})
			}
		}))
		dead := func() (dead bool) {
			defer func() { dead = recover() == killed{} }()
			if _, p := r.ApplyConfig(t.Context()); p != nil {
				t.Fatal(p)
			}
			return false
		}()
		_, p := d.agent(RestartNever).ApplyConfig(t.Context())
		if unread := d.read != d.files(); p != nil && reason(p) != accel.RuntimeRestartNeeded || unread != (p != nil) {
			t.Errorf("killed after %d lines: that the daemon has to read its files is %t; the next agent says %v", n,
				unread, p)
		}
		if _, p := d.agent(RestartNow).ApplyConfig(t.Context()); p != nil || d.read != d.files() {
			t.Errorf("killed after %d lines: %v; the daemon has read\n%s\nnot\n%s", n, p, d.read, d.files())
		}
		if !dead {
			if n < 4 { // the note, two files, the restart
				t.Errorf("only %d lines: nothing was tested", n)
			}
			return
		}
	}
}

// TestKilledInARestart: if the agent is killed while the daemon is down, the next agent waits for it, and reverts the
// change if it does not come back.
func TestKilledInARestart(t *testing.T) {
	type killed struct{}
	for name, fails := range map[string]bool{"it comes back": false, "it stays down": true} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, "containerd", "/etc/c.toml", old)
			r := d.agent(RestartNow)
			r.restart.units.Restart = func(ctx context.Context, unit string) error {
				d.spoil = func() error {
					if fails {
						return errors.New("the job ended as \"failed\"")
					}
					return nil
				}
				_ = d.restart(ctx, unit) // nobody sees its error
				panic(killed{})
			}
			func() {
				defer func() {
					if recover() != (killed{}) {
						t.Error("the agent was not killed")
					}
				}()
				_, p := r.ApplyConfig(t.Context())
				t.Error(p)
			}()
			saved := d.e
			d.spoil = func() error { return nil }
			if fails {
				d.e.PID, d.e.Unit, d.e.Endpoint = 0, "", "" // as it is found when it does not run
			}
			r = d.agent(RestartNow)
			r.restart.units.Restart = func(ctx context.Context, unit string) error {
				d.e = saved
				return d.restart(ctx, unit)
			}
			if _, p := r.CheckConfig(); reason(p) != accel.RuntimeRestartNeeded ||
				!strings.Contains(p.Message, "containerd.service") {
				t.Errorf("before anybody has looked: %v", p)
			}
			want, calls := accel.Reason(""), []string{"restart"}
			if fails {
				want, calls = accel.RuntimeDown, []string{"restart", "restart"}
			}
			if _, p := r.ApplyConfig(t.Context()); reason(p) != want {
				t.Errorf("got %v, want %q", p, want)
			}
			if diff := cmp.Diff(calls, d.calls); diff != "" || d.read != d.files() ||
				(d.file("/etc/c.toml") == old) != fails {
				t.Errorf("%s, and the daemon has read\n%s\nof\n%s", diff, d.read, d.files())
			}
			if _, p := d.agent(RestartNow).CheckConfig(); p != nil {
				t.Errorf("afterwards: %v", p)
			}
		})
	}
}

// TestSecondFileFails: if the second file of a change cannot be written, the change is reverted, and nothing waits
// for a restart.
func TestSecondFileFails(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", plain)
	r := d.agent(RestartNow)
	config, aside := filepath.Join(d.root, "etc/c.toml"), filepath.Join(d.root, "aside")
	first := false
	r.log = slog.New(told(func(_, file string) {
		if file == "/etc/conf.d/60-acceld.toml" && !first {
			first = true
			// a directory in the way cannot be replaced by a rename
			if err := errors.Join(os.Rename(config, aside), os.Mkdir(config, 0o755)); err != nil {
				t.Error(err)
			}
		}
	}))
	rep, p := r.ApplyConfig(t.Context())
	if p == nil || reason(p) == accel.RuntimeRestartNeeded || len(rep.Change.Files) != 2 || !first {
		t.Fatalf("%v, %+v", p, rep.Change)
	}
	if err := errors.Join(os.Remove(config), os.Rename(aside, config)); err != nil {
		t.Fatal(err)
	}
	if d.files() != d.read || d.calls != nil {
		t.Errorf("half a change is left, after %q:\n%s", d.calls, d.files())
	}
	if _, err := os.Stat(filepath.Join(d.root, restartFile)); err == nil {
		t.Error("a restart is noted for nothing")
	}
	if _, p := d.agent(RestartNow).ApplyConfig(t.Context()); p != nil || d.read != d.files() {
		t.Errorf("when it can be written: %v", p)
	}
}

func TestRestartNow(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	rep, p := d.agent(RestartNow).ApplyConfig(t.Context())
	if p != nil || !rep.Offers {
		t.Fatalf("%v", p)
	}
	if diff := cmp.Diff([]string{"restart"}, d.calls); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(d.root, restartFile)); err == nil {
		t.Error("the restart is still noted")
	}
}

func TestRestartIdle(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	d.creating = true
	if _, p := d.agent(RestartIdle).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded ||
		d.calls != nil {
		t.Fatalf("while a container is created: %v, %q", p, d.calls)
	}
	d.creating = false
	if _, p := d.agent(RestartIdle).ApplyConfig(t.Context()); p != nil || len(d.calls) != 1 {
		t.Fatalf("when idle: %v, %q", p, d.calls)
	}
}

// TestRestartIdleLooksTwice: the second look sees what changed after the first, and the restart waits.
func TestRestartIdleLooksTwice(t *testing.T) {
	for name, c := range map[string]struct {
		listing  int // of the pods, after which it changes
		change   func(*daemon)
		idle     bool
		creating bool // a container, at the first look
	}{
		"a pod comes":                     {1, func(d *daemon) { d.pods = []string{"a", "b", "c"} }, false, false},
		"a pod ends":                      {1, func(d *daemon) { d.pods = []string{"a"} }, false, false},
		"one pod takes the other's place": {1, func(d *daemon) { d.pods = []string{"a", "c"} }, false, false},
		"a container is created":          {2, func(d *daemon) { d.creating = true }, false, false},
		"only their order changes":        {1, func(d *daemon) { d.pods = []string{"b", "a"} }, true, false},
		"a container has been created":    {2, func(d *daemon) { d.creating = false }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, "containerd", "/etc/c.toml", old)
			d.creating = c.creating
			looks := 0
			d.listed = func(d *daemon) {
				if looks++; looks == c.listing {
					c.change(d)
				}
			}
			_, p := d.agent(RestartIdle).ApplyConfig(t.Context())
			if c.idle {
				if p != nil || len(d.calls) != 1 {
					t.Errorf("%v, %q", p, d.calls)
				}
				return
			}
			if reason(p) != accel.RuntimeRestartNeeded || d.calls != nil {
				t.Errorf("%v, %q", p, d.calls)
			}
			d.listed, d.creating = nil, false
			if _, p := d.agent(RestartIdle).ApplyConfig(t.Context()); p != nil || len(d.calls) != 1 {
				t.Errorf("when it is idle: %v, %q", p, d.calls)
			}
		})
	}
}

// CRI-O reads its CDI directories again at a reload. Every policy allows that, unless the reload would make it
// forget an option on its command line. Also, the directory of drop-ins must have existed when it started.
func TestReloadSuffices(t *testing.T) {
	for _, c := range []struct {
		args    string
		dropins bool
		want    string
	}{{"", true, "reload"}, {"", false, ""}, {"--log-level=debug\x00", true, ""}} {
		d := newDaemon(t, "cri-o", "/etc/crio/crio.conf", "[crio.runtime]\ncdi_spec_dirs = [\"/etc/cdi\"]\n")
		if err := os.WriteFile(filepath.Join(d.root, "proc/1000/cmdline"), []byte("crio\x00"+c.args),
			0o644); err != nil {
			t.Fatal(err)
		}
		if c.dropins {
			if err := os.Mkdir(filepath.Join(d.root, "etc/crio/crio.conf.d"), 0o755); err != nil {
				t.Fatal(err)
			}
			d.e.Started = time.Now().Add(time.Millisecond)
		}
		_, p := d.agent(RestartNever).ApplyConfig(t.Context())
		if got := strings.Join(d.calls, " "); got != c.want || (p == nil) != (c.want == "reload") {
			t.Errorf("with %+v: %v, %q", c, p, got)
		}
	}
}

func TestRollBack(t *testing.T) {
	for name, spoil := range map[string]func(d *daemon, starts *int) func() error{
		"the job fails": func(_ *daemon, starts *int) func() error {
			return func() error {
				if *starts++; *starts == 1 {
					return errors.New("the job ended as \"failed\"")
				}
				return nil
			}
		},
		"a pod is lost": func(d *daemon, starts *int) func() error {
			return func() error {
				*starts++
				d.mu.Lock()
				defer d.mu.Unlock()
				d.pods = []string{"a", "b"}[:min(*starts, 2)]
				return nil
			}
		},
	} {
		for _, before := range []Restart{RestartNow, RestartNever} { // in one call, or after an earlier one
			t.Run(name+" "+string(before), func(t *testing.T) {
				d := newDaemon(t, "containerd", "/etc/c.toml", old)
				starts := 0
				d.spoil = spoil(d, &starts)
				if before == RestartNever {
					if _, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
						t.Fatal(p)
					}
				}
				_, p := d.agent(RestartNow).ApplyConfig(t.Context())
				if reason(p) != accel.RuntimeDown {
					t.Fatalf("got %v", p)
				}
				if diff := cmp.Diff([]string{
					"its first error: level=fatal no",
					"every file was given its bytes back, and it runs again",
				}, p.Tried); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(old, d.file("/etc/c.toml")); diff != "" {
					t.Errorf("the file:\n%s", diff)
				}
				// No agent tries it again, not even a new one. A person may.
				if _, p := d.agent(RestartNow).ApplyConfig(t.Context()); reason(p) != accel.RuntimeDown || starts != 2 {
					t.Errorf("again: %v after %d starts", p, starts)
				}
				r := d.agent(RestartNow)
				r.restart.retry = true
				if _, p := r.ApplyConfig(t.Context()); p != nil || starts != 3 {
					t.Errorf("asked for: %v after %d starts", p, starts)
				}
			})
		}
	}
}

// TestRollBackOfAReload: if the policy allows no restart, there is none after a reload that failed either.
func TestRollBackOfAReload(t *testing.T) {
	d := newDaemon(t, "cri-o", "/etc/crio/crio.conf", "[crio.runtime]\ncdi_spec_dirs = [\"/etc/cdi\"]\n")
	if err := os.Mkdir(filepath.Join(d.root, "etc/crio/crio.conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.e.Started = time.Now().Add(time.Millisecond)
	r := d.agent(RestartNever)
	r.restart.units.Reload = func(ctx context.Context, unit string) error {
		if err := d.reload(ctx, unit); err != nil || len(d.calls) > 1 {
			return err
		}
		return errors.New("the job ended as \"failed\"")
	}
	_, p := r.ApplyConfig(t.Context())
	if reason(p) != accel.RuntimeDown || !strings.Contains(strings.Join(p.Tried, "\n"), "and it runs again") {
		t.Fatalf("got %v", p)
	}
	if diff := cmp.Diff([]string{"reload", "reload"}, d.calls); diff != "" {
		t.Error(diff)
	}
	if left, err := os.ReadDir(filepath.Join(d.root, "etc/crio/crio.conf.d")); err != nil || len(left) > 0 {
		t.Errorf("the drop-in is left: %v, %v", left, err)
	}
}

// TestRollBackOfAnEarlierCall: the change of an earlier call is undone even if a link is in the path of the file. A
// file that somebody has changed since is not reported as restored.
func TestRollBackOfAnEarlierCall(t *testing.T) {
	for name, changed := range map[string]bool{"a link in its directory": false, "changed since": true} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, "containerd", "/etc/c.toml", old)
			if err := os.Symlink("etc", filepath.Join(d.root, "conf")); err != nil {
				t.Fatal(err)
			}
			d.e.Config = "/conf/c.toml"
			if _, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
				t.Fatal(p)
			}
			want, restored := old, true
			if changed {
				want, restored = d.file("/etc/c.toml")+"# mine\n", false
				if err := os.WriteFile(filepath.Join(d.root, "etc/c.toml"), []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			starts := 0
			d.spoil = func() error {
				if starts++; starts == 1 {
					return errors.New("the job ended as \"failed\"")
				}
				return nil
			}
			_, p := d.agent(RestartNow).ApplyConfig(t.Context())
			if reason(p) != accel.RuntimeDown {
				t.Fatalf("got %v", p)
			}
			if diff := cmp.Diff(want, d.file("/etc/c.toml")); diff != "" {
				t.Errorf("the file:\n%s", diff)
			}
			if strings.Contains(strings.Join(p.Tried, "\n"), "every file was given its bytes back") != restored {
				t.Errorf("tried %q", p.Tried)
			}
		})
	}
}

// TestRollBackAfterTimeout: the end of the call's context ends the restart, but not the roll-back.
func TestRollBackAfterTimeout(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	r, starts := d.agent(RestartNow), 0
	r.restart.units.Restart = func(ctx context.Context, unit string) error {
		if starts++; starts == 1 {
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return d.restart(ctx, unit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, p := r.ApplyConfig(ctx)
	if reason(p) != accel.RuntimeDown || !strings.Contains(strings.Join(p.Tried, "\n"), "and it runs again") {
		t.Fatalf("%v, after %d starts", p, starts)
	}
	if diff := cmp.Diff(old, d.file("/etc/c.toml")); diff != "" || d.read != d.files() {
		t.Errorf("the file:\n%s, and the daemon has read\n%s", diff, d.read)
	}
}

// TestCheckDuringRestart: what a Check finds while the runtime is down changes nothing about the roll-back.
func TestCheckDuringRestart(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	r := d.agent(RestartNow)
	var units []string
	saved := d.e
	r.restart.units.Restart = func(ctx context.Context, unit string) error {
		units, d.e = append(units, unit), saved
		return d.restart(ctx, unit)
	}
	d.spoil = func() error {
		if len(units) > 1 {
			return nil
		}
		saved = d.e
		d.e.PID, d.e.Unit = 0, ""
		_, _ = r.CheckConfig() // what it says is about the moment
		return errors.New("the job ended as \"failed\"")
	}
	_, p := r.ApplyConfig(t.Context())
	if reason(p) != accel.RuntimeDown || d.read != d.files() {
		t.Errorf("%v, the daemon has read\n%s", p, d.read)
	}
	if diff := cmp.Diff([]string{"containerd.service", "containerd.service"}, units); diff != "" {
		t.Error(diff)
	}
}

// A hooks directory that was created again is no longer read, and one broken file makes CRI-O's next start fail.
// Both are reported; nothing is changed.
func TestHookProblems(t *testing.T) {
	d := newDaemon(t, "cri-o", "/etc/crio/crio.conf", "")
	dir := filepath.Join(d.root, defaultHookDir)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "99-other.json"),
		[]byte(`{"version":`), 0o644)); err != nil {
		t.Fatal(err)
	}
	rep, p := d.agent(RestartNever).CheckConfig()
	if p != nil {
		t.Fatal(p)
	}
	all := strings.Join(rep.Hooks, "\n")
	if !strings.Contains(all, "99-other.json") || !strings.Contains(all, "will not start again") {
		t.Errorf("the broken file is not named: %s", all)
	}
	if h, err := host.New(d.root); err == nil && !h.Born(defaultHookDir).IsZero() && !strings.Contains(all,
		"was made after") {
		t.Errorf("the new directory is not named: %s", all)
	}
	if d.file(defaultHookDir+"/99-other.json") != `{"version":` {
		t.Error("the file was touched")
	}
}
