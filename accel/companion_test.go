package accel

import (
	"strings"
	"testing"
)

func TestCompanionProblems(t *testing.T) {
	good := Companion{
		Name: "fabric", Program: "nv-fabricmanager", Args: []string{"-c", "{{.Root}}/usr/share/x-{{.DriverVersion}}.cfg"},
		Files: []string{"usr/share/nvidia/nvswitch/*"}, Where: "/proc/driver/nvidia-nvswitch/devices/*",
		Directory: "nvidia-fabricmanager", Ready: "/run/nvidia-fabricmanager/socket",
		Config: "usr/share/nvidia/nvswitch/fabricmanager.cfg", Settings: []string{"A_B={{.Root}}/x", "C={{.Config}}", "D="},
	}
	if problems := CompanionProblems([]Companion{good}); len(problems) > 0 {
		t.Error(problems)
	}
	for field, changes := range map[string][]func(c *Companion){
		"name": {
			func(c *Companion) { c.Name = "" }, func(c *Companion) { c.Name = "a.b" },
			func(c *Companion) { c.Name = "*" },
		},
		"program": {
			func(c *Companion) { c.Program = "../sh" }, func(c *Companion) { c.Program = "" },
			func(c *Companion) { c.Program = "-x" },
		},
		"directory": {func(c *Companion) { c.Directory = "a/b" }, func(c *Companion) { c.Directory = ".." }},
		"args": {
			func(c *Companion) { c.Args = []string{"{{.Kernel}}"} }, func(c *Companion) { c.Args = []string{"a\nb"} },
			func(c *Companion) { c.Args = []string{strings.Repeat("a", 300)} },
			func(c *Companion) { c.Args = make([]string, 33) },
			func(c *Companion) { c.Args, c.Config, c.Settings = []string{"{{.Config}}"}, "", nil },
		},
		"files": {
			func(c *Companion) { c.Files = append(c.Files, "/etc/shadow") }, func(c *Companion) { c.Files = append(c.Files, "../etc/shadow") },
			func(c *Companion) { c.Files = append(c.Files, "usr/*/x") }, func(c *Companion) { c.Files = append(c.Files, "usr/[x") },
			func(c *Companion) { c.Files = append(c.Files, "") },
		},
		"config": {
			func(c *Companion) { c.Config = "etc/other.cfg" }, func(c *Companion) { c.Config = "usr/share/nvidia/nvswitch/*" },
		},
		"settings": {
			func(c *Companion) { c.Settings = []string{"A"} }, func(c *Companion) { c.Settings = []string{"=x"} },
			func(c *Companion) { c.Settings = []string{"A=x\nB=y"} }, func(c *Companion) { c.Settings = []string{"A={{.X}}"} },
			func(c *Companion) { c.Config, c.Settings = "", []string{"A=x"} },
		},
		"where": {func(c *Companion) { c.Where = "/etc/x" }, func(c *Companion) { c.Where = "/proc/../etc/x" }},
		"ready": {func(c *Companion) { c.Ready = "/tmp/x" }, func(c *Companion) { c.Ready = "/run/*" }},
	} {
		for i, change := range changes {
			c := good
			change(&c)
			problems := CompanionProblems([]Companion{c})
			if len(problems) != 1 || !strings.HasPrefix(problems[0], "[0]."+field) {
				t.Errorf("%s, change %d: %q", field, i, problems)
			}
		}
	}
	if problems := CompanionProblems([]Companion{good, good}); len(problems) != 1 {
		t.Errorf("two of one name: %q", problems)
	}
	if problems := CompanionProblems(make([]Companion, 9)); len(problems) != 1 {
		t.Errorf("nine: %q", problems)
	}
}

func TestCompanionOf(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/acceld-companion-nvidia-gpu.fabric.service":             "nvidia-gpu",
		"0::/../../system.slice/acceld-companion-nvidia-gpu.fabric.service/sub\n": "nvidia-gpu",
		"12:cpu:/\n1:name=systemd:/system.slice/acceld-companion-a.b.service\n":   "a",
		"0::/kubepods.slice/system.slice/acceld-companion-a.b.service":            "",
		"0::/system.slice/acceld.service":                                         "",
		"0::/system.slice/acceld-companion-a.service":                             "",
		"0::/system.slice/acceld-companion-a.b.scope":                             "",
		"": "",
	} {
		if got := CompanionOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
