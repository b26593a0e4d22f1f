package build

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestHeaders finds the headers in each distribution's layout. Each distribution has one file in testdata/headers,
// with links written as "name -> text". Its comment states what is expected: os, kernel, and the directory or the
// reason with its sentence.
func TestHeaders(t *testing.T) {
	files, err := filepath.Glob("testdata/headers/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for line := range strings.Lines(string(archive.Comment)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			want[key] = value
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			root := t.TempDir()
			for _, f := range archive.Files {
				name, link, isLink := strings.Cut(f.Name, " -> ")
				name = filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if isLink {
					err = os.Symlink(link, name)
				} else {
					err = os.WriteFile(name, f.Data, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			h, err := host.New(root)
			if err != nil {
				t.Fatal(err)
			}
			facts := accel.Facts{
				Kernel: accel.Kernel{Release: want["kernel"], Arch: "x86_64"},
				OS:     accel.OS{ID: want["os"]},
			}
			dir, problem := New(h, Options{Log: slog.New(slog.DiscardHandler)}).headers(facts)
			if dir != want["headers"] {
				t.Errorf("headers in %q, want %q", dir, want["headers"])
			}
			if want["reason"] != "" && (problem == nil || string(problem.Reason) != want["reason"]) ||
				want["reason"] == "" && problem != nil {
				t.Fatalf("%v, want %q", problem, want["reason"])
			}
			for _, key := range []string{"says", "package"} {
				if want[key] != "" && !strings.Contains(problem.Message, want[key]) {
					t.Errorf("%q does not say %q", problem.Message, want[key])
				}
			}
		})
	}
}

func TestMatchingCompiler(t *testing.T) {
	out, err := exec.Command("gcc", "-dumpversion").Output()
	if err != nil {
		t.Skipf("program %q is not installed: %v", "gcc", err)
	}
	major, _, _ := strings.Cut(strings.TrimSpace(string(out)), ".")
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	d := machineTools(h)
	const plugins = "CONFIG_GCC_PLUGINS=y\n"
	for name, c := range map[string]struct {
		config string
		other  bool
		says   string
	}{
		"no configuration": {"", false, ""},
		"the kernel's": {"\nCONFIG_CC_VERSION_TEXT=\"gcc-" + major + " (Debian " + major + ".2.0-14) " + major +
			".2.0\"\n", false, ""},
		"its plugins too": {plugins + "CONFIG_CC_VERSION_TEXT=\"gcc (GCC) " + major + ".4.1 20231218 (Red Hat " +
			major + ".4.1-3)\"\n", false, ""},
		"another": {
			"CONFIG_CC_VERSION_TEXT=\"gcc (GCC) 7.5.0\"\n", false,
			`kernel "k" was built with "gcc (GCC) 7.5.0", gcc here is ` + major + ".",
		},
		"another, allowed": {"CONFIG_CC_VERSION_TEXT=\"gcc (GCC) 7.5.0\"\n", true, ""},
		"plugins": {
			plugins + "CONFIG_CC_VERSION_TEXT=\"gcc (GCC) 7.5.0\"\n", true,
			"compiler plugins, which need the same: install package \"gcc-7\"",
		},
	} {
		cc, problem := d.matchingCompiler(t.Context(), accel.Facts{Kernel: accel.Kernel{Release: "k"}}, "gcc", c.config,
			c.other)
		if (problem == nil) != (c.says == "") || problem != nil && (problem.Reason != accel.CompilerMismatch ||
			!strings.Contains(problem.Message, c.says)) {
			t.Errorf("%s: %q, %v, want %q", name, cc, problem, c.says)
		}
	}
}

func TestMajorOf(t *testing.T) {
	for text, want := range map[string]string{
		"gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0":                               "12",
		"x86_64-linux-gnu-gcc-11 (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0":          "11",
		"gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)":                           "11",
		"gcc (SUSE Linux) 7.5.0":                                                 "7",
		"gcc (GCC) 14.1.1 20240607 (Red Hat 14.1.1-5)":                           "14",
		"clang version 17.0.6 (Fedora 17.0.6-2.fc39)":                            "17",
		"Debian clang version 16.0.6 (15~deb12u1)":                               "16",
		"aarch64-none-linux-gnu-gcc (GNU Toolchain for Arm 10.3-2021.07) 10.3.1": "10",
		"":   "",
		"cc": "",
	} {
		if got := majorOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestHeadersPackage(t *testing.T) {
	for _, c := range [][3]string{
		{"debian", "6.1.0-56-amd64", "linux-headers-6.1.0-56-amd64"},
		{"ubuntu", "5.15.0-1-generic", "linux-headers-5.15.0-1-generic"},
		{"rhel", "5.14.0-1.el9.x86_64", "kernel-devel-5.14.0-1.el9.x86_64"},
		{"fedora", "6.9.1-200.fc40.x86_64", "kernel-devel-6.9.1-200.fc40.x86_64"},
		{"ol", "5.15.0-1.el8uek.x86_64", "kernel-uek-devel-5.15.0-1.el8uek.x86_64"},
		{"sles", "6.4.0-150600.23-default", "kernel-default-devel"},
		{"alpine", "6.6.52-0-lts", "linux-lts-dev"},
		{"strange", "1", "the build headers of kernel 1"},
	} {
		if got := headersPackage(accel.OS{ID: c[0]}, c[1]); got != c[2] {
			t.Errorf("%v: %q", c, got)
		}
	}
}
