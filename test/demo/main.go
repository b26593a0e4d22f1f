// Command demo shows acceld on real parts; `make demo` starts it. It needs root, installs what it needs and leaves
// nothing running. This program only prepares: it makes what the first guest needs, and builds acceld and the program
// that shows everything, side by side. It imports no Kubernetes client, because compiling one takes longer than the
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
	dir, err := prepare(ctx, log, *cluster)
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
func prepare(ctx context.Context, log *progress.Log, cluster bool) (dir string, err error) {
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
	all.Go(func() error {
		return log.Do("building acceld", func() error {
			return programs.Build(preparing, root, filepath.Join(dir, "acceld"))
		})
	})
	all.Go(func() error {
		return log.Do("building the demo", func() error {
			cmd := exec.CommandContext(preparing, "go", "build", "-o", dir+"/", "./test/demo/show")
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("cannot build the demo: %w\n%s", err, out)
			}
			return nil
		})
	})
	engines := []seed.Engine{seed.Containerd} // as in show
	all.Go(func() error {
		_, err := supply.Make(preparing, log, supply.Config{Engines: engines, NoCluster: true})
		return err
	})
	if cluster {
		all.Go(func() error { return supply.Fetch(preparing, log, supply.Config{Engines: engines}) })
	}
	return dir, all.Wait()
}
