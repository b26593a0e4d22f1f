// Command gen writes the generated pages of docs. It runs in the root of the repository; `make generate` starts it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/acceld/acceld/test/docs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	pages, err := docs.Pages(context.Background(), ".")
	if err != nil {
		return err
	}
	for _, p := range pages {
		if err := os.WriteFile(p.Path, []byte(p.Text), 0o644); err != nil {
			return fmt.Errorf("cannot write %q: %w", p.Path, err)
		}
	}
	return nil
}
