package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
)

// TestSubjects: the subjects that are here can be read.
func TestSubjects(t *testing.T) {
	t.Setenv("GENERIC_DEVICE_PLUGIN", "/src/plugin")
	t.Setenv("DRA_EXAMPLE_DRIVER", "/src/driver")
	scenarios, err := readScenarios("")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range scenarios {
		known[s.Name] = true
	}
	read := 0
	files, err := filepath.Glob("subjects/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "-class.yaml") {
			continue
		}
		s, err := readSubject(file)
		if err != nil {
			t.Error(err)
			continue
		}
		read++
		for name := range s.NotFor {
			if !known[name] {
				t.Errorf("%s: no scenario is called %q", file, name)
			}
		}
		for _, f := range s.Files {
			if _, err := os.Stat(filepath.Join(s.dir, f.From)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if read < 4 {
		t.Errorf("%d subjects", read)
	}
}

// TestMistakes: what cannot be used is refused, with the file, the place and what is wanted.
func TestMistakes(t *testing.T) {
	const fine = "name: a\nrun: [a]\npod: {check: 'true'}\n"
	for text, want := range map[string]string{
		fine:                                    "want either resource, or deviceClass and driver",
		fine + "resource: a/b\ndriver: c":       "want either resource, or deviceClass and driver",
		fine + "driver: c":                      "belong together",
		"resource: a/b":                         "name: is missing",
		fine + "resource: a/b\nunit: a.service": "want either unit or run",
		"name: a\npod: {check: 'true'}\nresource: a/b":                                     "want either unit or run",
		"name: a\npod: {check: 'true'}\nresource: a/b\nunit: '$(reboot)'":                  "is not the name of a service",
		fine + "resource: a/b\ncolour: red":                                                "colour",
		fine + "resource: a/b\nbuilds: [{package: .}]":                                     "builds[0]: want package and to",
		fine + "resource: a/b\nbuilds: [{package: ., to: /a, dir: '${NO_SUCH_VARIABLE}'}]": "the environment has no NO_SUCH_VARIABLE",
		fine + "resource: a/b\nfiles: [{from: a}]":                                         "files[0]: want from and to",
	} {
		file := filepath.Join(t.TempDir(), "subject.yaml")
		save(t, file, text)
		_, err := readSubject(file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"- {name: a, what: b}":                                         "want name, what and steps",
		"- {name: a, what: b, steps: [{do: dance}]}":                   "is no verb: want one of bus-error, compute",
		"- {name: a, what: b, steps: [{do: restart}]}":                 "want one of subject, kubelet, runtime",
		"- {name: a, what: b, steps: [{do: plug, what: kubelet}]}":     "takes no what",
		"- {name: a, what: b, steps: [{do: plug, slot: 1, slots: 2}]}": "slots",
	} {
		file := filepath.Join(t.TempDir(), "scenarios.yaml")
		save(t, file, text)
		if _, err := readScenarios(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, args := range [][]string{
		{},
		{"-subject", "/nonexistent"},
		{"-subject", "subjects/acceld.yaml", "-devices", "1"},
		{"-subject", "subjects/acceld.yaml", "-run", "nothing"},
		{"-subject", "subjects/acceld.yaml", "more"},
		{"-subject", "subjects/acceld.yaml", "-run", "("},
		{"-subject", "subjects/acceld.yaml", "-scenarios", "/nonexistent"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

func save(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTable: each verdict has its own word, every reason is below, and no text breaks the table.
func TestTable(t *testing.T) {
	scenarios := []*Scenario{{Name: "a", What: "one | two"}, {Name: "b", What: "b"}, {Name: "c", What: "c"}, {Name: "d", What: "d"}}
	columns := []column{{"x v1", []verdict{
		{took: 12400 * time.Millisecond},
		{err: errors.New("step 1, offered: 0 of 2\nmore | text")},
		{notFor: "its devices are mock ones"},
		{untried: true, err: errors.New("the node could not be restored")},
	}}}
	got := table(scenarios, columns)
	want := `| scenario | x v1 |
|---|---|
| a: one \| two | 12 s |
| b: b | **failed** |
| c: c | does not apply |
| d: d | not tried |

- x v1, b: step 1, offered: 0 of 2 more \| text
- x v1, c: does not apply: its devices are mock ones
- x v1, d: the node could not be restored
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if !anyFailed(columns) || anyFailed([]column{{"y", []verdict{{}, {notFor: "x"}}}}) {
		t.Error("the exit status is wrong")
	}
}

// TestCountDevices: only the newest generation of a pool counts, and nothing that a taint holds back.
func TestCountDevices(t *testing.T) {
	slice := func(driver, pool string, generation int64, devices ...resourcev1.Device) (s resourcev1.ResourceSlice) {
		s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Pool.Generation, s.Spec.Devices = driver, pool, generation, devices
		return s
	}
	sick := resourcev1.Device{Taints: []resourcev1.DeviceTaint{{Effect: resourcev1.DeviceTaintEffectNoSchedule}}}
	noted := resourcev1.Device{Taints: []resourcev1.DeviceTaint{{Effect: resourcev1.DeviceTaintEffectNone}}}
	all := []resourcev1.ResourceSlice{
		slice("a", "p", 1, resourcev1.Device{}, resourcev1.Device{}, resourcev1.Device{}),
		slice("a", "p", 2, resourcev1.Device{}, sick, noted),
		slice("a", "q", 1, resourcev1.Device{}),
		slice("b", "p", 9, resourcev1.Device{}),
	}
	if n := countDevices(all, "a"); n != 3 {
		t.Errorf("%d devices, want 3", n)
	}
}

// TestUnit: arguments reach the subject as they are.
func TestUnit(t *testing.T) {
	s := &Subject{Run: []string{"/usr/bin/a", `--device={"path": "/dev/*"}`, "100%", "$HOME", `\`}}
	want := `ExecStart="/usr/bin/a" "--device={\"path\": \"/dev/*\"}" "100%%" "$$HOME" "\\"` + "\n"
	if text := s.unitFile(); !strings.Contains(text, want) {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}

// TestPage: the page describes every verb and every built-in scenario.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/judge.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range verbs() {
		if !bytes.Contains(page, []byte("| `"+name+"` |")) {
			t.Errorf("docs/judge.md has no row for the verb %q", name)
		}
	}
}
