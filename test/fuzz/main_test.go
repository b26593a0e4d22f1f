package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// module writes a module with these test files.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "module example.com/x\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const good = `package a

import "testing"

func FuzzGood(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }
`

const bad = `package b

import "testing"

func FuzzBad(f *testing.F) {
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) { t.Fatal("found") })
}
`

// TestTargets: the targets of a module are found, and nothing that is another module or test data.
func TestTargets(t *testing.T) {
	root := module(t, map[string]string{
		"a/a_test.go": good, "a/testdata/b_test.go": bad, "other/go.mod": "module other\n", "other/b_test.go": bad,
	})
	got, err := targets(root)
	if want := []target{{"./a", "FuzzGood"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWithoutResult: a run is repeated only if its time ran out and it found nothing.
func TestWithoutResult(t *testing.T) {
	over := "fuzz: elapsed: 6s, execs: 6271 (0/sec)\n--- FAIL: FuzzX (6.05s)\n    context deadline exceeded\nFAIL\n"
	for output, want := range map[string]bool{
		over: true, "": false,
		"--- FAIL: FuzzX (1s)\n    --- FAIL: FuzzX (0s)\n        x_test.go:7: found\n": false,
		over + "Failing input written to testdata/fuzz/FuzzX/1\n":                      false,
		"--- FAIL: FuzzX (1s)\n    fuzzing process hung or terminated unexpectedly\n":  false,
	} {
		if withoutResult([]byte(output)) != want {
			t.Errorf("%q: %t", output, !want)
		}
	}
}

// TestRun: a target that fails is named with what it said, and the others are run all the same.
func TestRun(t *testing.T) {
	root := module(t, map[string]string{"b/b_test.go": bad, "c/a_test.go": good})
	var out strings.Builder
	err := run(t.Context(), &out, root, "", 2, 100*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "FuzzBad in ./b") || !strings.Contains(err.Error(), "found") {
		t.Errorf("error: %v", err)
	}
	if !strings.Contains(out.String(), "./c FuzzGood") || !strings.Contains(out.String(), "ok") {
		t.Errorf("output: %s", out.String())
	}
	if err := run(t.Context(), &out, root, "nothing", 1, time.Second); err == nil {
		t.Error("no target is no error")
	}
}
