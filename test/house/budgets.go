package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// Tests are outside the budgets: a long table of cases is easier to read than the same table in pieces.

func functionLength(t *Tree) []Finding {
	return t.inspect(func(s Source) bool { return !s.Test() }, func(s Source, n ast.Node) []Finding {
		f, ok := n.(*ast.FuncDecl)
		if !ok || t.lines(f) <= t.Limits.Function {
			return nil
		}
		return []Finding{t.find(s, n, "function %s has %d lines, at most %d", f.Name.Name, t.lines(f),
			t.Limits.Function)}
	})
}

func fileLength(t *Tree) []Finding {
	var out []Finding
	for _, s := range t.Sources {
		if !s.Test() && s.Lines > t.Limits.File {
			out = append(out, Finding{s.Path, 0, fmt.Sprintf("%d lines, at most %d", s.Lines, t.Limits.File)})
		}
	}
	return out
}

func interfaceSize(t *Tree) []Finding {
	return t.inspect(Source.Product, func(s Source, n ast.Node) []Finding {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return nil
		}
		i, ok := spec.Type.(*ast.InterfaceType)
		if !ok || i.Methods.NumFields() <= t.Limits.Interface {
			return nil
		}
		return []Finding{t.find(s, n, "interface %s has %d methods, at most %d", spec.Name.Name, i.Methods.NumFields(),
			t.Limits.Interface)}
	})
}

// largeTypes have more methods than a type may have, until they are split. TestLargeTypesNeeded fails for one that is.
func largeTypes() []string { return []string{"host.Host"} }

func methods(t *Tree) []Finding {
	var out []Finding
	for name, n := range methodCounts(t) {
		if n > t.Limits.Methods && !slices.Contains(largeTypes(), name) {
			dir, typ, _ := strings.Cut(name, ".")
			out = append(out, Finding{dir, 0, fmt.Sprintf("type %s has %d methods, at most %d", typ, n,
				t.Limits.Methods)})
		}
	}
	return out
}

// methodCounts counts the methods that each type of the product declares, by directory and name.
func methodCounts(t *Tree) map[string]int {
	counts := map[string]int{}
	for _, s := range t.Sources {
		if !s.Product() {
			continue
		}
		for _, d := range s.AST.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				counts[s.Dir()+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	}
	return counts
}

// receiver is the name of the type that a method is declared on.
func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

func mainLength(t *Tree) []Finding {
	return t.inspect(Source.Product, func(s Source, n ast.Node) []Finding {
		f, ok := n.(*ast.FuncDecl)
		if !ok || f.Name.Name != "main" || f.Recv != nil || s.AST.Name.Name != "main" || s.Lines <= t.Limits.Main {
			return nil
		}
		return []Finding{t.find(s, n, "%d lines in the file of main, at most %d", s.Lines, t.Limits.Main)}
	})
}
