package kinds

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/cmd/acceld/cli"
	"github.com/acceld/acceld/test/docs"
	"github.com/acceld/acceld/test/machines"
)

const page = "../../docs/definitions.md"

// example returns the definition that docs/definitions.md explains.
func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range docs.Parse(string(text)).Blocks {
		if b.Info == "yaml definition" {
			return b.Text
		}
	}
	t.Fatal("the page has no example")
	return ""
}

// TestTutorial does on a copy of a machine what the page tells a stranger to do.
func TestTutorial(t *testing.T) {
	h := machines.Unpack(t, "eight-accelerators")
	for i, address := range []string{"0000:12:00.0", "0000:16:00.0"} {
		dir := "/sys/bus/pci/devices/" + address
		for name, text := range map[string]string{
			dir + "/state": "operational", dir + "/serial_number": fmt.Sprintf("EX%d", i),
			fmt.Sprintf("%s/accel/foo%d/dev", dir, i):    fmt.Sprintf("261:%d", i),
			fmt.Sprintf("%s/accel/foo%d/uevent", dir, i): fmt.Sprintf("DEVNAME=accel/foo%d", i),
		} {
			if err := h.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := h.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "example-npu.yaml")
	config := filepath.Join(t.TempDir(), "config.yaml")
	for name, text := range map[string]string{file: example(t), config: ""} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"--config=" + config, "--host-root=" + h.Root()}, args...)
		if code := cli.Main(args, strings.NewReader(""), &out, &errs); code != 0 || errs.Len() > 0 {
			t.Fatalf("%q: exit code %d\n%s%s", args, code, &out, &errs)
		}
		return out.String()
	}
	if got := run("definition", "validate", file); !strings.HasSuffix(got, "example-npu.yaml: example-npu is valid\n") {
		t.Errorf("validate: %s", got)
	}
	if err := h.MkdirAll("/etc/acceld/definitions.d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile("/etc/acceld/definitions.d/example-npu.yaml", []byte(example(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, want string }{
		{"definition list", "example-npu         example.com/npu-2       true     8        Example NPU"},
		{"definition show --expand example-npu", "path: /usr/src/fooaccel-2.1"},
		{
			"definition show --expand example-npu",
			"image: registry.example/drivers/fooaccel:v2.1-5.14.0-570.99.1.el9_6.x86_64",
		},
		{"definition show example-npu -o json", `"path": "/usr/src/fooaccel-{{.DriverVersion}}"`},
		{"detect", "0     fooaccel  /dev/accel/foo0  healthy"},
	} {
		if got := run(strings.Fields(c.command)...); !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q in\n%s", c.command, c.want, got)
		}
	}
}

// TestBuiltInAreValid gives the built-in files to the command that users check theirs with. It says which of them have
// no check.
func TestBuiltInAreValid(t *testing.T) {
	files, err := filepath.Glob("../../vendors/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config=" + config, "--host-root=" + machines.Unpack(t, "eight-accelerators").Root()}
	var out, errs bytes.Buffer
	args = append(append(args, "definition", "validate"), files...)
	if code := cli.Main(args, strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, &out, &errs)
	}
	for kind, def := range definitions(t) {
		want := ": " + kind + " is valid\n"
		if def.Check == nil {
			want = ": " + kind + " is valid; it has no check: its devices are offered unchecked\n"
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// TestExampleIsComplete holds the example to the vocabulary: a field of a definition that it does not show is one that
// nobody finds.
func TestExampleIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/definition-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Definition\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		name, ok := strings.CutPrefix(line, "| `")
		// confined is what the host makes of a definition from the cluster.
		if name, _, _ = strings.Cut(name, "`"); ok && name != "confined" && !strings.Contains("\n"+example(t), "\n"+name+":") {
			t.Errorf("the example has no %q", name)
		}
	}
}

// TestTableOfKinds holds the page's table to the definitions.
func TestTableOfKinds(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for kind, def := range definitions(t) {
		on := "yes"
		if def.Enabled != nil && !*def.Enabled {
			on = "no"
		}
		row := "| `" + kind + "` | `" + def.Resource + "` |"
		i := strings.Index(string(text), row)
		if i < 0 {
			t.Errorf("the page has no row %q", row)
			continue
		}
		line, _, _ := strings.Cut(string(text)[i:], "\n")
		if !strings.HasSuffix(line, "| "+on+" |") {
			t.Errorf("%q does not end with %q", line, on)
		}
	}
}
