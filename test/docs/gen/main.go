// Command gen writes the generated pages of docs. It runs in the root of the repository; `make generate` starts it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/acceld/acceld/test/docs"
)

func main() {
	for _, p := range docs.Pages(".") {
		err := os.MkdirAll(filepath.Dir(p.Path), 0o755)
		if err == nil {
			err = os.WriteFile(p.Path, []byte(p.Text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gen: cannot write a page:", err)
			os.Exit(1)
		}
	}
}
