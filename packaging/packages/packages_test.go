package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// agent is a stand-in for the agent. It records its arguments and fails on request.
const agent = `package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	f, err := os.OpenFile(os.Getenv("CALLS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		fmt.Fprintln(f, "acceld", strings.Join(os.Args[1:], " "))
	}
	if os.Getenv("REFUSES") != "" {
		os.Exit(1)
	}
}
`

// programs creates a directory with tiny static programs in place of acceld's.
func programs(t *testing.T, goarch string) string {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(main, []byte(agent), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o",
		filepath.Join(dir, "acceld"), main)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+goarch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "acceld"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"acceld-hook", "acceld-controller"} {
		if err := os.WriteFile(filepath.Join(dir, p), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// made creates both packages and returns their directory.
func made(t *testing.T, bin, version string) string {
	t.Helper()
	out := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	if err := run([]string{"-bin", bin, "-out", out, "-version", version, "-share", share(t)},
		&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	return out
}

// share creates a small version of what make man writes.
func share(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"man/man8/acceld.8": page("acceld"), "man/man8/acceld-hook.8": page("acceld-hook"),
		"man/man8/acceld-controller.8":       page("acceld-controller"),
		"zsh/vendor-completions/_acceld":     "#compdef acceld\n",
		"bash-completion/completions/acceld": "complete -W status acceld\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func page(name string) string {
	return ".TH " + strings.ToUpper(name) + " 8\n.SH NAME\n" + name + " \\- a page\n.SH DESCRIPTION\nIt is short.\n"
}

// need skips the test if a program is not installed; on the test bed it fails the test.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("ACCELD_TESTBED") != "" {
			t.Fatal(err)
		}
		t.Skip("a program of the distribution that reads packages is not installed: " + program)
	}
}

func output(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

func TestVersion(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for described, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3~rc.1", "v1.2.3-4-gabcdef0": "1.2.3+4.gabcdef0",
		"v1.2.3-rc.1-4-gabcdef0": "1.2.3~rc.1+4.gabcdef0",
		"v1.2.3-dirty":           "1.2.3+dirty", "v1.2.3-4-gabcdef0-dirty": "1.2.3+4.gabcdef0.dirty",
		"abcdef0": "0.0.0+20260304050607.abcdef0", "1234567": "0.0.0+20260304050607.1234567",
		"dev": "0.0.0+20260304050607.dev", "abcdef0-dirty": "0.0.0+20260304050607.abcdef0.dirty",
		"v0.0.0-20260304050607-abcdef012345":        "0.0.0~20260304050607.abcdef012345",
		"1.2.4-0.20260304050607-abcdef012345":       "1.2.4~0.20260304050607.abcdef012345",
		"v1.2.3-rc.1.0.20260304050607-abcdef012345": "1.2.3~rc.1.0.20260304050607.abcdef012345",
		"one": "", "v1.2.3; rm": "", "": "",
	} {
		got, err := Version(described, at)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", described, got, err, want)
		}
	}
	need(t, "dpkg")
	ordered := []string{
		"dev", "v1.0.0-rc.1", "v1.0.0-rc.1-2-gabcdef0", "v1.0.0", "v1.0.0-1-gabcdef0",
		"v1.0.0-12-gabcdef0", "v1.0.1-0.20260304050607-abcdef012345", "v1.0.1",
	}
	for i := 1; i < len(ordered); i++ {
		a, _ := Version(ordered[i-1], at)
		b, _ := Version(ordered[i], at)
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", a, "lt", b).Run(); err != nil {
			t.Errorf("dpkg does not put %s before %s", a, b)
		}
	}
}

// The same programs give the same bytes.
func TestReproducible(t *testing.T) {
	bin := programs(t, "amd64")
	first, second := made(t, bin, "v1.2.3"), made(t, bin, "v1.2.3")
	for _, name := range []string{"acceld_1.2.3_amd64.deb", "acceld-1.2.3-1.x86_64.rpm"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", name)
		}
	}
}

// both lists the files of both packages that no glob finds.
const both = `/etc/acceld/config.yaml
/etc/acceld/definitions.d
/usr/bin/acceld
/usr/bin/acceld-hook
/usr/lib/systemd/system/acceld-early.service
/usr/lib/systemd/system/acceld.service
/usr/lib/systemd/system/acceld.socket
/usr/share/doc/acceld/config.yaml
/usr/share/doc/acceld/schemas/config.json
/usr/share/bash-completion/completions/acceld
/usr/share/man/man8/acceld.8.gz
`

