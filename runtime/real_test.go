package runtime

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/runtime/engine"
)

// bedProgram returns the newest program in the test bed's cache, or the one that the environment names.
func bedProgram(t *testing.T, name string) string {
	t.Helper()
	if p := os.Getenv("ACCELD_" + strings.ToUpper(name)); p != "" {
		return p
	}
	cache := os.Getenv("ACCELD_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "acceld")
	}
	found, _ := filepath.Glob(filepath.Join(cache, "part-"+name+"-*", name))
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// process is a real containerd, started as a unit would be.
type process struct {
	*testing.T
	program, config, socket string
	cmd                     *exec.Cmd
	exited                  chan struct{}
	log                     string
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.cmd = exec.Command(p.program, "--config", p.config)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := errors.Join(p.cmd.Start(), log.Close()); err != nil {
		return err
	}
	p.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(p.cmd, p.exited)
	for end := time.After(30 * time.Second); ; {
		if conn, err := net.Dial("unix", p.socket); err == nil {
			return conn.Close()
		}
		select {
		case <-p.exited:
			return errors.New("it ended: " + p.cmd.ProcessState.String())
		case <-end:
			return errors.New("it does not listen")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill() // also when it has ended
	<-p.exited
	_ = os.Remove(p.socket) // what is left of it
}

func (p *process) restart(context.Context, string) error {
	p.stop()
	return p.start()
}

// With a real containerd: a change is in force after its restart, and a change with which it does not start is
// reverted, after which the CRI answers.
func TestRealContainerd(t *testing.T) {
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_TESTBED=1 is not set")
	}
	program := bedProgram(t, "containerd")
	if program == "" {
		t.Fatal("the test bed has no containerd")
	}
	root, err := os.MkdirTemp("", "real") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	p := &process{
		T: t, program: program, config: filepath.Join(root, "etc/containerd/config.toml"),
		socket: filepath.Join(root, "s"), log: filepath.Join(root, "log"),
	}
	text := fmt.Sprintf(`version = 3
root = %q
state = %q
imports = ["conf.d/*.toml"]
[grpc]
  address = %q
[plugins.'io.containerd.cri.v1.runtime']
  cdi_spec_dirs = ["/etc/cdi"]
`, filepath.Join(root, "lib"), filepath.Join(root, "state"), p.socket)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p.config), 0o755), os.WriteFile(p.config, []byte(text),
		0o644)); err != nil {
		t.Fatal(err)
	}
	if err := p.start(); err != nil {
		b, _ := os.ReadFile(p.log)
		t.Fatalf("%v\n%s", err, b)
	}
	t.Cleanup(func() { p.stop() })
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	e := accel.ContainerEngine{
		Name: "containerd", Version: "2", Endpoint: "unix:///s", Config: "/etc/containerd/config.toml",
		Unit: "containerd.service",
		PID:  p.cmd.Process.Pid, Started: time.Now(),
	}
	r := New(h, Options{Engine: e, Edit: engine.EditDropin, Restart: RestartNow, Units: Units{Restart: p.restart}})
	r.client.live = func() bool { return true }
	rep, problem := r.ApplyConfig(t.Context())
	if problem != nil || len(rep.Change.Files) != 1 {
		t.Fatalf("%v, %s", problem, rep.Diff)
	}
	var status *cri.StatusResponse
	err = r.client.question(t.Context(), e, func(ctx context.Context, c cri.RuntimeServiceClient) (err error) {
		status, err = c.Status(ctx, &cri.StatusRequest{Verbose: true})
		return err
	})
	if err != nil || !strings.Contains(status.GetInfo()["config"], `"/var/run/cdi"`) {
		t.Errorf("not in force: %v, %s", err, status.GetInfo()["config"])
	}
	// No proposed change is broken, so a broken one is put in its place.
	before := picture(t, filepath.Join(root, "etc"))
	broken := engine.Change{Files: []engine.File{{
		Path: "/etc/containerd/conf.d/70-broken.toml", New: true,
		After: []byte("version = 3\n[plugins\n"),
	}}}
	if problem := r.config.change(r.engine, broken); problem != nil {
		t.Fatal(problem)
	}
	if problem = r.restart.takeOver(t.Context(), r.engine, broken); reason(problem) != accel.RuntimeDown {
		t.Fatalf("got %v", problem)
	}
	if now := picture(t, filepath.Join(root, "etc")); len(now) != len(before) {
		t.Errorf("files are left: %v", now)
	}
	if err := r.client.alive(t.Context(), e, nil); err != nil {
		t.Errorf("the CRI is not up: %v", err)
	}
	t.Log(problem.Message, problem.Tried)
}

// major returns the major version of a containerd program; empty if it is not known.
func major(program string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil || program == "" {
		return ""
	}
	if strings.HasPrefix(info.Path, "github.com/containerd/containerd/v2/") {
		return "2"
	}
	return "1"
}
