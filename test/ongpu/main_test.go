package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestReport: the report has what was noted, and none of what identifies the machine.
func TestReport(t *testing.T) {
	x := &trial{kind: "example-card", machine: accel.Machine{Have: map[string]accel.Have{
		"example-card": {Accelerators: []accel.Accelerator{{Serial: "SN-123456", UUID: "GPU-abcdef"}}},
	}}}
	x.learn()
	x.sections = []section{{"metrics", `accelerator_info{serial="SN-123456",uuid="GPU-abcdef"} 1`}}
	got := x.report()
	if !strings.Contains(got, "# acceld with example-card") || !strings.Contains(got, `serial="***",uuid="***"`) {
		t.Error(got)
	}
}

func TestLines(t *testing.T) {
	got := lines("a 1\nb 2\na 3", func(line string) bool { return strings.HasPrefix(line, "a") })
	if got != "a 1\na 3" {
		t.Errorf("%q", got)
	}
}

// TestSmallRoot: a program of this machine starts in the root, which has a loader and a C library and nothing else.
func TestSmallRoot(t *testing.T) {
	program := "/bin/true"
	if _, err := loader(program); err != nil {
		t.Skip("/bin/true is not linked to a C library")
	}
	root := t.TempDir()
	if err := smallRoot(root, program, "/program"); err != nil {
		t.Fatal(err)
	}
	interpreter, err := loader(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"program", interpreter} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := smallRoot(t.TempDir(), filepath.Join(root, "absent"), "/program"); err == nil {
		t.Error("a program that is not there has a root")
	}
	if os.Getuid() != 0 {
		return
	}
	cmd := exec.Command("/program")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
