package kubelet

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/node-e2e.md has a row for every node test about devices of the Kubernetes that this module is built with.
func TestPageIsWhole(t *testing.T) {
	if !newest {
		t.Skip("the page is about the tests of the newest kubelet")
	}
	page, err := os.ReadFile("../../docs/node-e2e.md")
	if err != nil {
		t.Fatal(err)
	}
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}",
		"k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(module)), " ")
	if !strings.Contains(string(page), "/tree/"+version+"/") {
		t.Errorf("the page is not about %s", version)
	}
	files, err := filepath.Glob(filepath.Join(dir, "test/e2e_node/device*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of device plugins below %s: %v", dir, err)
	}
	for _, f := range append(files, filepath.Join(dir, "test/e2e_node/podresources_test.go"),
		filepath.Join(dir, "test/e2e_node/dra_test.go")) {
		_, section, found := strings.Cut(string(page), "\n## "+filepath.Base(f)+"\n")
		if !found {
			t.Errorf("the page has no section %s", filepath.Base(f))
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		names := ginkgoTests(t, f)
		if rows := strings.Count(section, "\n| `"); rows != len(names) || rows == 0 {
			t.Errorf("%s has %d tests, the page %d rows", filepath.Base(f), len(names), rows)
		}
		for _, name := range names {
			same := len(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != name }))
			if rows := strings.Count(section, "\n| `"+name+"`"); rows != same {
				t.Errorf("%s has %q %d times, the page %d times", filepath.Base(f), name, same, rows)
			}
		}
	}
}

// ginkgoTests are the names of the tests in a file of Ginkgo's.
func ginkgoTests(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		fn, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || fn.Sel.Name != "It" && fn.Sel.Name != "DescribeTable" {
			return true
		}
		if l, ok := call.Args[0].(*ast.BasicLit); ok {
			if name, err := strconv.Unquote(l.Value); err == nil {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}
