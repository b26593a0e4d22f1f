package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const nobody = 1879048192 + 4711

func openTestScope(t *testing.T, o ScopeOptions, user int) (*Scope, func(ctx context.Context, script string) (string,
	error),
) {
	t.Helper()
	h, err := New("/")
	if err != nil {
		t.Fatal(err)
	}
	o.Name = fmt.Sprintf("acceld-test-%d", os.Getpid())
	s, err := h.Programs().OpenScope(t.Context(), o)
	t.Log(s.Limits(), err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, func(ctx context.Context, script string) (string, error) {
		var out strings.Builder
		err := s.Run(ctx, Program{
			Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"X=a b"}, Dir: "/usr",
			User: user, Output: &out,
		})
		return out.String(), err
	}
}

func TestScopeRuns(t *testing.T) {
	_, run := openTestScope(t, ScopeOptions{CPUWeight: 20}, 0)
	out, err := run(t.Context(), `pwd; echo "$X"; nice; cat; exit 3`)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || out != "/usr\na b\n19\n" {
		t.Error(out, err)
	}
	h, _ := New("/")
	s, _ := h.Programs().OpenScope(t.Context(), ScopeOptions{Name: "acceld-test-2"})
	defer s.Close()
	if err := s.Run(t.Context(), Program{Path: "/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestScopeIsolates(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("isolating a program needs root")
	}
	_, run := openTestScope(t, ScopeOptions{}, nobody)
	out, err := run(t.Context(), `id -u; id -g; id -G; echo $$; grep -c : /proc/net/dev; cat /etc/shadow 2>/dev/null`)
	if want := fmt.Sprintf("%d\n%d\n%d\n1\n1\n", nobody, nobody, nobody); err == nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestScopeKills runs a program that tries hard to survive: a child in its own session that ignores signals.
func TestScopeKills(t *testing.T) {
	_, run := openTestScope(t, ScopeOptions{}, 0)
	ctx, cancel := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "mark")
	go func() {
		for os.Getpid() > 0 {
			if b, _ := os.ReadFile(mark); len(b) > 0 {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	name := fmt.Sprintf("7%06d", os.Getpid())
	_, err := run(ctx, `trap "" TERM INT HUP; setsid sleep `+name+` & echo up > `+mark+`; wait`)
	if err == nil {
		t.Error("no error")
	}
	if os.Geteuid() == 0 && sleeps(name) {
		t.Error("a process outlived its scope")
	}
}

// sleeps reports whether a process with this argument is alive.
func sleeps(argument string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), "sleep\x00"+argument) {
			return true
		}
	}
	return false
}

// TestScopeEndsWithItsMaker kills the process that opened a scope.
func TestScopeEndsWithItsMaker(t *testing.T) {
	const child = "ACCELD_SCOPE_CHILD"
	if name := os.Getenv(child); name != "" {
		_, run := openTestScope(t, ScopeOptions{}, 0)
		out, err := run(t.Context(), `setsid sleep `+name+` & sleep `+name)
		t.Fatal(out, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("a namespace of processes needs root")
	}
	name := strconv.Itoa(8000000 + os.Getpid())
	cmd := exec.Command(os.Args[0], "-test.run=^TestScopeEndsWithItsMaker$")
	cmd.Env = append(os.Environ(), child+"="+name)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait := func(want bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); sleeps(name) != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after 10 s the program's being there is not %t", want)
			}
		}
	}
	wait(true)
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	wait(false)
}

func TestScopeMemory(t *testing.T) {
	s, run := openTestScope(t, ScopeOptions{MemoryBytes: 64 << 20}, 0)
	out, err := run(t.Context(), `ulimit -v; x=$(head -c 200000000 /dev/zero | tr '\0' a); echo ${#x}`)
	if err == nil || strings.Contains(out, "200000000") {
		t.Errorf("a program used three times its cap: %q, %v", out, err)
	}
	t.Log(out, err, s.OutOfMemory())
}

func TestScopeOutOfMemory(t *testing.T) {
	h := tempHost(t)
	for text, want := range map[string]bool{
		"low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n": true,
		"low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n": false,
		"oom_kill": false,
	} {
		if err := h.WriteFile("/memory.events", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Scope{h: h, group: &controlGroup{dir: "/"}}
		if s.OutOfMemory() != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}

func TestScopeProperties(t *testing.T) {
	got := map[string]string{}
	for _, p := range scopeProperties(ScopeOptions{Description: "d", CPUWeight: 20, MemoryBytes: 1 << 30}, 7) {
		got[p.Name] = p.Value.String()
	}
	for name, want := range map[string]string{
		"MemoryMax": "@t 1073741824", "MemorySwapMax": "@t 0",
		"CPUWeight": "@t 20", "PIDs": "@au [7]", "Delegate": "true",
	} {
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
}

func TestGive(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root")
	}
	h := tempHost(t)
	_ = h.MkdirAll("/a/b", 0o755)
	_ = h.WriteFile("/a/b/c", nil, 0o600)
	_ = h.WriteFile("/outside", nil, 0o600)
	_ = h.Symlink("/outside", "/a/link")
	if err := h.Give("/a", nobody); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"a": nobody, "a/b/c": nobody, "a/link": nobody, "outside": 0} {
		st, err := os.Lstat(filepath.Join(h.Root(), name))
		if err != nil || st.Sys().(*syscall.Stat_t).Uid != want {
			t.Errorf("%s: %v, want owner %d", name, st, want)
		}
	}
}
