// Command acceld takes an accelerator host from a bare kernel to accelerators that are schedulable, usable in
// containers and monitored. See `acceld help` and docs/cli.md.
package main

import (
	"os"

	"github.com/acceld/acceld/cmd/acceld/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
