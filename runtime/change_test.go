package runtime

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestChangeKeepsLinkAndMode: the file behind an administrator's link is changed, and the link and the file's mode
// stay.
func TestChangeKeepsLinkAndMode(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	link, file := filepath.Join(d.root, "etc/c.toml"), filepath.Join(d.root, "etc/real.toml")
	if err := errors.Join(os.Rename(link, file), os.Chmod(file, 0o600), os.Symlink("real.toml", link)); err != nil {
		t.Fatal(err)
	}
	if _, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
		t.Fatal(p)
	}
	if text, err := os.Readlink(link); err != nil || text != "real.toml" {
		t.Errorf("the link leads to %q: %v", text, err)
	}
	if st, err := os.Lstat(file); err != nil || st.Mode() != 0o600 || !strings.Contains(d.file("/etc/real.toml"),
		"enable_cdi") {
		t.Errorf("the file: %v, %v\n%s", st, err, d.file("/etc/real.toml"))
	}
}

// TestChangeThatTheProgramRefuses: what the container runtime's own program rejects is not written.
func TestChangeThatTheProgramRefuses(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	program := filepath.Join(d.root, "usr/bin/containerd")
	if err := errors.Join(os.MkdirAll(filepath.Dir(program), 0o755), os.WriteFile(program, []byte("accepts nothing"),
		0o755)); err != nil {
		t.Fatal(err)
	}
	if _, p := d.agent(RestartNow).ApplyConfig(t.Context()); reason(p) != accel.RuntimeConfigInvalid ||
		!strings.Contains(p.Message, "/usr/bin/containerd refuses") {
		t.Error(p)
	}
	if d.file("/etc/c.toml") != old || d.calls != nil {
		t.Errorf("after %q the file is\n%s", d.calls, d.file("/etc/c.toml"))
	}
}

// TestChangeKeepsLinkOfThisMachine: a link is followed on the machine itself, too, where this process needs no other
// path.
func TestChangeKeepsLinkOfThisMachine(t *testing.T) {
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "real.toml"), filepath.Join(dir, "c.toml")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("real.toml", link)); err != nil {
		t.Fatal(err)
	}
	if got, p := New(h, Options{}).real(link); p != nil || got != file {
		t.Errorf("%q leads to %q, %v", link, got, p)
	}
}

// TestRestartedWithTheSameNumber: a daemon that was restarted meanwhile is a different one, even if it has the same
// PID.
func TestRestartedWithTheSameNumber(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	if _, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
		t.Fatal(p)
	}
	d.e.Started = time.Now()
	if _, p := d.agent(RestartNow).ApplyConfig(t.Context()); p != nil || d.calls != nil {
		t.Errorf("%v, %q", p, d.calls)
	}
}

// TestClockIsSet: a change still waits after somebody has set the clock, and the same daemon seems to have started at
// another time. A daemon with another start after the boot is a different one, whatever the clock says.
func TestClockIsSet(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	start := func(ticks string) {
		stat := "1000 (containerd) S" + strings.Repeat(" 0", 18) + " " + ticks + " 0\n"
		if err := os.WriteFile(filepath.Join(d.root, "proc/1000/stat"), []byte(stat), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start("4711")
	if _, p := d.agent(RestartNever).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded {
		t.Fatal(p)
	}
	before := d.e.Started
	d.e.Started = before.Add(5 * time.Second)
	if _, p := d.agent(RestartNever).CheckConfig(); reason(p) != accel.RuntimeRestartNeeded {
		t.Errorf("after a step of the clock: %v", p)
	}
	d.e.Started = before
	start("4712")
	if _, p := d.agent(RestartNever).CheckConfig(); p != nil {
		t.Errorf("another daemon with the same number: %v", p)
	}
}

// TestRestartIdleLooksAtOnce: a container that is being created at the first look is enough to postpone the restart.
func TestRestartIdleLooksAtOnce(t *testing.T) {
	d := newDaemon(t, "containerd", "/etc/c.toml", old)
	looks := 0
	d.creating = true
	d.listed = func(d *daemon) {
		if looks++; looks == 2 {
			d.creating = false
		}
	}
	if _, p := d.agent(RestartIdle).ApplyConfig(t.Context()); reason(p) != accel.RuntimeRestartNeeded ||
		d.calls != nil {
		t.Errorf("%v, %q", p, d.calls)
	}
}

// TestNodeMode: a container's device node has the mode of the host's.
func TestNodeMode(t *testing.T) {
	b := newBed(t, t.TempDir())
	for name, mode := range map[string]fs.FileMode{"/dev/edu0": 0o600, "/dev/edu1": 0o644} {
		b.write(name, "")
		if err := os.Chmod(b.path(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	b.apply()
	var s specs.Spec
	if err := json.Unmarshal(read(t, b.path(specFile)), &s); err != nil {
		t.Fatal(err)
	}
	got := map[string]fs.FileMode{}
	for _, d := range s.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			got[n.Path] = *n.FileMode
		}
	}
	if got["/dev/edu0"] != 0o600 || got["/dev/edu1"] != 0o644 {
		t.Errorf("modes %v", got)
	}
}

// TestBesideInSpec: the nodes of a network function beside a device come with that device, and with no other.
func TestBesideInSpec(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.accs[0].Beside = []string{"/dev/infiniband/uverbs0"}
	for _, name := range []string{"/dev/edu0", "/dev/edu1", "/dev/infiniband/uverbs0"} {
		b.write(name, "")
	}
	b.apply()
	var s specs.Spec
	if err := json.Unmarshal(read(t, b.path(specFile)), &s); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, d := range s.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			got[d.Name] = append(got[d.Name], n.Path)
		}
	}
	want := map[string][]string{"0000:01:00.0": {"/dev/edu0", "/dev/infiniband/uverbs0"}, "0000:02:00.0": {"/dev/edu1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
