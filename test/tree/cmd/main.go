// Command tree prints the snapshot of file trees, or of what the kernel and systemd have, for a test that runs it in a
// guest. The package tree above says what is in it. It changes nothing.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/acceld/acceld/test/tree"
)

func main() {
	var o tree.Options
	root := flag.String("root", "/", "the directory that is the root")
	kernel := flag.Bool("kernel", false, "modules, parameters, units and accelerators instead of files")
	flag.BoolVar(&o.Mtime, "mtime", false, "the time of files and links")
	flag.BoolVar(&o.DirTime, "dirtime", false, "the time of directories")
	flag.Func("skip", "leave out this path and all below it", func(s string) error {
		o.Skip = append(o.Skip, s)
		return nil
	})
	flag.Parse()
	if *kernel {
		fmt.Print(tree.Kernel(*root))
		return
	}
	o.Paths = flag.Args()
	text, err := tree.Of(*root, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tree:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}
