package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

func initFunctions(t *Tree) []Finding {
	return t.inspect(func(Source) bool { return true }, func(s Source, n ast.Node) []Finding {
		if f, ok := n.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			return []Finding{t.find(s, n, "init function")}
		}
		return nil
	})
}

func globals(t *Tree) []Finding {
	var out []Finding
	for _, s := range t.Sources {
		if !s.Product() {
			continue
		}
		for _, d := range s.AST.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				v := spec.(*ast.ValueSpec)
				if embedded(group.Doc) || embedded(v.Doc) {
					continue
				}
				for i, name := range v.Names {
					if name.Name != "_" && (i >= len(v.Values) || !constant(s, v.Values[i])) {
						out = append(out, t.find(s, name, "package variable %s", name.Name))
					}
				}
			}
		}
	}
	return out
}

// embedded reports whether a go:embed directive stands above the variable.
func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// constant reports whether e makes a value that Go cannot declare as a constant and that nothing can change: an error
// sentinel or a compiled pattern.
func constant(s Source, e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	pkg, name := selector(s, call.Fun)
	return slices.Contains([]string{"errors.New", "fmt.Errorf", "regexp.MustCompile"}, pkg+"."+name)
}

func sleep(t *Tree) []Finding {
	return t.inspect(Source.Product, func(s Source, n ast.Node) []Finding {
		if pkg, name := selector(s, n); pkg == "time" && name == "Sleep" {
			return []Finding{t.find(s, n, "time.Sleep: wait for an event, or for a timer and the context")}
		}
		return nil
	})
}

func skips(t *Tree) []Finding {
	return t.inspect(Source.mayTest, func(s Source, n ast.Node) []Finding {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return nil
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return nil
		}
		if pkg, _ := selector(s, fun); pkg != "" {
			return nil
		}
		switch fun.Sel.Name {
		case "SkipNow":
			return []Finding{t.find(s, n, "SkipNow gives no reason")}
		case "Skip", "Skipf":
			if len(call.Args) == 0 || !sentence(call.Args[0]) {
				return []Finding{t.find(s, n, "%s without a literal sentence", fun.Sel.Name)}
			}
		}
		return nil
	})
}

// mayTest reports whether the source imports testing, as tests and their helpers do.
func (s Source) mayTest() bool {
	return slices.ContainsFunc(s.AST.Imports, func(spec *ast.ImportSpec) bool { return importPath(spec) == "testing" })
}

// sentence reports whether e is, or starts with, a string literal of at least two words.
func sentence(e ast.Expr) bool {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return sentence(sum.X)
	}
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING && len(strings.Fields(lit.Value)) >= 2
}
