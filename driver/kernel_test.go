package driver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/host"
)

// TestMain lets the test binary act as the helpers, like acceld's own program.
func TestMain(m *testing.M) {
	switch os.Getenv("PATH") + " " + strings.Join(os.Args[1:], " ") {
	case "/usr/sbin:/usr/bin:/sbin:/bin load-module":
		h, err := host.New("/")
		if err != nil {
			os.Exit(3)
		}
		os.Exit(LoadModuleMain(h, os.Stdin, os.Stdout))
	case "/usr/sbin:/usr/bin:/sbin:/bin " + host.RootCommand:
		os.Exit(host.RootMain(os.Stdin))
	case "/usr/sbin:/usr/bin:/sbin:/bin hang":
		time.Sleep(time.Minute) // until it is killed
	case "/usr/sbin:/usr/bin:/sbin:/bin die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "/usr/sbin:/usr/bin:/sbin:/bin mumble":
		_, _ = os.Stdout.WriteString("what?")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func helper(t *testing.T, word string) *helperKernel {
	t.Helper()
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	return &helperKernel{h: h, argv: []string{"/proc/self/exe", word}}
}

// TestHelper gives the running kernel something that is not a module: every kernel refuses it with an errno.
func TestHelper(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("not a module"); err != nil {
		t.Fatal(err)
	}
	k := helper(t, "load-module")
	var errno syscall.Errno
	if err := k.Load(t.Context(), f, ""); !errors.As(err, &errno) {
		t.Error(err)
	}
	if err := k.Unload(t.Context(), "acceld_no_such_module"); !errors.As(err, &errno) {
		t.Error(err)
	}
}

func TestHelperHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := helper(t, "hang").Unload(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(start) > 5*time.Second {
		t.Error(err, time.Since(start))
	}
}

func TestHelperDies(t *testing.T) {
	if err := helper(t, "die").Unload(t.Context(), "x"); !errors.Is(err, ErrDied) {
		t.Error(err)
	}
	if err := helper(t, "mumble").Unload(t.Context(), "x"); err == nil || errors.Is(err, ErrDied) {
		t.Error(err)
	}
}

func TestHelperRequest(t *testing.T) {
	h, err := host.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := LoadModuleMain(h, strings.NewReader("{"), &out); code != 2 || out.Len() != 0 {
		t.Error(code, out.String())
	}
	if code := LoadModuleMain(h, strings.NewReader(`{"unload":"x"}`), &out); code != 0 ||
		out.String() != "{\"errno\":1}\n" {
		t.Error("a copy of a machine was changed:", code, out.String())
	}
	if err := (&helperKernel{h: h}).Unload(t.Context(), "x"); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
}
