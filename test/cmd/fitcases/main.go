// Command fitcases runs a file of cases against the extender of the controller: nodes, pods, and what the scheduler
// asks and the API server tells, step by step. It prints a line for each case that fails, and then exits with status 1.
// The form of such a file is written at the top of testdata/cases.yaml.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errs io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(errs, "usage: go run ./test/cmd/fitcases FILE")
		return 2
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		fmt.Fprintln(errs, err)
		return 2
	}
	cases, err := parse(data)
	if err != nil {
		fmt.Fprintf(errs, "cannot read %q: %v\n", args[0], err)
		return 2
	}
	failed := 0
	for _, c := range cases {
		if err := c.run(); err != nil {
			fmt.Fprintf(out, "%s: %s: %v\n", c.ID, c.Title, err)
			failed++
		}
	}
	fmt.Fprintf(errs, "%d cases, %d failed\n", len(cases), failed)
	if failed > 0 {
		return 1
	}
	return 0
}
