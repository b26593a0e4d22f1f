// Command gen writes the generated pages of docs. It runs in the root of the repository; `make generate` starts it.
package main

import (
	"fmt"
	"os"

	"github.com/acceld/acceld/test/docs"
)

func main() {
	for _, p := range docs.Pages(".") {
		if err := os.WriteFile(p.Path, []byte(p.Text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gen: cannot write a page:", err)
			os.Exit(1)
		}
	}
}
