package kubelet

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/systemd"
)

// role says what this process is: the test program starts itself again as the judge in a mount namespace of its own,
// and the judge starts it as a kubelet or a plugin that is to be killed.
const role = "ACCELD_KUBELET_ROLE"

const thing = "example.com/thing"

var (
	restarts = flag.Int("restarts", 20, "restarts of each kind; 5 at most with -short")
	verbose  = flag.Bool("log", false, "show the logs of the plugin")
)

// missing says why the tests cannot run here; empty in the judge.
var missing string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*restarts = min(*restarts, 5)
	}
	klog.SetLogger(logr.Discard())
	switch os.Getenv(role) {
	case "":
		os.Exit(enter(m))
	case "judge":
		if err := privateKubeletDir(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	case "kubelet":
		if _, err := Start(NewPods()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	case "plugin":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		sockets, err := systemd.ReceiveSockets(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		p := newPlugin(func(c *deviceplugin.Config) { c.Connections, c.Inherited = sockets, sockets.Inherited })
		p.Update(two())
		p.Run(ctx)
	}
}

// long leaves a test that waits for the kubelet's own time to who has it; make test has not.
func long(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short: " + why)
	}
}

// enter runs the tests in a child with a mount namespace of its own, or says why that cannot be.
func enter(m *testing.M) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), role+"=judge")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Start()
	if err != nil {
		missing = fmt.Sprintf("a mount namespace of its own (root) is needed: %v", err)
		return m.Run()
	}
	_ = cmd.Wait() // its exit status says it
	return cmd.ProcessState.ExitCode()
}

// privateKubeletDir puts empty file systems where the kubelet and the plugins work. They cover /var/lib and /run, so
// that nothing is made on the host.
func privateKubeletDir() error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	for _, dir := range []string{"/var/lib", "/run"} {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("cannot mount over %s: %w", dir, err)
		}
	}
	return os.MkdirAll(PluginDir, 0o750)
}

// need skips where the condition is missing, and fails where it should hold.
func need(t *testing.T) {
	t.Helper()
	if missing == "" {
		return
	}
	if os.Getenv("ACCELD_TESTBED") == "1" {
		t.Fatal(missing)
	}
	t.Skip("not on this machine: " + missing)
}

func newPlugin(change ...func(*deviceplugin.Config)) *deviceplugin.Plugin {
	cfg := deviceplugin.Config{
		Resource: thing, Dir: PluginDir, PodResources: PodResources, CDI: true,
		Definition: &accel.Definition{Kind: "example-thing", Resource: thing},
	}
	if *verbose {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	for _, f := range change {
		f(&cfg)
	}
	return deviceplugin.New(cfg)
}

func device(id string, numa int, state accel.HealthState) accel.Accelerator {
	return accel.Accelerator{ID: id, NUMANode: numa, Health: accel.Health{State: state}}
}

func two() []accel.Accelerator {
	return []accel.Accelerator{device("a", 0, accel.Healthy), device("b", 1, accel.Healthy)}
}
