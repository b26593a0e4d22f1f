package runtime

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
)

// inMountNamespace runs the calling test again in a process with its own mounts, or skips it if that is not allowed.
// It returns true in that process.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	const mark = "ACCELD_TEST_MOUNTS"
	if os.Getenv(mark) == t.Name() {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a file system")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Skipf("needs a mount namespace: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("in a mount namespace: %v\n%s", err, out)
	}
	return false
}

func mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // the namespace ends with the process anyway
}

func readOnly(t *testing.T, dir string, on bool) {
	t.Helper()
	flags := uintptr(unix.MS_REMOUNT)
	if on {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		t.Fatal(err)
	}
}

// fill leaves no free block in the file system of dir.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFullDiskKeepsTheOldSpec(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	b := newBed(t, t.TempDir())
	mount(t, b.path("/var/run/cdi"), "size=64k")
	b.apply()
	old := read(t, b.path(specFile))
	fill(t, b.path("/var/run/cdi/ballast"))

	b.def.Container.Env = []string{"EDU=2"}
	have, p := b.r.Apply(b.def, b.accs, b.want)
	if p == nil || p.Reason != accel.NoSpace || !strings.Contains(p.Message, specFile) || have.Applied {
		t.Fatalf("Apply on a full disk: %+v, %v; want NoSpace with the file", have, p)
	}
	if diff := cmp.Diff(string(old), string(read(t, b.path(specFile)))); diff != "" {
		t.Errorf("the old spec changed:\n%s", diff)
	}
	if entries, _ := os.ReadDir(b.path("/var/run/cdi")); len(entries) != 2 {
		t.Errorf("a temporary file is left: %v", entries)
	}
	if err := os.Remove(b.path("/var/run/cdi/ballast")); err != nil {
		t.Fatal(err)
	}
	b.apply()
}

func TestReadOnlyKeepsTheOldSpec(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	b := newBed(t, t.TempDir())
	dir := b.path("/var/run/cdi")
	mount(t, dir, "")
	b.apply()
	old := read(t, b.path(specFile))
	readOnly(t, dir, true)

	b.def.Container.Env = []string{"EDU=2"}
	if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.ReadOnly ||
		!strings.Contains(p.Message, specFile) {
		t.Fatalf("Apply on a read-only directory: %v; want ReadOnly with the file", p)
	}
	if p := b.r.Remove(b.def); p == nil || p.Reason != accel.ReadOnly {
		t.Errorf("Remove on a read-only directory: %v; want ReadOnly", p)
	}
	if diff := cmp.Diff(string(old), string(read(t, b.path(specFile)))); diff != "" {
		t.Errorf("the old spec changed:\n%s", diff)
	}
	readOnly(t, dir, false)
	b.apply()
}

// An immutable system has a read-only /usr: program and JSON go to the next directory that is read.
func TestReadOnlyUsr(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	b := newBed(t, t.TempDir())
	mount(t, b.path("/usr"), "")
	b.write("/etc/crio/crio.conf.d/00-default",
		"[crio.runtime]\nhooks_dir = [\"/run/containers/oci/hooks.d\", \"/usr/share/containers/oci/hooks.d\"]\n")
	for _, dir := range []string{"/run/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d"} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	readOnly(t, b.path("/usr"), true)
	have := b.apply()
	if want := "/run/containers/oci/hooks.d/50-acceld.json"; have.Hook != want {
		t.Errorf("hook is %q, want %q", have.Hook, want)
	}
	if !b.r.host.Exists("/var/lib/acceld/bin/a61eaa185490/acceld-hook") {
		t.Errorf("program is in %v", b.r.program.installed())
	}
	before := b.files()
	b.apply()
	if diff := cmp.Diff(before, b.files()); diff != "" {
		t.Errorf("the second time wrote:\n%s", diff)
	}
	// The runtime of rootless containers is not root, and a directory may be older than the program in it.
	for _, closed := range []bool{false, true} {
		if closed {
			if err := os.Chmod(b.path("/var/lib/acceld"), 0o700); err != nil {
				t.Fatal(err)
			}
			b.apply()
		}
		for _, dir := range []string{"/var/lib/acceld", "/var/lib/acceld/bin", "/var/lib/acceld/bin/a61eaa185490"} {
			if st, err := os.Stat(b.path(dir)); err != nil || st.Mode()&0o011 != 0o011 {
				t.Errorf("nobody but root can go through %q: %v, %v", dir, st, err)
			}
		}
	}
}

// No file may name a program that does not exist: the program comes first, and without it nothing follows.
func TestNoProgramNoSpec(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	b := newBed(t, t.TempDir())
	for _, dir := range []string{"/usr/local", "/var/lib"} {
		mount(t, b.path(dir), "")
		readOnly(t, b.path(dir), true)
	}
	if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.ReadOnly {
		t.Fatalf("Apply: %v; want ReadOnly", p)
	}
	if n := b.files(); len(n) != 0 {
		t.Errorf("files are %v", n)
	}
}

// A path that is read-only only for the agent, because its view is outdated, has its own reason; no other failure
// has it.
func TestOutdatedView(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	b := newBed(t, t.TempDir())
	asked := []string{}
	b.r.outdated = func(name string) bool { asked = append(asked, name); return true }
	dir := b.path("/usr/share/containers")
	mount(t, dir, "")
	readOnly(t, dir, true)
	if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.ViewOutdated ||
		!strings.Contains(p.Message, defaultHookDir) {
		t.Fatalf("Apply: %v; want ViewOutdated with the file", p)
	}
	if want := []string{defaultHookDir + "/" + jsonName}; !cmp.Equal(want, asked) {
		t.Errorf("asked about %q, want %q", asked, want)
	}
	readOnly(t, dir, false)
	b.apply()

	mount(t, b.path("/var/run/cdi"), "size=64k")
	fill(t, b.path("/var/run/cdi/ballast"))
	if _, p := b.r.Apply(b.def, b.accs, b.want); p == nil || p.Reason != accel.NoSpace {
		t.Errorf("Apply on a full disk: %v; want NoSpace", p)
	}
}

// If the view of a directory is outdated, the program goes to the next one, as with a read-only /usr.
func TestOutdatedViewOfPrograms(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	b := newBed(t, t.TempDir())
	b.r.outdated = func(string) bool { return true }
	mount(t, b.path("/usr/local"), "")
	readOnly(t, b.path("/usr/local"), true)
	b.apply()
	if !b.r.host.Exists("/var/lib/acceld/bin/a61eaa185490/acceld-hook") {
		t.Errorf("program is in %v", b.r.program.installed())
	}
}
