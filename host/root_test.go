package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testRoot is an image of which all programs are this machine's: its /usr, which is bound.
type testRoot struct {
	t *testing.T
	Root
	work string
	*Scope
}

func newTestRoot(t *testing.T) *testRoot {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a root of its own needs root")
	}
	s, _ := openTestScope(t, ScopeOptions{}, nobody)
	dir := t.TempDir()
	r := &testRoot{t: t, Scope: s, work: filepath.Join(dir, "work")}
	r.Root = Root{
		Image: filepath.Join(dir, "image"), Scratch: filepath.Join(dir, "scratch"),
		Binds: []Bind{{From: "/usr", To: "/usr"}, {From: r.work, To: "/build/work", Write: true}},
	}
	for _, sub := range []string{"image/etc", "image/open", "scratch", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "dev": "/etc", "leads": "../../../..",
	} {
		if err := os.Symlink(to, filepath.Join(r.Image, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(r.Image, "open/file"), []byte("as it was"), 0o600),
		os.Chmod(filepath.Join(r.Image, "open/file"), 0o666), os.Chmod(filepath.Join(r.Image, "open"), 0o777),
		os.Chown(r.work, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	return r
}

// sh runs a script in the image.
func (r *testRoot) sh(ctx context.Context, script string) (string, error) {
	var out bytes.Buffer
	err := r.Run(ctx, Program{
		Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"X=a b"}, Dir: "/build/work", User: nobody,
		Output: &out, Root: &r.Root,
	})
	return out.String(), err
}

// tree describes everything below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		text, _ := os.ReadFile(name)
		link, _ := os.Readlink(name)
		relative, _ := filepath.Rel(dir, name)
		fmt.Fprintf(&out, "%s %v %q %s\n", relative, st.Mode(), text, link)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestOverlay: a program may write wherever its user may, and nothing of the image changes.
func TestOverlay(t *testing.T) {
	r := newTestRoot(t)
	before := tree(t, r.Image)
	out, err := r.sh(t.Context(), `pwd; echo "$X"; id -u; nice; echo $$
echo mine > result
cat /open/file; echo; echo changed > /open/file && cat /open/file; rm -f /open/file; ls /open; echo more > /open/more
rm -rf /* 2>/dev/null; ls /open; (echo x > /usr/bin/acceld-test) 2>/dev/null || echo no
for f in null zero full urandom tty; do test -c /dev/$f || echo lacks $f; done; ls /dev | tr '\n' ' '
echo x > /dev/null && head -c 3 /dev/zero | wc -c; grep -c : /proc/net/dev; ls -d /proc/[0-9]* | grep -c . ; ls -d /leads/usr | tr '\n' ' '
grep NoNewPrivs /proc/self/status; grep CapPrm /proc/self/status; cat; exit 3`)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatal(out, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{
		"/build/work", "a b", strconv.Itoa(nobody), "19", "1", "as it was", "changed", "no",
		"fd full null stderr stdin stdout tty urandom zero 3", "1",
	} {
		if i >= len(lines) || lines[i] != want {
			t.Errorf("line %d is not %q:\n%s", i, want, out)
			break
		}
	}
	for _, want := range []string{"NoNewPrivs:\t1", "CapPrm:\t0000000000000000", "/leads/usr"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if after := tree(t, r.Image); after != before {
		t.Errorf("the image was\n%s\nand is\n%s", before, after)
	}
	if left, err := os.ReadDir(r.Scratch); err != nil || len(left) > 0 {
		t.Errorf("in the scratch directory are %v (%v)", left, err)
	}
	if again, err := r.sh(t.Context(), "cat /open/file; ls /open"); err != nil || again != "as it wasfile\n" {
		t.Errorf("the next program finds %q (%v)", again, err)
	}
}

// TestRootKeepsItsBinds: what is bound for reading cannot be written, and what is bound for writing can.
func TestRootKeepsItsBinds(t *testing.T) {
	r := newTestRoot(t)
	if _, err := r.sh(t.Context(), "echo mine > result"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(r.work, "result")); err != nil || string(text) != "mine\n" {
		t.Errorf("%q %v", text, err)
	}
	r.Binds[1].Write = false
	if out, err := r.sh(t.Context(), "echo other > result"); err == nil || !strings.Contains(out, "Read-only") {
		t.Errorf("%q %v", out, err)
	}
}

// TestRootSays: what cannot be started is said, and why.
func TestRootSays(t *testing.T) {
	r := newTestRoot(t)
	good := Program{Path: "/bin/true", User: nobody, Root: &r.Root}
	for name, c := range map[string]struct {
		change func(*Program, *Root)
		want   string
	}{
		"nothing":     {func(*Program, *Root) {}, ""},
		"no program":  {func(p *Program, _ *Root) { p.Path = "/bin/no-such-program" }, "cannot execute it: no such file"},
		"no image":    {func(_ *Program, r *Root) { r.Image += "/no" }, "cannot mount"},
		"no bind":     {func(_ *Program, r *Root) { r.Binds = []Bind{{From: "/no/such", To: "/x"}} }, `cannot mount "/no/such"`},
		"on a file":   {func(_ *Program, r *Root) { r.Binds = append(r.Binds, Bind{From: "/usr", To: "/open/file"}) }, "open/file"},
		"no user":     {func(p *Program, _ *Root) { p.User = 0 }, "a user without rights"},
		"no such dir": {func(p *Program, _ *Root) { p.Dir = "/no" }, "no such file"},
	} {
		p, in := good, r.Root
		p.Root = &in
		c.change(&p, &in)
		err := r.Run(t.Context(), p)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "no program" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v is not that it does not exist", name, err)
		}
	}
}

// TestRootCalledOff ends a program while it runs.
func TestRootCalledOff(t *testing.T) {
	r := newTestRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	name := fmt.Sprintf("6%06d", os.Getpid())
	if out, err := r.sh(ctx, "setsid sleep "+name+" & sleep "+name); err == nil || sleeps(name) {
		t.Errorf("%q %v; it still runs: %t", out, err, sleeps(name))
	}
}

// mounted lists the processes that have a mount with text in its description.
func mounted(text string) (out []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, file := range all {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), text) {
			out = append(out, file)
		}
	}
	return out
}

