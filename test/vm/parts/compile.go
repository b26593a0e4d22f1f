package parts

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/acceld/acceld/test/vm/progress"
)

// goCommand runs the go command in a nested module.
type goCommand struct {
	dir string
	cgo bool
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
	cmd := exec.CommandContext(ctx, "nice", append([]string{"go"}, args...)...)
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
