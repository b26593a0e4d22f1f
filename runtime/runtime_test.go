package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/gate"
)

func TestApplyWritesWhatIsNeeded(t *testing.T) {
	b := newBed(t, t.TempDir())
	if b.applied() {
		t.Fatal("Applied on an empty host")
	}
	if n := len(b.files()); n != 0 {
		t.Fatalf("Check wrote %d files", n)
	}
	have := b.apply()
	want := accel.RuntimeHave{
		Applied: true, Spec: specFile, Hook: jsonFile,
		Devices: []string{"qemu.org/edu=0000:01:00.0", "qemu.org/edu=0000:02:00.0"},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("have (-want +got):\n%s", diff)
	}
	golden(t, "qemu.org-edu.json", read(t, b.path(specFile)))
	golden(t, "50-acceld.json", read(t, b.path(jsonFile)))
	for name, mode := range map[string]fs.FileMode{
		specFile: 0o644, jsonFile: 0o644,
		"/usr/local/lib/acceld/a61eaa185490/acceld-hook": 0o755,
	} {
		if st, err := os.Stat(b.path(name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, st, err, mode)
		}
	}
	if text, err := os.Readlink(b.path("/dev/char/240:1")); err != nil || text != "../edu1" {
		t.Errorf("link is %q, %v", text, err)
	}
}

// A restarted agent must not touch a file that is right: a new modification time would wake every watcher on the
// node.
func TestApplyTwiceWritesOnce(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	before := b.files()
	b.log.Reset()
	b.restart(b.r.program.source, "cri-o")
	b.apply()
	if diff := cmp.Diff(before, b.files()); diff != "" {
		t.Errorf("files changed:\n%s", diff)
	}
	if b.log.Len() > 0 {
		t.Errorf("steady state is not silent: %s", b.log)
	}
}

func TestDriftIsSeenAndRepaired(t *testing.T) {
	program := "/usr/local/lib/acceld/a61eaa185490/acceld-hook"
	for name, spoil := range map[string]func(b *bed) error{
		"spec removed":      func(b *bed) error { return os.Remove(b.path(specFile)) },
		"spec truncated":    func(b *bed) error { return os.Truncate(b.path(specFile), 10) },
		"spec mode":         func(b *bed) error { return os.Chmod(b.path(specFile), 0o600) },
		"json removed":      func(b *bed) error { return os.Remove(b.path(jsonFile)) },
		"json empty":        func(b *bed) error { return os.Truncate(b.path(jsonFile), 0) },
		"program removed":   func(b *bed) error { return os.Remove(b.path(program)) },
		"program truncated": func(b *bed) error { return os.Truncate(b.path(program), 1) },
		"program mode":      func(b *bed) error { return os.Chmod(b.path(program), 0o644) },
		"link removed":      func(b *bed) error { return os.Remove(b.path("/dev/char/240:0")) },
		"link elsewhere": func(b *bed) error {
			return os.Rename(b.path("/dev/char/240:0"), b.path("/dev/char/240:1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.apply()
			if err := spoil(b); err != nil {
				t.Fatal(err)
			}
			if b.applied() {
				t.Error("Applied although a file is spoilt")
			}
			b.apply()
		})
	}
}

// A link that another tool created with an absolute text is right, too: the two must not fight.
func TestForeignLinkIsKept(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	link := b.path("/dev/char/240:0")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/edu0", link); err != nil {
		t.Fatal(err)
	}
	b.apply()
	if text, _ := os.Readlink(link); text != "/dev/edu0" {
		t.Errorf("link was replaced by %q", text)
	}
}

func TestConflict(t *testing.T) {
	const foreign = "cdiVersion: 0.5.0\nkind: qemu.org/edu\ndevices:\n- name: 0000:01:00.0\n  containerEdits:\n    env: [A=b]\n"
	for _, file := range []string{"/etc/cdi/other.yaml", "/var/run/cdi/other.yaml"} {
		for _, first := range []bool{true, false} {
			b := newBed(t, t.TempDir())
			if !first {
				b.apply()
			}
			b.write(file, foreign)
			for name, do := range map[string]func(*accel.Definition, []accel.Accelerator,
				accel.Want) (accel.RuntimeHave, *accel.Problem){"Check": b.r.Check, "Apply": b.r.Apply} {
				have, p := do(b.def, b.accs, b.want)
				if p == nil || p.Reason != accel.SpecConflict || !strings.Contains(p.Message, file) || have.Applied {
					t.Errorf("%s with %s: %+v, %v; want SpecConflict with the file", name, file, have, p)
				}
			}
			if published := b.r.host.Exists(specFile); published == first {
				t.Errorf("published is %v when the other file was first: %v", published, first)
			}
			if err := os.Remove(b.path(file)); err != nil {
				t.Fatal(err)
			}
			b.apply()
		}
	}
}

