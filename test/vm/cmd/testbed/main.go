// Command testbed drives the test bed by hand: it builds the parts, boots a guest for a person to look at, and cleans
// up. It may touch the cache folder and the guests that it starts, nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/supply"
)

const usage = `usage: testbed <command> [flags]

  parts    build and download everything that the test bed needs, and keep a snapshot of a ready node
  node     start a node with its cluster, print how to get in, wait for ^C
  light    start a light guest, print how to get in, wait for ^C
  clean    remove everything that the test bed keeps

Flags of node and light: see testbed <command> -h. The folder is $ACCELD_CACHE, or acceld in the user's cache folder.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return nil
	}
	command, args := args[0], args[1:]
	switch command {
	case "parts":
		return parts(ctx)
	case "node", "light":
		return guest(ctx, command, args)
	case "clean":
		return bed.Clean(ctx, os.Stderr)
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	}
	return fmt.Errorf("cannot run %q: the commands are parts, node, light and clean", command)
}

func parts(ctx context.Context) error {
	b, err := bed.Open(ctx, os.Stderr, supply.Config{})
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Prepare(ctx)
}

func guest(ctx context.Context, command string, args []string) error {
	flags := flag.NewFlagSet("testbed "+command, flag.ExitOnError)
	var o bed.Options
	flags.IntVar(&o.Accelerators, "accelerators", 1, "accelerators to plug in, 0 to 8")
	flags.StringVar(&o.Kernel, "kernel", "", "kernel release to boot, one of those on the disk")
	flags.BoolVar(&o.FreshBoot, "fresh", false, "boot from power-on instead of going on from a snapshot")
	flags.BoolVar(&o.NoKubernetes, "no-kubernetes", false, "systemd only: no cluster, container runtime not started")
	flags.StringVar((*string)(&o.Engine), "engine", "crio", "container runtime: crio or containerd")
	flags.StringVar(&o.Cmdline, "cmdline", "", "added to the kernel's command line; implies -fresh")
	flags.IntVar(&o.MemoryMiB, "memory", 0, "memory in MiB")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := bed.Open(ctx, os.Stderr, supply.Config{})
	if err != nil {
		return err
	}
	defer b.Close()
	if command == "light" {
		g, err := b.StartLight(ctx, o)
		if err != nil {
			return err
		}
		defer g.Stop()
		return hold(ctx, g)
	}
	n, err := b.StartNode(ctx, o)
	if err != nil {
		return err
	}
	defer n.Stop()
	if n.Plane() != nil {
		fmt.Println("export KUBECONFIG=" + n.Kubeconfig())
		fmt.Println("images  " + strings.TrimSuffix(n.Image(""), "/") + " in the guest, " + n.Registry() + " here")
	}
	return hold(ctx, n.Guest)
}

// hold prints the way in and waits for ^C.
func hold(ctx context.Context, g *bed.Guest) error {
	fmt.Println(g.SSH())
	fmt.Println("console " + g.Console())
	fmt.Fprintln(os.Stderr, "^C ends it")
	<-ctx.Done()
	return nil
}
