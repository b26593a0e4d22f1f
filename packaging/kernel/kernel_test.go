package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHook runs the hook as distributions do, with a program that prints its arguments.
func TestHook(t *testing.T) {
	script, err := os.ReadFile("acceld-preflight")
	if err != nil {
		t.Fatal(err)
	}
	runParts, err := exec.LookPath("run-parts")
	if err != nil {
		runParts = ""
	}
	for name, c := range map[string]struct {
		file, says string
		args       []string
		parts      bool // started by Debian's run-parts
		exit       string
		skip       string
	}{
		"Debian": {
			"zz-acceld", "asked: driver preflight --all --kernel 6.1.0-9-amd64\n",
			[]string{"6.1.0-9-amd64", "/boot/vmlinuz-6.1.0-9-amd64"},
			true, "0", "",
		},
		"Debian, no driver": {
			"zz-acceld", "see above what it will lack",
			[]string{"6.1.0-9-amd64", "/boot/vmlinuz-6.1.0-9-amd64"},
			true, "1", "",
		},
		"Debian, killed":       {"zz-acceld", "see above", []string{"6.1.0-9-amd64"}, true, "137", ""},
		"Debian, told to skip": {"zz-acceld", "", []string{"6.1.0-9-amd64"}, true, "0", "1"},
		"kernel-install, add": {
			"95-acceld.install", "--kernel 6.10.3-200.fc40.x86_64\n",
			[]string{"add", "6.10.3-200.fc40.x86_64", "/boot/x", "/lib/modules/x/vmlinuz"},
			false, "1", "",
		},
		"kernel-install, remove": {
			"95-acceld.install", "",
			[]string{"remove", "6.10.3-200.fc40.x86_64", "/boot/x"},
			false, "0", "",
		},
		"no release":      {"zz-acceld", "", nil, false, "0", ""},
		"strange release": {"zz-acceld", "--kernel a b;c\n", []string{"a b;c"}, false, "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			hooks := filepath.Join(dir, "postinst.d")
			if err := os.Mkdir(hooks, 0o755); err != nil {
				t.Fatal(err)
			}
			hook, program := filepath.Join(hooks, c.file), filepath.Join(dir, "acceld")
			put(t, hook, string(script))
			put(t, program, "#!/bin/sh\necho \"asked: $*\"\nexit "+c.exit+"\n")
			argv := append([]string{hook}, c.args...)
			if c.parts {
				if runParts == "" {
					t.Skip("program run-parts is not installed")
				}
				argv = []string{runParts, "--report", "--exit-on-error"}
				for _, a := range c.args {
					argv = append(argv, "--arg="+a)
				}
				argv = append(argv, hooks)
			}
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "ACCELD="+program, "ACCELD_SKIP_PREFLIGHT="+c.skip)
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil {
				t.Errorf("the kernel's installation fails: %v", err)
			}
			if text := errs.String(); !strings.Contains(text, c.says) || c.says == "" && strings.Contains(text,
				"asked") {
				t.Errorf("said %q, want %q", text, c.says)
			}
			if out.Len() > 0 && !c.parts {
				t.Errorf("standard output is debconf's: %q", out.String())
			}
		})
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "zz-acceld"), string(script))
	cmd := exec.Command(filepath.Join(dir, "zz-acceld"), "6.1")
	cmd.Env = append(os.Environ(), "ACCELD=/no/such/program")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("without the program: %v, %q", err, out)
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
