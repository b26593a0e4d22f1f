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
	g, err := b.StartLight(ctx, bed.Options{Accelerators: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Stop()
	fmt.Println(time.Since(t))
	fmt.Println(g.Run(ctx, "uname", "-a"))
	fmt.Println(g.Sh(ctx, "lspci -nn; ip a; df -h; ps ax | head -20; free -m; ls -la /root"))
	t = time.Now()
	fmt.Println(g.Run(ctx, "true"))
	fmt.Println(time.Since(t))
	t = time.Now()
	fmt.Println(g.Plug(ctx, 3))
	fmt.Println(g.Sh(ctx, "sleep 1; lspci -nn|grep 1234; ls -la /etc/bed"))
	fmt.Println(g.Unplug(ctx, 3))
	fmt.Println(time.Since(t))
	fmt.Println(g.Sh(ctx, "lspci -nn|grep 1234; dmesg | tail -5"))
}
