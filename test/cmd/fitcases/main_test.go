package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestCases runs our own file.
func TestCases(t *testing.T) {
	data, err := os.ReadFile("testdata/cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 43 {
		t.Errorf("%d cases, there were 43", len(cases))
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			if err := c.run(); err != nil {
				t.Errorf("%s: %v", c.Title, err)
			}
		})
	}
}

// TestRun shows that a wrong case is told, and that a file without any is no success.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		file, out string
		status    int
	}{
		"right": {
			"cases:\n- id: X1\n  nodes: [{name: n, cards: \"0\", alloc: {i915: 1}}]\n  pods: [{name: p, containers: [{i915: 1}]}]\n  steps: [{filter: p, on: [n], pass: [n]}]\n",
			"", 0,
		},
		"wrong": {
			"cases:\n- id: X2\n  title: none\n  nodes: [{name: n, cards: \"0\", alloc: {i915: 1}}]\n  pods: [{name: p, containers: [{i915: 1}]}]\n  steps: [{filter: p, on: [n], pass: []}]\n",
			"X2: none: step 0: filter p passes [n], want [] (map[])\n", 1,
		},
		"nonsense": {"cases:\n- id: X3\n  steps: [{fly: p}]\n", "X3: : step 0: nobody knows such a step\n", 1},
		"empty":    {"cases: []\n", "", 2},
	} {
		file := t.TempDir() + "/cases.yaml"
		if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if status := run([]string{file}, &out, &errs); status != c.status || !strings.HasPrefix(out.String(), c.out) {
			t.Errorf("%s: status %d, %q, %q", name, status, out.String(), errs.String())
		}
	}
}