// TestRootEndsWithItsMaker kills this process with SIGKILL while a program runs in an image: nothing runs on, and
// nothing is mounted any more.
func TestRootEndsWithItsMaker(t *testing.T) {
	const child = "ACCELD_ROOT_CHILD"
	if name := os.Getenv(child); name != "" {
		r := newTestRoot(t)
		if err := os.WriteFile(name, []byte(r.Scratch), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := r.sh(t.Context(), "setsid sleep "+filepath.Base(name)+" & sleep "+filepath.Base(name))
		t.Fatal(out, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("a root of its own needs root")
	}
	name := filepath.Join(t.TempDir(), strconv.Itoa(9000000+os.Getpid()))
	cmd := exec.Command(os.Args[0], "-test.run=^TestRootEndsWithItsMaker$")
	cmd.Env = append(os.Environ(), child+"="+name, "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait := func(want bool) {
		t.Helper()
		end := time.Now().Add(20 * time.Second)
		for ; sleeps(filepath.Base(name)) != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after 20 s the program's being there is not %t", want)
			}
		}
	}
	wait(true)
	if got := mounted("lowerdir=image"); len(got) == 0 {
		t.Error("the overlay is nowhere: the test looks for the wrong thing")
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	wait(false)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if left := mounted(string(text)); len(left) > 0 {
		t.Errorf("mounts are left in %v", left)
	}
	if err := os.RemoveAll(filepath.Dir(string(text))); err != nil {
		t.Error(err)
	}
}
