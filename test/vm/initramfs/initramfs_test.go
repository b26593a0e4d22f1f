package initramfs

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

func TestWriteIsReadByCpio(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	args := []string{"-itv"}
	if err != nil {
		if cpio, err = exec.LookPath("busybox"); err != nil {
			t.Skip("neither cpio nor busybox is installed")
		}
		args = []string{"cpio", "-tv"}
	}
	var archive bytes.Buffer
	err = Write(&archive, map[string]File{
		"init":        {Mode: 0o755, Content: []byte("#!/bin/sh\n")},
		"/bin/sh":     {Link: "busybox"},
		"bin/busybox": {Mode: 0o755, Content: []byte("x")},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cpio, args...)
	cmd.Stdin = &archive
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"drwxr-xr-x", "bin/sh -> busybox", "bin/busybox", "init"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the archive's listing lacks %q:\n%s", want, out)
		}
	}
}
