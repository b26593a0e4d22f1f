package parts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/acceld/acceld/test/vm/progress"
)

// goCommand runs the go command in a nested module.
type goCommand struct {
	dir  string
	cgo  bool
	idle bool // see [Builder]
}

// fetch fetches the modules that the packages need.
func (g goCommand) fetch(ctx context.Context, step *progress.Step, flags, packages []string) error {
	most, err := zips(filepath.Join(g.dir, "go.sum"))
	if err != nil {
		return err
	}
	step.AtMost("modules fetched", most)
	args := append([]string{"list", "-deps", "-f", ""}, flags...)
	return g.run(ctx, nil, func(line string) {
		if strings.HasPrefix(line, "go: downloading ") {
			step.Add(1)
		}
	}, append(args, packages...)...)
}

// stale counts the packages that the compiler's cache lacks.
func (g goCommand) stale(ctx context.Context, flags, packages []string) (count int, err error) {
	args := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags...)
	err = g.run(ctx, func(line string) {
		if line != "" {
			count++
		}
	}, nil, append(args, packages...)...)
	return count, err
}

// leaveOut returns flags by which of some files, by their module, only the package clause is compiled. The go command
// replaces no file in its own cache, so it is told that these modules are elsewhere. Done removes what the flags name.
func (g goCommand) leaveOut(ctx context.Context, files map[string]string) (flags []string, done func(), err error) {
	if len(files) == 0 {
		return nil, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "parts-")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			done()
		}
	}()
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(filepath.Join(g.dir, name), filepath.Join(dir, name)); err != nil {
			return nil, nil, err
		}
	}
	edit, replace := []string{"mod", "edit"}, map[string]string{}
	for _, module := range slices.Sorted(maps.Keys(files)) {
		var at string
		if err := g.run(ctx, func(line string) { at = line }, nil, "list", "-m", "-f", "{{.Dir}}", module); err != nil {
			return nil, nil, err
		}
		file, link := files[module], filepath.Join(dir, filepath.Base(module))
		clause := filepath.Join(dir, filepath.Base(module)+".go")
		if err := errors.Join(os.Symlink(at, link), writeClause(filepath.Join(at, file), clause)); err != nil {
			return nil, nil, err
		}
		edit = append(edit, "-replace", module+"="+link)
		replace[filepath.Join(link, file)] = clause
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, nil, err
	}
	mod, list := filepath.Join(dir, "go.mod"), filepath.Join(dir, "overlay.json")
	err = errors.Join(os.WriteFile(list, overlay, 0o600), g.run(ctx, nil, nil, append(edit, mod)...))
	return []string{"-modfile=" + mod, "-overlay=" + list}, done, err
}

// writeClause writes the package clause of a Go file to another.
func writeClause(file, to string) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
	if err != nil {
		return err
	}
	return os.WriteFile(to, []byte("package "+f.Name.Name+"\n"), 0o600)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// zips counts the modules of a go.sum: of each it has a line for the module and one for its go.mod alone.
func zips(sum string) (int, error) {
	text, err := os.ReadFile(sum)
	if err != nil {
		return 0, fmt.Errorf("cannot count modules: %w", err)
	}
	return bytes.Count(text, []byte("\n")) - bytes.Count(text, []byte("/go.mod h1:")), nil
}

// run runs the go command and passes on each line that it prints. It is niced: a test machine has other things to do.
// The compiler collects its garbage seldom, because it has the memory and the processors are what everybody waits for.
func (g goCommand) run(ctx context.Context, out, err func(line string), args ...string) error {
	nice := "10"
	if g.idle {
		nice = "19"
	}
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", nice, "go"}, args...)...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOGC=400", "CGO_ENABLED=0")
	if g.cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1", "CGO_CFLAGS=-O1") // -O2 -g unless said: twice as long for sqlite
	}
	var words bytes.Buffer
	stdout, stderr := &lines{each: out}, &lines{each: func(line string) {
		fmt.Fprintln(&words, line)
		if err != nil {
			err(line)
		}
	}}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, words.Bytes())
	}
	return nil
}

// lines hands over what is written, line by line.
type lines struct {
	each func(line string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	scan := bufio.NewReader(bytes.NewReader(l.rest))
	for {
		line, err := scan.ReadString('\n')
		if err == io.EOF {
			l.rest = []byte(line)
			return len(p), nil
		}
		if l.each != nil {
			l.each(strings.TrimSuffix(line, "\n"))
		}
	}
}