// TestConflictElsewhere: a spec in a directory that only the daemon's command line or a file names conflicts too. A
// directory that is another name of acceld's own does not.
func TestConflictElsewhere(t *testing.T) {
	const foreign = "cdiVersion: 0.5.0\nkind: qemu.org/edu\ndevices:\n- name: 0000:01:00.0\n  containerEdits:\n    env: [A=b]\n"
	b := newBed(t, t.TempDir())
	b.write("/opt/flag/other.yaml", foreign)
	b.write("/opt/file/other.yaml", foreign)
	b.apply()
	b.r.engine.SpecDirs = []string{"/opt/flag", "/run/cdi", "/var/run/cdi"}
	check := func(want string) {
		t.Helper()
		_, p := b.r.Check(b.def, b.accs, b.want)
		if p == nil || p.Reason != accel.SpecConflict || !strings.Contains(p.Message, want) {
			t.Errorf("%v; want SpecConflict with %s", p, want)
		}
		if !slices.Contains(b.r.Paths(), path.Dir(want)) {
			t.Errorf("%s is not watched", path.Dir(want))
		}
	}
	check("/opt/flag/other.yaml")
	b.r.engine.SpecDirs = nil
	b.write("/etc/crio/crio.conf.d/x", "[crio.runtime]\ncdi_spec_dirs = [\"/opt/file\", \"/var/run/cdi\"]\n")
	check("/opt/file/other.yaml")
	if err := errors.Join(os.RemoveAll(b.path("/opt/file")), os.Symlink("/var/run/cdi", b.path("/opt/file"))); err != nil {
		t.Fatal(err)
	}
	b.apply()
}

// A file that no runtime can read defines nothing, and the same name in another kind is another device.
func TestOtherSpecsAreNoConflict(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.write("/etc/cdi/broken.json", `{"kind":"qemu.org/edu"`)
	b.write("/etc/cdi/unknown.json",
		`{"cdiVersion":"0.5.0","kind":"qemu.org/edu","surprise":1,"devices":[{"name":"0000:01:00.0"}]}`)
	b.write("/etc/cdi/kind.json",
		`{"cdiVersion":"0.5.0","kind":"qemu.org/other","devices":[{"name":"0000:01:00.0","containerEdits":{"env":["A=b"]}}]}`)
	b.write("/etc/cdi/device.json",
		`{"cdiVersion":"0.5.0","kind":"qemu.org/edu","devices":[{"name":"0000:09:00.0","containerEdits":{"env":["A=b"]}}]}`)
	b.write("/etc/cdi/conflict.json.bak", string(read(t, "testdata/qemu.org-edu.json")))
	b.apply()
}

func TestNoDevicesNoSpec(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	b.accs = b.accs[2:]
	if b.applied() {
		t.Error("Applied although the spec has devices that are gone")
	}
	have := b.apply()
	if b.r.host.Exists(specFile) {
		t.Error("a spec without devices is on the host")
	}
	if have.Spec != "" || have.Devices != nil {
		t.Errorf("have is %+v", have)
	}
}

func TestWithoutCDIOrHook(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	b.want.CDI = false
	if err := os.Remove(b.path("/dev/char/240:0")); err != nil {
		t.Fatal(err)
	}
	if b.applied() {
		t.Error("Applied without the link, which device specs need too")
	}
	if have := b.apply(); have.Spec != "" || b.r.host.Exists(specFile) || have.Hook == "" {
		t.Errorf("without CDI: %+v", have)
	}
	b.want = accel.Want{CDI: true}
	have := b.apply()
	if have.Hook != "" || b.r.host.Exists(jsonFile) || b.r.host.Exists("/usr/local/lib/acceld") {
		t.Errorf("without hook: %+v, %v", have, b.files())
	}
	if bytes.Contains(read(t, b.path(specFile)), []byte("hooks")) {
		t.Error("the spec has a hook that nobody wants")
	}
}

