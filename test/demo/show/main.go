// Command show is the demo itself, after command demo has prepared it. The first half is a small virtual machine with
// two accelerators and nothing else: from a bare kernel to a container that computed on its own device. The second half
// is a node of a cluster: the DaemonSet is deployed and a pod computes. What the second half needs is built while the
// first one runs.
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
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/seed"
	"github.com/acceld/acceld/test/vm/supply"
)

func main() {
	cluster := flag.Bool("cluster", true, "show the second half: a node of a cluster")
	start := flag.String("start", time.Now().Format(time.RFC3339Nano), "when the demo began, as in RFC 3339")
	flag.Parse()
	began, err := time.Parse(time.RFC3339Nano, *start)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: -start:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	d := &demo{log: progress.Since(os.Stdout, began), start: began}
	err = d.run(ctx, *cluster)
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
func alone() supply.Config {
	return supply.Config{Engines: []seed.Engine{seed.Containerd}, NoCluster: true}
}

func joined() supply.Config {
	return supply.Config{Engines: []seed.Engine{seed.Containerd}, Later: []string{parts.Kubectl}, Idle: true}
}

func (d *demo) run(ctx context.Context, cluster bool) error {
	dir, err := os.MkdirTemp("", "acceld-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if d.stage, err = stage.New(ctx, dir); err != nil {
		return err
	}
	halves, running := errgroup.WithContext(ctx)
	var second node
	defer second.stop()
	computed := make(chan struct{})
	if cluster {
		halves.Go(func() error { return d.beside(running, computed, &second) })
	}
	halves.Go(func() error {
		b, err := bed.OpenLog(running, d.log, alone())
		if err != nil {
			return err
		}
		defer b.Close()
		return d.light(running, b, computed)
	})
	if err := halves.Wait(); err != nil || !cluster {
		return err
	}
	return d.cluster(ctx, second.Node)
}

func (d *demo) title(format string, args ...any) { d.log.Print("\n" + fmt.Sprintf(format, args...)) }

func (d *demo) say(format string, args ...any) { d.log.Say(format, args...) }

// show prints what a command said.
func (d *demo) show(text string) {
	d.log.Print("  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  "))
}