func TestDeb(t *testing.T) {
	need(t, "dpkg-deb")
	deb := filepath.Join(made(t, programs(t, "arm64"), "v1.2.3-rc.1"), "acceld_1.2.3~rc.1_arm64.deb")
	list := output(t, "dpkg-deb", "--contents", deb)
	for _, want := range strings.Fields(both +
		"/etc/kernel/postinst.d/zz-acceld /etc/kernel/header_postinst.d/zz-acceld /usr/share/doc/acceld/changelog.gz /usr/share/doc/acceld/copyright /usr/share/zsh/vendor-completions/_acceld") {
		if !strings.Contains(list, " ."+want+"\n") && !strings.Contains(list, " ."+want+"/\n") {
			t.Errorf("it lacks %s:\n%s", want, list)
		}
	}
	if strings.Contains(list, "acceld-controller") || strings.Contains(list, ".install") {
		t.Errorf("too much is in it:\n%s", list)
	}
	for line := range strings.Lines(list) {
		if !strings.Contains(line, "root/root") || !strings.Contains(line, "2026-01-01 ") {
			t.Errorf("owner or time: %s", line)
		}
	}
	if got, want := output(t, "dpkg-deb", "--field", deb, "Package", "Version", "Architecture"),
		"Package: acceld\nVersion: 1.2.3~rc.1\nArchitecture: arm64\n"; got != want {
		t.Errorf("fields %q, want %q", got, want)
	}
	want := "/etc/acceld/config.yaml\n/etc/kernel/header_postinst.d/zz-acceld\n/etc/kernel/postinst.d/zz-acceld\n"
	if diff := cmp.Diff(want, output(t, "dpkg-deb", "--info", deb, "conffiles")); diff != "" {
		t.Errorf("configuration files (-want +got):\n%s", diff)
	}
}

func TestRPM(t *testing.T) {
	need(t, "rpm")
	file := filepath.Join(made(t, programs(t, "amd64"), "v1.2.3"), "acceld-1.2.3-1.x86_64.rpm")
	list := output(t, "rpm", "-qpl", file)
	for _, want := range strings.Fields(both +
		"/usr/lib/kernel/install.d/95-acceld.install /etc/acceld /usr/share/doc/acceld /usr/share/doc/acceld/schemas /usr/share/zsh/site-functions /usr/share/licenses/acceld /usr/share/licenses/acceld/LICENSE /usr/share/zsh/site-functions/_acceld") {
		if !strings.Contains(list, want+"\n") {
			t.Errorf("it lacks %s:\n%s", want, list)
		}
	}
	if strings.Contains(list, "acceld-controller") || strings.Contains(list, "/etc/kernel") ||
		strings.Contains(list, "/usr/share\n") {
		t.Errorf("too much is in it:\n%s", list)
	}
	if got := output(t, "rpm", "-qp", "--configfiles", file); got != "/etc/acceld/config.yaml\n" {
		t.Errorf("configuration files %q", got)
	}
	if got := output(t, "rpm", "-qp", "--queryformat", "%{NAME} %{VERSION} %{ARCH} %{LICENSE}",
		file); got != "acceld 1.2.3 x86_64 Apache-2.0" {
		t.Errorf("it is %q", got)
	}
}

// A script with a syntax error ends an upgrade halfway. TestLifeOfADeb and TestLifeOfAnRPM test what the scripts do.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("*/p*")
	if err != nil || len(scripts) != 6 {
		t.Fatalf("%q, %v", scripts, err)
	}
	for _, s := range scripts {
		output(t, "sh", "-n", s)
	}
}

