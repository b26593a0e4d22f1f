// Command cmd prints the facts of the machine under a root as JSON: the process form of the benchmark beside it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host"
)

func main() {
	h, err := host.New(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	facts := detect.Detect(h, detect.Options{Names: len(os.Args) > 2})
	if err := json.NewEncoder(os.Stdout).Encode(facts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
