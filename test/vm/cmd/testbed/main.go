// Command testbed drives the test bed by hand.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/acceld/acceld/test/vm/bed"
)

func main() {
	ctx := context.Background()
	b, err := bed.Open(ctx, os.Stderr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer b.Close()
	t := time.Now()
	n, err := b.StartNode(ctx, bed.Options{Accelerators: 1, FreshBoot: len(os.Args) > 1})
	if err != nil {
		fmt.Println(err)
		if len(os.Args) > 2 {
			time.Sleep(20 * time.Minute)
		}
		return
	}
	defer n.Stop()
	fmt.Println(time.Since(t))
	fmt.Println(n.SSH())
	fmt.Println(n.Kubectl(ctx, nil, "get", "nodes", "-o", "wide"))
	fmt.Println(n.Run(ctx, "lspci"))
	if len(os.Args) > 2 {
		time.Sleep(20 * time.Minute)
	}
}
