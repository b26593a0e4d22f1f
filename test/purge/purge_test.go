// Package purge shows on real processes that a purge brings a host back to the byte: one process makes changes as the
// agent does, is killed at a random moment, another purges, is killed as well, and a last one finishes. It needs
// neither root nor a virtual machine; the host is a directory.
package purge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/cmd/acceld/cli"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/test/machines"
	"github.com/acceld/acceld/test/tree"
	"github.com/acceld/acceld/vendors"
)

const (
	role    = "ACCELD_TEST_PURGE" // "acceld", or "change" with the root
	changes = "change"
)

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "acceld":
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case changes:
		if err := change(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// change does to a host what the agent does in its life, over and over, until it is killed or was round a few times.
func change(root string) error {
	h, err := host.New(root)
	if err != nil {
		return err
	}
	defs, problem := vendors.Definitions()
	if problem != nil {
		return problem
	}
	l, err := ledger.Open(h, "/var/lib/acceld", nil)
	if err != nil {
		return err
	}
	def := defs["qemu-edu"]
	accs := []accel.Accelerator{{
		ID: "0000:00:04.0", Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240}},
		Health: accel.Health{State: accel.Healthy},
	}}
	facts := detect.Detect(h, detect.Options{})
	r := runtime.New(h, runtime.Options{
		Ledger: l, HookProgram: "/proc/self/cmdline",
		Engine: accel.ContainerEngine{Name: "cri-o"},
	})
	if facts.Kernel.Release == "" {
		return errors.New("the machine has no kernel")
	}
	want := accel.Want{CDI: true, Hook: true, Kinds: defs}
	for i := range 3 {
		if _, p := r.Apply(def, accs, want); p != nil {
			return p
		}
		if p := r.PublishReadiness(nil, map[string][]accel.Accelerator{def.Kind: accs}); p != nil {
			return p
		}
		err := errors.Join(
			l.WriteFile("/etc/crio/crio.conf.d/60-acceld.conf", fmt.Appendf(nil, "# %d\n", i), 0o644),
			l.WriteFile("/etc/containers/containers.conf", fmt.Appendf(nil, "[engine] # %d\n", i), 0o644),
			l.Remove("/etc/cdi/stale.json"),
			l.Note("module", "edu", "{}"),
		)
		if err != nil {
			return err
		}
		if p := r.Remove(def); p != nil {
			return p
		}
	}
	_, p := r.Apply(def, accs, want)
	if p != nil {
		return p
	}
	return nil
}

// start starts this program in a role.
func start(t *testing.T, as string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// killed starts this program and kills it after a while; it reports whether it came too late.
func killed(t *testing.T, after time.Duration, as string, args ...string) (late bool) {
	t.Helper()
	cmd, out := start(t, as, args...)
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	if err != nil && !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%s: %v\n%s", as, err, out)
	}
	return err == nil
}

func prepare(t *testing.T, dir string) string {
	t.Helper()
	root := filepath.Join(dir, "host")
	if err := machines.Write(root, "qemu-edu"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"etc/crio/crio.conf.d/10-own.conf": "[crio]\n", "etc/containers/containers.conf": "[engine]\n",
		"etc/cdi/stale.json":                             "{}",
		"etc/containerd/config.toml":                     "# ours\nversion = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"x\"\n",
		"usr/share/containers/oci/hooks.d/10-other.json": "{}", "dev/edu0": "", "run/x": "", "usr/local/lib/x": "",
		"var/lib/x": "", "var/run-is-a-link": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.Symlink("../run", filepath.Join(root, "var/run")) // the machine may have it
	if err := os.Chmod(filepath.Join(root, "etc/containers/containers.conf"), 0o640); err != nil {
		t.Fatal(err)
	}
	return root
}

// look takes the tree with the time of everything but the directories that acceld's own are in.
func look(t *testing.T, root string) string {
	t.Helper()
	text, err := tree.Of(root, tree.Options{Mtime: true, DirTime: true})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for l := range strings.Lines(text) {
		if name, _, _ := strings.Cut(l, " "); name != "/run" && name != "/var/lib" {
			b.WriteString(l)
		}
	}
	return b.String()
}

// apply lets the command itself change the configuration of a container runtime.
func apply(t *testing.T, root string, after time.Duration) (late bool) {
	t.Helper()
	return killed(t, after, "acceld", "--config=/dev/null", "--host-root="+root, "runtime", "apply",
		"--engine=containerd", "--edit=full", "--config-only")
}

func purge(t *testing.T, root string) string {
	t.Helper()
	cmd, out := start(t, "acceld", "--config=/dev/null", "--host-root="+root, "purge")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("purge: %v\n%s", err, out)
	}
	return out.String()
}