// TestLifeOfADeb has dpkg install, upgrade, remove and purge the package below a directory.
func TestLifeOfADeb(t *testing.T) {
	need(t, "dpkg")
	if os.Getuid() != 0 {
		t.Skip("dpkg makes files of root, and this is somebody else")
	}
	bin := programs(t, "amd64")
	old, young := filepath.Join(made(t, bin, "v1.0.0"), "acceld_1.0.0_amd64.deb"), filepath.Join(made(t, bin, "v1.1.0"),
		"acceld_1.1.0_amd64.deb")
	root, fakes, calls := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "calls")
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"deb-systemd-helper", "deb-systemd-invoke", "systemctl"} {
		if err := os.WriteFile(filepath.Join(fakes, program), []byte("#!/bin/sh\necho \"${0##*/} $*\" >>\"$CALLS\"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
	}
	// dpkg runs dpkg, checks whether it succeeds as expected, and returns the recorded calls.
	dpkg := func(wellOrNot bool, env string, args ...string) []string {
		t.Helper()
		_ = os.Remove(calls)
		cmd := exec.CommandContext(t.Context(), "dpkg",
			append([]string{"--root=" + root, "--force-script-chrootless", "--force-architecture", "--force-confold"},
				args...)...)
		cmd.Env = append(os.Environ(), "PATH="+fakes+":"+os.Getenv("PATH"), "CALLS="+calls,
			"DEBIAN_FRONTEND=noninteractive", env)
		if out, err := cmd.CombinedOutput(); (err == nil) != wellOrNot {
			t.Fatalf("dpkg %q: %v\n%s", args, err, out)
		}
		said, err := os.ReadFile(calls)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Split(strings.ReplaceAll(strings.TrimSpace(string(said)), root, "ROOT"), "\n")
	}
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(root, name))
		return err == nil
	}
	enabled := []string{}
	for _, unit := range []string{"acceld.socket", "acceld.service", "acceld-early.service"} {
		enabled = append(enabled, "deb-systemd-helper --quiet was-enabled "+unit, "deb-systemd-helper enable "+unit,
			"deb-systemd-helper update-state "+unit)
	}
	keep := "var/lib/acceld-package"
	if diff := cmp.Diff(enabled, dpkg(true, "", "-i", old)); diff != "" || !exists("usr/bin/acceld") {
		t.Errorf("installed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(enabled, dpkg(true, "", "-i", young)); diff != "" || exists(keep) {
		t.Errorf("upgraded (-want +got):\n%s", diff)
	}
	config := filepath.Join(root, "etc/acceld/config.yaml")
	if err := os.WriteFile(config, []byte("logLevel: debug\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{""}, dpkg(true, "", "-r", "acceld")); diff != "" || exists("usr/bin/acceld") ||
		!exists("etc/acceld/config.yaml") {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	purge := fmt.Sprintf("acceld purge --host-root ROOT --config ROOT/%s/config.yaml", keep)
	if diff := cmp.Diff([]string{purge}, dpkg(false, "REFUSES=1", "-P", "acceld")); diff != "" ||
		!exists(keep+"/acceld") {
		t.Errorf("not all could be taken back (-want +got):\n%s", diff)
	}
	if kept, err := os.ReadFile(filepath.Join(root, keep, "config.yaml")); err != nil ||
		string(kept) != "logLevel: debug\n" {
		t.Errorf("the purge would read %q, %v", kept, err)
	}
	last := []string{purge, "deb-systemd-helper purge acceld.socket acceld.service acceld-early.service"}
	if diff := cmp.Diff(last, dpkg(true, "", "-P", "acceld")); diff != "" {
		t.Errorf("purged (-want +got):\n%s", diff)
	}
	for _, name := range []string{keep, "etc/acceld", "usr/share/doc/acceld", "etc/kernel/postinst.d/zz-acceld"} {
		if exists(name) {
			t.Errorf("%s is left", name)
		}
	}
	dpkg(true, "", "-i", old)
	dpkg(true, "", "-r", "acceld")
	if dpkg(true, "", "-i", young); exists(keep) {
		t.Error("what was kept for a purge stays when the package is back")
	}
}

// The deb passes Debian's own checks. Each override has its reason next to it.
func TestLintian(t *testing.T) {
	need(t, "lintian")
	deb := filepath.Join(made(t, programs(t, "amd64"), "v1.2.3"), "acceld_1.2.3_amd64.deb")
	out, err := exec.CommandContext(t.Context(), "lintian", "--allow-root", "--fail-on=error,warning",
		deb).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	bin := programs(t, "amd64")
	spoilt := func(do func(dir string) error) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(bin)); err != nil {
			t.Fatal(err)
		}
		if err := do(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	foreign, err := os.ReadFile(filepath.Join(programs(t, "arm64"), "acceld"))
	if err != nil {
		t.Fatal(err)
	}
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, "acceld-hook"), data, 0o755) }
	}
	for want, args := range map[string][]string{
		`cannot find program "acceld-hook"`: {"-bin", spoilt(func(dir string) error {
			return os.Remove(filepath.Join(dir, "acceld-hook"))
		})},
		"the others are for amd64":          {"-bin", spoilt(put(foreign))},
		"it is not static":                  {"-bin", spoilt(put(shell))},
		"bad magic number":                  {"-bin", spoilt(put([]byte("#!/bin/sh\nexit 0\n")))},
		`cannot make a version of "x y"`:    {"-bin", bin, "-version", "x y"},
		"cannot find \"systemd/*.service\"": {"-bin", bin, "-root", t.TempDir()},
	} {
		out := t.TempDir()
		if err := run(append(args, "-out", out), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("packages %q: %v; want %q", args, err, want)
		}
		if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
			t.Errorf("packages %q: left %v, %v", args, left, err)
		}
	}
}
