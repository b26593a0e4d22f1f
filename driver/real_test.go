package driver

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// TestRealBuild builds the repository's own driver against the headers of each kernel that this machine has.
func TestRealBuild(t *testing.T) {
	source, err := filepath.Abs("../test/edu/module")
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob("/lib/modules/*/build/Module.symvers")
	if len(found) == 0 {
		t.Skip("no kernel headers are installed")
	}
	if testing.Short() {
		t.Skip("compiling a real module takes its time, and -short was asked for")
	}
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	release := strings.Split(found[len(found)-1], "/")[3]
	var lines []string
	def := eduDefinition()
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBuild, Path: source}}
	facts := accel.Facts{Kernel: accel.Kernel{Release: release, Version: "#1", Arch: "x86_64", Headers: "/lib/modules/" + release + "/build"}}
	keys := map[string]string{}
	for range 2 {
		state := t.TempDir()
		d := New(h, Options{StateDir: state, Jobs: 2, Progress: func(_, line string) { lines = append(lines, line) }})
		e, problem := d.Build(context.Background(), def, facts)
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
		where := []located{{def.Driver.Modules[0], filepath.Join(e.Path, e.Modules[0].File)}}
		p, problem := d.makePlan(def, facts, accel.SourceStore, e.Key, where)
		if problem != nil {
			t.Fatal(problem)
		}
		p.close()
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