// Only CRI-O and podman read hooks.d; for other runtimes the spec alone carries the gate.
func TestContainerdGetsNoJSON(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.restart(b.r.program.source, "containerd")
	b.r.engine.Version = "2.1.4"
	if have := b.apply(); have.Hook != "" {
		t.Errorf("have %+v", have)
	}
	if b.r.host.Exists(jsonFile) {
		t.Error("a hooks.d file that nobody reads")
	}
	golden(t, "qemu.org-edu.json", read(t, b.path(specFile)))
}

func TestInvalidDefinitions(t *testing.T) {
	for name, spoil := range map[string]func(b *bed){
		"resource without vendor": func(b *bed) { b.def.Resource = "edu" },
		"vendor with a slash":     func(b *bed) { b.def.Resource = "../../etc/passwd" },
		"environment":             func(b *bed) { b.def.Container.Env = []string{"novalue"} },
		"relative mount":          func(b *bed) { b.def.Container.Mounts[0].HostPath = "lib" },
		"relative node":           func(b *bed) { b.def.Container.Nodes = []string{"eductl"} },
		"permissions":             func(b *bed) { b.def.Nodes[0].Permissions = "rwx" },
		"device twice":            func(b *bed) { b.accs[1].ID = b.accs[0].ID },
		"device name":             func(b *bed) { b.accs[0].ID = "a/b" },
	} {
		b := newBed(t, t.TempDir())
		spoil(b)
		if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.SpecInvalid {
			t.Errorf("%s: %v; want SpecInvalid", name, p)
		}
		if b.r.host.Exists("/var/run/cdi") {
			t.Errorf("%s: something was published", name)
		}
	}
}

func TestMissingProgram(t *testing.T) {
	b := newBed(t, t.TempDir())
	for _, program := range []string{"", "/no/such/acceld-hook", t.TempDir()} {
		b.restart(program, "cri-o")
		if _, p := b.r.Check(b.def, b.accs, b.want); p == nil || p.Reason != accel.HookMissing {
			t.Errorf("Check with %q: %v", program, p)
		}
		if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.HookMissing {
			t.Errorf("Apply with %q: %v", program, p)
		}
	}
	if n := len(b.files()); n != 0 {
		t.Errorf("%d files were written", n)
	}
}

// An upgrade of the hook switches names. The previous program stays for containers in creation; older ones are
// removed.
func TestProgramUpgrade(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	for i, content := range []string{"second", "third"} {
		if err := os.WriteFile(b.r.program.source, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		// The kernel's clock for file times is coarser than this test is fast.
		at := time.Now().Add(time.Duration(i+1) * time.Hour)
		if err := os.Chtimes(b.r.program.source, at, at); err != nil {
			t.Fatal(err)
		}
		if b.applied() {
			t.Error("Applied with the old program")
		}
		b.apply()
		if n := len(b.r.program.installed()); n != 2 {
			t.Errorf("after %q there are %d programs", content, n)
		}
	}
}

func TestRemove(t *testing.T) {
	b := newBed(t, t.TempDir())
	other := &accel.Definition{Kind: "qemu-other", Resource: "qemu.org/other"}
	b.apply()
	if _, p := b.r.Apply(other, b.accs[:1], b.want); p != nil {
		t.Fatal(p)
	}
	if p := b.r.Remove(b.def); p != nil {
		t.Fatal(p)
	}
	if b.r.host.Exists(specFile) || !b.r.host.Exists(jsonFile) || len(b.r.program.installed()) != 1 {
		t.Errorf("with another kind left: %v", b.files())
	}
	for range 2 { // also if there is nothing to remove
		if p := b.r.Remove(other); p != nil {
			t.Fatal(p)
		}
	}
	for name := range b.files() {
		if !strings.HasPrefix(name, "/dev/char/") && !strings.Contains(name, "/ledger/") {
			t.Errorf("%s is left", name)
		}
	}
	if b.r.host.Exists("/usr/local/lib/acceld") {
		t.Error("an empty directory is left")
	}
}

func TestConcurrentUse(t *testing.T) {
	b := newBed(t, t.TempDir())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, _ = b.r.Apply(b.def, b.accs, b.want)
			_, _ = b.r.Check(b.def, b.accs, b.want)
			_ = b.r.PublishReadiness(nil, map[string][]accel.Accelerator{"qemu-edu": b.accs})
			_ = b.r.Paths()
		})
	}
	wg.Wait()
	if !b.applied() {
		t.Error("not applied")
	}
}

