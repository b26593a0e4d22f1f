// Command demo shows acceld on real parts; `make demo` starts it. It needs root, installs what it needs and leaves
// nothing running. This program only prepares: it makes what the first guest needs, and builds acceld and the program
// that shows everything beside it. It imports no Kubernetes client, because compiling one takes longer than the
// first half of the demo.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/acceld/acceld/test/stage/programs"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/seed"
	"github.com/acceld/acceld/test/vm/supply"
)

func main() {
	start := time.Now()
	cluster := flag.Bool("cluster", true, "show the second half: a node of a cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	log := progress.New(os.Stdout)
	log.Print("\nA bare machine with two accelerators. " +
		"The first time, everything it needs is fetched and built here, which takes minutes.")
	dir, err := prepare(ctx, log)
	stop()
	log.Close()
	if err == nil {
		program := filepath.Join(dir, "show")
		err = syscall.Exec(program, []string{
			program, "-start", start.Format(time.RFC3339Nano),
			fmt.Sprintf("-cluster=%t", *cluster),
		}, append(os.Environ(), programs.Variable+"="+filepath.Join(dir, "acceld")))
	}
	fmt.Fprintln(os.Stderr, "demo:", err)
	os.Exit(1)
}

// prepare returns the folder with the built programs. It stays, so that the next demo links none of them again.
func prepare(ctx context.Context, log *progress.Log) (dir string, err error) {
	root, err := programs.Root(ctx)
	if err != nil {
		return "", err
	}
	kept, err := cache.Open(log.Say)
	if err != nil {
		return "", err
	}
	dir = kept.Path("demo")
	if err := os.MkdirAll(filepath.Join(dir, "acceld"), 0o755); err != nil {
		return "", fmt.Errorf("cannot make a folder for programs: %w", err)
	}
	all, preparing := errgroup.WithContext(ctx)
	// One after the other, in the same way: what both need is compiled once. Side by side, or one of them with cgo, it
	// would be compiled twice.
	all.Go(func() error {
		err := log.Do("building acceld", func() error {
			return programs.Build(preparing, root, filepath.Join(dir, "acceld"))
		})
		if err != nil {
			return err
		}
		return log.Do("building the demo", func() error { return show(preparing, root, dir) })
	})
	all.Go(func() error { // as in show; what the cluster needs would delay the first half
		_, err := supply.Make(preparing, log, supply.Config{Engines: []seed.Engine{seed.Containerd}, NoCluster: true})
		return err
	})
	return dir, all.Wait()
}

// show builds the program that shows everything.
func show(ctx context.Context, root, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "./test/demo/show")
	cmd.Dir, cmd.Env = root, programs.Compiler()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the demo: %w\n%s", err, out)
	}
	return nil
}
