package nvidia

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/host"
)

// TestRealUserSpace: the definition that acceld brings takes the real user space of a driver out of Debian's packages,
// of the release and of its security updates, and the real nvidia-smi finds the library beside it. There is no GPU, and
// it says so.
func TestRealUserSpace(t *testing.T) {
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("downloads 80 MB from Debian's archive: needs ACCELD_TESTBED=1, root, apt and the network")
	}
	newest, err := Newest(t.Context(), "bookworm-security", "non-free", "nvidia-kernel-dkms")
	if err != nil {
		t.Fatal(err)
	}
	next, err := Newest(t.Context(), "trixie", "non-free", "libcuda1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ release, version string }{
		{"debian12", Version}, {"debian12", newest}, {"debian13", next},
	} {
		t.Run(c.release+" "+c.version, func(t *testing.T) { realUserSpace(t, c.release, c.version) })
	}
}

func realUserSpace(t *testing.T, release, version string) {
	t.Helper()
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	root := t.TempDir()
	// nvidia-smi runs as nobody.
	for _, dir := range []string{root, filepath.Dir(root), filepath.Dir(filepath.Dir(root))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(keys)
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, path.Dir(keys)), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, keys), text, 0o644)
	}
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(root, "run"), 0o755),
			os.MkdirAll(filepath.Join(root, "var/lib"), 0o755))
	}
	h, newErr := host.New(root)
	if err := errors.Join(err, newErr); err != nil {
		t.Fatal(err)
	}
	def := distribution(t)
	def.Driver.UserSpace = &accel.UserSpace{}
	repositories, _ := mirrors(t, release)
	def = repositories.Of(def.On(release))
	d := driver.New(h, driver.Options{Log: slog.New(slog.DiscardHandler)})
	facts := accel.Facts{Kernel: accel.Kernel{Arch: "x86_64", Release: "6.1.0-47-amd64"}}
	began := time.Now()
	if problem := d.Sources().UserSpace(t.Context(), def, facts, version, source.Options{}); problem != nil {
		t.Fatal(problem, problem.Tried)
	}
	took := time.Since(began)
	entries, err := filepath.Glob(filepath.Join(root, "var/lib/acceld/userspace/*/root"))
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	var files, bytes int64
	err = filepath.WalkDir(entries[0], func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			info, err := e.Info()
			if err != nil {
				return err
			}
			files++
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("out of the packages of %s: %d files, %d bytes, %.1f s", version, files, bytes, took.Seconds())
	for _, want := range []string{
		"usr/lib64/libcuda.so.1", "usr/lib64/libnvidia-ml.so.1", "usr/lib64/libnvidia-ptxjitcompiler.so.1",
		"usr/bin/nvidia-smi",
	} {
		real, err := filepath.EvalSymlinks(filepath.Join(entries[0], want))
		if err != nil || strings.HasPrefix(want, "usr/lib64") && !strings.HasSuffix(real, ".so."+version) {
			t.Errorf("%s is %q: %v", want, real, err)
		}
	}
	smi := exec.CommandContext(t.Context(), filepath.Join(entries[0], "usr/bin/nvidia-smi"))
	smi.Env = []string{"LD_LIBRARY_PATH=" + filepath.Join(entries[0], "usr/lib64")}
	smi.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	smi.Dir = "/"
	out, err := smi.CombinedOutput()
	t.Logf("nvidia-smi: %v: %s", err, out)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 9 || !strings.Contains(string(out), "NVIDIA driver") {
		t.Errorf("it did not say that no driver is loaded")
	}
}
