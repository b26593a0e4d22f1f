package guard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ends are the goroutines that package guard does not keep running, by function, and what their end tells to whom: a
// panic in one of them must not go unnoticed. Those that run for as long as the program does are kept instead.
func ends() map[string]string {
	return map[string]string{
		"agent.Agent.answer":                "the end of one hook's connection, which counts as its end",
		"agent.Agent.serveHooks":            "one hook: its connection closes, and it is refused",
		"agent.Await":                       "one wait: the caller goes on when it has ended",
		"agent.Board.Watch":                 "the progress of a command, whose end panics then",
		"agent.checks.all":                  "one call: Wait panics in it",
		"agent.plugins.serve":               "what it keeps is the plugin of a slot",
		"agent/client.Client.Watch":         "the stream of a command",
		"agent/client.Client.WatchProgress": "the stream of a command",
		"agent/loop.worker.background":      "a step: a panic is its problem",
		"agent/loop.worker.sample":          "a sample: a panic is its problem",
		"controller/extender.Serve":         "a panic is the error of Serve",
		"controller/policy.Remove":          "what it keeps ends with the command",
		"agent.newAgent":                    "reads the surroundings once: surveyed is closed in any case",
		"detect.detect":                     "one reading: Wait panics in its caller",
		"detect.TimeoutReader.Read":         "one reading: Read panics",
		"detect.timeoutCollect":             "one reading: a panic is its error",
		"deviceplugin.Plugin.attend":        "one request: its answer is an error",
		"deviceplugin.Plugin.introduce":     "one request: its answer is a problem",
		"deviceplugin.Plugin.serve":         "gRPC's loop, in which no code of acceld runs",
		"deviceplugin.bounded":              "one call: a panic is its error",
		"deviceplugin.service.inherit":      "gRPC's loop, in which no code of acceld runs",
		"dra.ahead.begin":                   "makes the parts of one claim: its end is reported in any case",
		"dra.each":                          "one call: Wait panics in it",
		"dra.service.listen":                "gRPC's loop, in which no code of acceld runs",
		"driver.resetting.end":              "waits for the kernel and releases a lock",
		"driver.selfTest.run":               "one step: Wait panics in it",
		"driver/deadline.Operations.Within": "one operation: a panic is its error",
		"driver/source.search.share":        "one upload, without which the driver works",
		"driver/steps.Steps.validateOutput": "one step: Wait panics in it",
		"exporter/remote.Gate.Follow":       "what it keeps ends with ctx",
		"handover.Keeper.awaitTenant":       "waits for processes: the wait has a limit",
		"handover.Keeper.clean":             "one cleaning: a panic is its problem",
		"host.Host.Inventory":               "one reading: a panic is its error",
		"host.Daemons.run":                  "starts a program and waits for its end",
		"host.Host.Watch":                   "what it keeps ends with ctx; the other one only reads",
		"host.Kernel.Kmsg":                  "what it keeps ends with ctx",
		"host.Kernel.Network":               "one reading: a panic is its error",
		"host.Kernel.Uevents":               "what it keeps ends with ctx",
		"host.Kernel.inNetwork":             "one call: a panic is its error",
		"host.Locks.Take":                   "waits for a lock",
		"host.Programs.Reside":              "waits for a program's end",
		"host.Start":                        "starts a program and waits for its end",
		"host.onSpareThread":                "runs one function, whose callers catch its panics",
		"host.infoReader":                   "one reading: a panic is its error",
		"kube.Election.Elect":               "the renewal of the lease of one build: another node may then build as well",
		"probe.Start":                       "the reader of one program of a command, which counts as ended",
		"probe.program.hold":                "what it keeps is one division",
		"probe.program.listen":              "the reader of one program, which counts as ended",
		"settings.Keeper.consider":          "one look at a device, which is looked at again",
		"systemd.Sockets.hand":              "one connection of an earlier process, until it ends",
	}
}

// TestPlaces: every goroutine of the agent and of the controller is either kept running, and a panic in it reported
// under the name of its part, or ends by itself and is listed above.
func TestPlaces(t *testing.T) {
	got := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != ".." && (name == "test" || name == "testdata" || name == "tools" || name == "cmd" ||
				name == "guard" || strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		return starts(path, got)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range slices.Sorted(maps.Keys(got)) {
		if ends()[place] == "" {
			t.Errorf("%s starts a goroutine that guard.Keep does not run: what tells that it has ended by a panic?", place)
		}
	}
	for place := range ends() {
		if !got[place] {
			t.Errorf("%s starts no such goroutine any more", place)
		}
	}
}

// starts adds the functions of a file that start a goroutine which is not kept.
func starts(path string, into map[string]bool) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	guarded := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		return strings.HasSuffix(i.Path.Value, `/acceld/guard"`)
	})
	dir, err := filepath.Rel("..", filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if x, ok := call.Fun.(*ast.SelectorExpr); ok && x.Sel.Name == "Go" && (guarded || len(call.Args) == 1) {
					into[filepath.ToSlash(dir)+"."+receiver(f)+f.Name.Name] = true
				}
			}
			return true
		})
	}
	return nil
}

// receiver returns the type of a method and a dot; empty for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	x := f.Recv.List[0].Type
	if p, ok := x.(*ast.StarExpr); ok {
		x = p.X
	}
	if i, ok := x.(*ast.IndexExpr); ok {
		x = i.X
	}
	if i, ok := x.(*ast.IndexListExpr); ok {
		x = i.X
	}
	return x.(*ast.Ident).Name + "."
}
