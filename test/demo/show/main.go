// Command demo shows acceld on real parts. The first half is a small virtual machine with two accelerators and nothing
// else: from a bare kernel to a container that computed on its own device. The second half is a node of a cluster: the
// DaemonSet is deployed and a pod computes. What the second half needs is built while the first one runs. `make demo`
// starts it; it needs root, installs what it needs and leaves nothing running.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/seed"
)

func main() {
	cluster := flag.Bool("cluster", true, "show the second half: a node of a cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	d := &demo{log: progress.New(os.Stdout), start: time.Now()}
	err := d.run(ctx, *cluster)
	stop()
	d.log.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo says everything with the time since it began.
type demo struct {
	log   *progress.Log
	start time.Time
	stage *stage.Stage
}

// alone and joined are what the halves need. The second has containerd because the first has it already.
func alone() bed.Config  { return bed.Config{Engines: []seed.Engine{seed.Containerd}, NoCluster: true} }
func joined() bed.Config { return bed.Config{Engines: []seed.Engine{seed.Containerd}} }

func (d *demo) run(ctx context.Context, cluster bool) error {
	dir, err := os.MkdirTemp("", "acceld-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d.title("A bare machine with two accelerators. The first time, what it takes is fetched and built here: minutes.")
	halves, running := errgroup.WithContext(ctx)
	var second node
	defer second.stop()
	booted, computed := make(chan struct{}), make(chan struct{})
	if cluster {
		halves.Go(func() error { return d.beside(running, booted, computed, &second) })
	}
	halves.Go(func() error {
		b, err := d.prepare(running, dir)
		if err != nil {
			return err
		}
		defer b.Close()
		return d.light(running, b, booted, computed)
	})
	if err := halves.Wait(); err != nil || !cluster {
		return err
	}
	return d.cluster(ctx, second.Node)
}

// prepare builds acceld and everything that the first half needs, side by side.
func (d *demo) prepare(ctx context.Context, dir string) (b *bed.Bed, err error) {
	both, preparing := errgroup.WithContext(ctx)
	both.Go(func() error {
		return d.log.Do("building acceld", func() (err error) {
			d.stage, err = stage.New(preparing, dir)
			return err
		})
	})
	both.Go(func() (err error) {
		b, err = bed.OpenLog(preparing, d.log, alone())
		return err
	})
	if err := both.Wait(); err != nil && b != nil {
		b.Close()
		return nil, err
	}
	return b, err
}

func (d *demo) title(format string, args ...any) { d.log.Print("\n" + fmt.Sprintf(format, args...)) }

func (d *demo) say(format string, args ...any) { d.log.Say(format, args...) }

// show prints what a command said.
func (d *demo) show(text string) {
	d.log.Print("  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  "))
}
