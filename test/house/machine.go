package house

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// exception lets one product package outside host do what only host does: calls that match what, as path.Match does.
type exception struct{ dir, what, reason string }

// exceptions lists them all. TestExceptionsNeeded fails for one that nothing needs any more.
func exceptions() []exception {
	return []exception{
		{
			"runtime/gate", "os.Open",
			"the hook is a process of its own that the container runtime starts on the host itself, and must stay small",
		},
		{
			"agent", "os.ReadFile",
			"the configuration file is the process's own: in a container it is mounted there, not below the host root",
		},
		{"agent", "os.Stat", "the hook's program is looked for beside this one"},
		{"agent", "os.Chmod", "the endpoint's own unix socket, where systemd did not make it"},
		{"agent", "os.DirFS", "definition files are read through an fs.FS, on a path that host has resolved"},
		{"cmd/acceld/cli", "os.Stat", "doctor says which configuration file is this process's own"},
		{
			"controller/extender", "os.ReadFile",
			"its certificates are mounted into its own container, and it changes no machine",
		},
		{"controller/leader", "unix.ClockGettime", "it asks the kernel what time it is, and changes no machine"},
		{"controller/replica", "os.ReadFile", "its configuration file is mounted into its own container"},
		{
			"cmd/acceld-prove", "unix.*",
			"a program of its own that gives up its own privileges before it loads a library",
		},
		{"cmd/acceld-nvml", "os.ReadFile", "a program of its own that the agent starts among the host's files"},
		{
			"deviceplugin", "os.*",
			"gRPC servers own their sockets, and the kubelet's directory of them is where this process sees it",
		},
	}
}

func machine(t *Tree) []Finding {
	keep := func(s Source) bool { return s.Product() && s.Top() != "host" }
	return t.inspect(keep, func(s Source, n ast.Node) []Finding {
		pkg, name := selector(s, n)
		if call, ok := n.(*ast.CallExpr); ok {
			pkg, name = selector(s, call.Fun)
			if !(pkg == "golang.org/x/sys/unix" || pkg == "syscall") || plain(name) {
				return nil
			}
		} else if !(pkg == "os" && touches(name) || pkg == "os/exec" && runs(name)) {
			return nil
		}
		if what := path.Base(pkg) + "." + name; !excepted(s, what) {
			return []Finding{t.find(s, n, "%s belongs in host", what)}
		}
		return nil
	})
}

// runs reports whether the function os/exec.<name> finds or prepares a program. Types of the package may be used.
func runs(name string) bool {
	return name == "Command" || name == "CommandContext" || name == "LookPath"
}

// plain reports whether a call of unix.<name> or syscall.<name> only converts a value.
func plain(name string) bool {
	return slices.Contains([]string{
		"Errno", "Signal", "Major", "Minor", "Mkdev", "ByteSliceToString", "ErrnoName",
		"SignalName",
	}, name)
}

func excepted(s Source, what string) bool {
	return slices.ContainsFunc(exceptions(), func(e exception) bool {
		return e.dir == s.Dir() && matches(e.what, what)
	})
}

func matches(pattern, what string) bool {
	ok, err := path.Match(pattern, what)
	return ok && err == nil
}

// touches reports whether the function os.<name> reads or changes files, rather than the process.
func touches(name string) bool {
	for _, prefix := range []string{
		"Open", "Create", "Mkdir", "Remove", "Rename", "Read", "Write", "Stat", "Lstat",
		"Symlink", "Link", "Ch", "Truncate", "DirFS", "CopyFS",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "StartProcess"
}
