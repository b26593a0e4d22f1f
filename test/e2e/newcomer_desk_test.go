package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewcomerDesk is what a reader does at the desk, without a guest: commands in turn, files that blocks name, and
// what goes on until it is interrupted.
func TestNewcomerDesk(t *testing.T) {
	desk := t.TempDir()
	r := &reader{t: t, world: &world{
		desk: desk, env: append(os.Environ(), "WHO=reader"),
		names: []string{"registry.example.com", "127.0.0.1:5000"},
	}}
	if out, status := r.run(atDesk,
		"echo $WHO > said; false | cat said; echo trouble >&2"); out != "reader\ntrouble\n" || status != 0 {
		t.Errorf("status %d: %q", status, out)
	}
	if _, status := r.run(atDesk, "test -s said && (exit 3) | cat"); status != 3 {
		t.Errorf("status %d, want that of the first program of a pipe", status)
	}
	block := step{
		page: "p.md", line: 7, info: "yaml",
		text: "# mine/kustomization.yaml\nimage: registry.example.com/x\n",
	}
	r.write(block)
	r.seen = append(r.seen, block)
	if text, err := os.ReadFile(filepath.Join(desk, "mine/kustomization.yaml")); err != nil ||
		string(text) != "# mine/kustomization.yaml\nimage: 127.0.0.1:5000/x\n" {
		t.Errorf("the file is %q: %v", text, err)
	}
	if got := r.page("image:", "mine"); !strings.Contains(got, "127.0.0.1") {
		t.Errorf("the page has shown %q", got)
	}
	for _, kept := range []bool{false, true} {
		file := filepath.Join(desk, "interrupted")
		r.running = nil
		if out := r.follow(atDesk,
			"bash -c 'trap \"touch interrupted; exit\" INT; echo up; while sleep 0.1; do :; done'",
			kept); out != "up\n" {
			t.Errorf("it shows %q", out)
		}
		_, err := os.Stat(file)
		if over := err == nil; over == kept {
			t.Errorf("interrupted %v, kept %v", over, kept)
		}
		for _, stop := range r.running {
			stop()
		}
		if err := os.Remove(file); err != nil {
			t.Errorf("at the end of the page: %v", err)
		}
	}
	for command, want := range map[string]string{
		"acceld status -o json":                   onNode,
		"sudo cp a b":                             onNode,
		"curl -s http://127.0.0.1:9480/metrics":   onNode,
		"curl --cacert ca.crt https://localhost":  atDesk,
		"ARCHES=amd64 make image":                 atDesk,
		"for n in a b; do kubectl get $n; done":   atDesk,
		"oc apply -f packaging/manifests/ns.yaml": "",
	} {
		if got, err := place(command); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is typed at %q (%v), want %q", command, got, err, want)
		}
	}
}