func TestPurge(t *testing.T) {
	root := prepare(t, t.TempDir())
	before := look(t, root)
	if late := killed(t, time.Minute, changes, root); !late {
		t.Fatal("the changes took a minute")
	}
	apply(t, root, time.Minute)
	changed := tree.Diff(before, look(t, root))
	for _, name := range []string{
		"/etc/containerd/config.toml", "/run/cdi/qemu.org-edu.json", "60-acceld.conf",
		"/usr/local/lib/acceld/", "/dev/char/240:0", "50-acceld.json",
	} {
		if !strings.Contains(changed, name) {
			t.Errorf("%s was not made:\n%s", name, changed)
		}
	}
	dry, out := start(t, "acceld", "--config=/dev/null", "--host-root="+root, "purge", "--dry-run")
	if err := dry.Wait(); err != nil || tree.Diff(before, look(t, root)) != changed {
		t.Errorf("a dry run: %v\n%s", err, out)
	}
	said := purge(t, root)
	if diff := tree.Diff(before, look(t, root)); diff != "" {
		t.Errorf("after the purge:\n%s\nit said:\n%s", diff, said)
	}
	if again := purge(t, root); !strings.Contains(again, "nothing of acceld") {
		t.Errorf("a second purge said:\n%s", again)
	}
}

// What an agent that was killed left with the kubelet goes; what is somebody else's stays.
func TestPurgeOfSockets(t *testing.T) {
	root, err := os.MkdirTemp("", "purge") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := filepath.Join(root, "var/lib/kubelet/device-plugins")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelet.sock", "acceld-qemu-edu-0123abcd.sock"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	said := purge(t, root)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "kubelet.sock" ||
		!strings.Contains(said, "acceld-qemu-edu-0123abcd.sock") {
		t.Errorf("left %v, %v; said:\n%s", left, err, said)
	}
}

// An agent that runs is named, with the ways to stop it, and nothing is changed.
func TestPurgeBesideAnAgent(t *testing.T) {
	root := prepare(t, t.TempDir())
	if late := killed(t, time.Minute, changes, root); !late {
		t.Fatal("the changes took a minute")
	}
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	release, problem := lock.Agent(h, "")
	if problem != nil {
		t.Fatal(problem)
	}
	defer release()
	before := look(t, root)
	cmd, out := start(t, "acceld", "--config=/dev/null", "--host-root="+root, "purge")
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "AlreadyRunning") ||
		!strings.Contains(out.String(), "systemctl disable --now acceld.service") {
		t.Errorf("%v\n%s", err, out)
	}
	if diff := tree.Diff(before, look(t, root)); diff != "" {
		t.Errorf("something was changed:\n%s", diff)
	}
}

// A change by somebody else is left, named, and asked for until it is settled; what was there before is not lost
// meanwhile.
func TestPurgeLeavesWhatSomebodyChanged(t *testing.T) {
	root := prepare(t, t.TempDir())
	if late := killed(t, time.Minute, changes, root); !late {
		t.Fatal("the changes took a minute")
	}
	file := filepath.Join(root, "etc/containers/containers.conf")
	if err := os.WriteFile(file, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd, out := start(t, "acceld", "--config=/dev/null", "--host-root="+root, "purge")
		if err := cmd.Wait(); err == nil ||
			!strings.Contains(out.String(), "left      /etc/containers/containers.conf") ||
			!strings.Contains(out.String(), "FileChanged") {
			t.Fatalf("%v\n%s", err, out)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
			t.Fatalf("the file is %q, %v", b, err)
		}
	}
	blobs, err := filepath.Glob(filepath.Join(root, "var/lib/acceld/ledger/blobs/*"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("kept are %q, %v", blobs, err)
	}
	before, err := os.ReadFile(blobs[0])
	if err != nil || string(before) != "[engine]\n" {
		t.Fatalf("kept is %q, %v", before, err)
	}
	if err := os.WriteFile(file, before, 0o640); err != nil { // as its owner settles it
		t.Fatal(err)
	}
	purge(t, root)
	if _, err := os.Stat(filepath.Join(root, "var/lib/acceld")); err == nil {
		t.Error("something of acceld is still there")
	}
}

// Killed at random moments, changing and purging, the host is in the end what it was.
func TestPurgeAfterKills(t *testing.T) {
	dir := t.TempDir()
	if _, err := os.Stat("/dev/shm"); err == nil { // the disk is not what is tested
		if dir, err = os.MkdirTemp("/dev/shm", "purge"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	begun := time.Now()
	root := prepare(t, dir)
	before := look(t, root)
	// How long the two take here decides when they are killed.
	changing := time.Now()
	killed(t, time.Minute, changes, root)
	took := time.Since(changing)
	purging := time.Now()
	purge(t, root)
	tookPurge := time.Since(purging)
	late := 0
	for n := range rounds {
		if time.Since(begun) > 2*time.Minute {
			t.Logf("%d rounds in two minutes", n)
			break
		}
		if killed(t, time.Duration(rand.Int64N(int64(took))), changes, root) {
			late++
		}
		if n%4 == 0 {
			apply(t, root, time.Duration(rand.Int64N(int64(took))))
		}
		if n%3 > 0 {
			killed(t, time.Duration(rand.Int64N(int64(tookPurge))), "acceld", "--config=/dev/null", "--host-root="+root,
				"purge")
		}
		said := purge(t, root)
		if diff := tree.Diff(before, look(t, root)); diff != "" {
			t.Fatalf("round %d:\n%s\nthe purge said:\n%s", n, diff, said)
		}
	}
	t.Logf("one life of changes takes %v, a purge %v; %d were not killed in time", took.Round(time.Millisecond),
		tookPurge.Round(time.Millisecond), late)
}
