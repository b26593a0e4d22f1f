package house

import (
	"fmt"
	"go/ast"
)

// Tests are outside the budgets: a long table of cases is easier to read than the same table in pieces.

func functionLength(t *Tree) []Finding {
	return t.inspect(func(s Source) bool { return !s.Test() }, func(s Source, n ast.Node) []Finding {
		f, ok := n.(*ast.FuncDecl)
		if !ok || t.lines(f) <= t.Limits.Function {
			return nil
		}
		return []Finding{t.find(s, n, "function %s has %d lines, at most %d", f.Name.Name, t.lines(f), t.Limits.Function)}
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
		return []Finding{t.find(s, n, "interface %s has %d methods, at most %d", spec.Name.Name, i.Methods.NumFields(), t.Limits.Interface)}
	})
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