func TestPublishReadiness(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.accs[1].Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: "overheated"}
	kinds := map[string][]accel.Accelerator{"qemu-edu": b.accs}
	if p := b.r.PublishReadiness(nil, kinds); p != nil {
		t.Fatal(p)
	}
	golden(t, "devices.json", read(t, b.path(gate.Path)))
	before := b.files()
	if p := b.r.PublishReadiness(nil, kinds); p != nil {
		t.Fatal(p)
	}
	if diff := cmp.Diff(before, b.files()); diff != "" {
		t.Errorf("published again without a change:\n%s", diff)
	}
}

func TestPaths(t *testing.T) {
	b := newBed(t, t.TempDir()) // with nothing applied: an agent watches before it writes
	want := []string{
		"/dev/char", "/etc/cdi", "/usr/local/lib/acceld/a61eaa185490", "/usr/share/containers/oci/hooks.d",
		"/var/lib/acceld/bin/a61eaa185490", "/var/run/cdi",
	}
	if diff := cmp.Diff(want, b.r.Paths()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.restart("", "cri-o")
	if diff := cmp.Diff([]string{"/etc/cdi", "/var/run/cdi", "/dev/char"}, b.r.Paths()); diff != "" {
		t.Errorf("without a hook (-want +got):\n%s", diff)
	}
}

// The library with which runtimes load specs must accept ours without complaint, inject it, and refuse it once the
// node is gone.
func TestLibraryInjects(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.def.Container.Nodes, b.def.Nodes = nil, nil
	b.accs = []accel.Accelerator{
		{
			ID: "0000:01:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/null"}},
			Health: accel.Health{State: accel.Healthy},
		},
		{
			ID: "0000:02:00.0", Nodes: []accel.DeviceNode{{Path: "/dev/acceld-no-such-node"}},
			Health: accel.Health{State: accel.Healthy},
		},
	}
	have := b.apply()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(b.path("/var/run/cdi")), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if errs := cache.GetErrors(); len(errs) > 0 {
		t.Fatalf("the library complains: %v", errs)
	}
	if diff := cmp.Diff(have.Devices, cache.ListDevices()); diff != "" {
		t.Errorf("devices (-ours +the library's):\n%s", diff)
	}
	spec := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
	if _, err := cache.InjectDevices(spec, have.Devices[0]); err != nil {
		t.Fatal(err)
	}
	d := spec.Linux.Devices[0]
	if d.Path != "/dev/null" || d.Major != 1 || d.Minor != 3 || *d.FileMode != 0o660 {
		t.Errorf("injected %+v with mode %v", d, *d.FileMode)
	}
	if a := spec.Linux.Resources.Devices[0].Access; a != "rw" {
		t.Errorf("access is %q", a)
	}
	h := spec.Hooks.CreateRuntime[0]
	if diff := cmp.Diff([]string{"acceld-hook", "createRuntime", "--device", "0000:01:00.0"}, h.Args); diff != "" {
		t.Error(diff)
	}
	if h.Timeout == nil || *h.Timeout != 5 || len(h.Env) != 1 {
		t.Errorf("hook is %+v", h)
	}
	if _, err := cache.InjectDevices(spec, have.Devices[1]); err == nil {
		t.Error("a device without a node was injected")
	}
}

func TestVersionIsTheMinimum(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	var v struct{ CDIVersion string }
	if err := json.Unmarshal(read(t, b.path(specFile)), &v); err != nil || v.CDIVersion != "0.5.0" {
		t.Errorf("version %q, %v: a newer one would hide the spec from older runtimes", v.CDIVersion, err)
	}
}
