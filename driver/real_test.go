package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/ko"
)

// TestRealBuild builds the repository's own driver, twice, against the headers of a kernel of this machine. It is
// slow, so only make test runs it.
func TestRealBuild(t *testing.T) {
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("compiles a real module: needs ACCELD_TESTBED=1 and kernel headers")
	}
	source, err := filepath.Abs("../test/edu/module")
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob("/lib/modules/*/build/Module.symvers")
	if len(found) == 0 {
		t.Fatal("no kernel headers are installed: /lib/modules/*/build is not there")
	}
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	release := strings.Split(found[len(found)-1], "/")[3]
	var lines []string
	def := ko.Definition()
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: source}}
	facts := accel.Facts{Kernel: accel.Kernel{
		Release: release, Version: "#1", Arch: "x86_64",
		Headers: "/lib/modules/" + release + "/build",
	}}
	keys := map[string]string{}
	for range 2 {
		state := t.TempDir()
		d := New(h, Options{StateDir: state, Jobs: 2, Progress: func(p accel.Progress) {
			lines = append(lines, fmt.Sprintf("%+v", p))
		}})
		e, problem := d.sources.Build(context.Background(), def, facts)
		if problem != nil {
			t.Fatal(problem)
		}
		if keys[e.Key] != "" && keys[e.Key] != e.Modules[0].SHA256 {
			t.Errorf("the same key gave %s and %s: the build is not reproducible", keys[e.Key], e.Modules[0].SHA256)
		}
		keys[e.Key] = e.Modules[0].SHA256
		if left, _ := os.ReadDir(filepath.Join(state, "build")); len(left) != 0 {
			t.Errorf("the build left %v", left)
		}
		a := ask(t, d, def, facts, accel.SourceStore)
		if a.Problem != nil {
			t.Fatal(a.Problem)
		}
		a.Plan.Close()
		t.Logf("%+v", e.Manifest)
	}
	if len(keys) != 1 {
		t.Errorf("two builds of one source have keys %v", keys)
	}
	if len(lines) == 0 {
		t.Error("no progress was told")
	}
	t.Log(strings.Join(lines, "\n"))
}
