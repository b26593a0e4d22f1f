// Command acceld-controller serves the Kubernetes scheduler: it tracks accelerator cards and chooses them for pods.
// See `acceld-controller --help` and docs/scheduling.md.
package main

import (
	"os"
	_ "time/tzdata" // the image has no time zones, and policies name them

	"github.com/acceld/acceld/cmd/acceld-controller/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
