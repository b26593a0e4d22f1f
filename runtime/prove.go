package runtime

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// prove lets the container runtime's own program read the changed files, in a separate directory. If the
// program cannot be asked (the root is another machine's, the program does not exist, or it has no such command),
// the checks of package engine must suffice.
func (conf *configuration) prove(ctx context.Context, e accel.ContainerEngine, c engine.Change) *accel.Problem {
	if !conf.client.live() {
		return nil
	}
	check := engine.RowOf(e.Name).Check
	if len(check) == 0 {
		return nil
	}
	program, err := conf.host.Programs().LookPath(check[0])
	if err != nil {
		return nil // there is no program to ask
	}
	staged, err := engine.Stage(engine.With(conf.host, c), e)
	if err != nil || len(staged) == 0 {
		return nil // what cannot be staged was checked by package engine
	}
	const parent = "/run/acceld"
	if err := conf.host.MkdirAll(parent, 0o755); err != nil {
		return conf.problem("make", parent, err)
	}
	dir, err := conf.host.MakeTemp(parent, "runtime-check-")
	if err != nil {
		return conf.problem("make a directory in", parent, err)
	}
	defer func() { _ = conf.host.RemoveAll(dir) }() // it is on a volatile file system
	for file, data := range staged {
		file = path.Join(dir, file)
		data = []byte(strings.ReplaceAll(string(data), engine.StageDir, dir))
		err := errors.Join(conf.host.MkdirAll(path.Dir(file), 0o700), conf.host.WriteFile(file, data, 0o600))
		if err != nil {
			return conf.problem("write", file, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var args []string
	for _, a := range check[1:] {
		args = append(args, strings.ReplaceAll(a, "DIR", dir))
	}
	out, err := conf.host.Programs().Command(ctx, program, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return accel.Problemf(accel.RuntimeConfigInvalid,
		"%s refuses its configuration with the change (nothing was changed): %v: %s",
		program, err, fmt.Sprintf("%.300s", lines[len(lines)-1]))
}
