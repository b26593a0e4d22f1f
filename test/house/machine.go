package house

import (
	"go/ast"
	"slices"
	"strings"
)

// exception lets one product package outside host do one of the things that only host does.
type exception struct{ dir, what, reason string }

// exceptions lists them all. TestExceptionsNeeded fails for one that nothing needs any more.
func exceptions() []exception {
	return []exception{
		{"runtime/gate", "os.Open", "the hook is a process of its own that the container runtime starts on the host itself, and must stay small"},
		{"agent", "os.ReadFile", "the configuration file is the process's own: in a container it is mounted there, not below the host root"},
	}
}

func machine(t *Tree) []Finding {
	keep := func(s Source) bool { return s.Product() && s.Top() != "host" }
	return t.inspect(keep, func(s Source, n ast.Node) []Finding {
		if spec, ok := n.(*ast.ImportSpec); ok {
			if p := importPath(spec); p == "os/exec" || p == "golang.org/x/sys/unix" {
				return []Finding{t.find(s, n, "%s belongs in host", p)}
			}
			return nil
		}
		if pkg, name := selector(s, n); pkg == "os" && touches(name) && !excepted(s, "os."+name) {
			return []Finding{t.find(s, n, "os.%s belongs in host", name)}
		}
		return nil
	})
}

func excepted(s Source, what string) bool {
	return slices.ContainsFunc(exceptions(), func(e exception) bool { return e.dir == s.Dir() && e.what == what })
}

// touches reports whether the function os.<name> reads or changes files, rather than the process.
func touches(name string) bool {
	for _, prefix := range []string{"Open", "Create", "Mkdir", "Remove", "Rename", "Read", "Write", "Stat", "Lstat", "Symlink", "Link", "Ch", "Truncate", "DirFS", "CopyFS"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "StartProcess"
}
