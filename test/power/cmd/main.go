// Command cmd is what the test of power cuts runs in its guest; see package power.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/acceld/acceld/test/power"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if file := os.Getenv(power.Role); file != "" {
		return power.Neighbour(file)
	}
	var r power.Recorder
	flag.StringVar(&r.Server, "server", "", "URL of the test")
	flag.StringVar(&r.Device, "device", "", "the disk")
	flag.StringVar(&r.Area, "area", "", "do the work of an area; without it power cuts are judged")
	flag.StringVar(&r.MountOptions, "mount", "", "options of the file system")
	flag.BoolVar(&r.NoSync, "nosync", false, "leave out every fsync")
	flag.Parse()
	if r.Area == "" {
		return power.Judge(r.Server, r.Device)
	}
	return r.Run()
}
