// Command kubectl-acceld is a plugin of kubectl: `kubectl acceld` shows the accelerators of a cluster and says why a
// pod does not get one. See docs/status.md.
package main

import (
	"os"

	"github.com/acceld/acceld/cmd/kubectl-acceld/plugin"
)

func main() { os.Exit(plugin.Main(os.Args[1:], os.Stdout, os.Stderr)) }
