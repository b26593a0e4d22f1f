package house

import (
	"go/ast"
)

// goroutines looks for goroutines that package guard does not start. A panic in one of those ends the whole program.
func goroutines(t *Tree) []Finding {
	keep := func(s Source) bool { return s.Product() && s.Top() != "guard" && s.Dir() != "host/hosttest" }
	return t.inspect(keep, func(s Source, n ast.Node) []Finding {
		switch x := n.(type) {
		case *ast.GoStmt:
			return []Finding{t.find(s, n, "a goroutine starts outside of package guard")}
		case *ast.SelectorExpr:
			if pkg, name := selector(s, x); pkg == "sync" && name == "WaitGroup" {
				return []Finding{t.find(s, n, "sync.WaitGroup: guard.Group catches panics")}
			}
		case *ast.ImportSpec:
			if importPath(x) == "golang.org/x/sync/errgroup" {
				return []Finding{t.find(s, n, "errgroup: guard.Together catches panics")}
			}
		}
		return nil
	})
}

// wiring looks in cmd for what belongs below it: health that was not judged by anybody, and work that goes on by
// itself. Signals are channels that os/signal fills, which take no goroutine of ours.
func wiring(t *Tree) []Finding {
	keep := func(s Source) bool { return s.Product() && s.Top() == "cmd" && !vendorProgram(s) }
	return t.inspect(keep, func(s Source, n ast.Node) []Finding {
		switch x := n.(type) {
		case *ast.GoStmt:
			return []Finding{t.find(s, n, "a goroutine starts in cmd")}
		case *ast.CallExpr:
			if f, ok := x.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Go" {
				return []Finding{t.find(s, n, "a goroutine starts in cmd")}
			}
		case *ast.CompositeLit:
			if pkg, name := selector(s, x.Type); pkg == t.Module+"/accel" && name == "Health" && len(x.Elts) > 0 {
				return []Finding{t.find(s, n, "a health is made up in cmd")}
			}
		}
		return nil
	})
}
