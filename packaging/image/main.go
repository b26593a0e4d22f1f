// Command image makes the container image of the agent, or of the controller, from static programs, without a container engine and without a
// base image. The same programs give the same bytes, on any machine and at any time.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	var o Options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	bin := flags.String("bin", "bin", "directory of the static programs")
	out := flags.String("out", "", "write an OCI layout into this directory, or into this file when it ends in .tar")
	push := flags.String("push", "", "push to this reference, such as registry.example.com/acceld:v1")
	insecure := flags.Bool("insecure", false, "push without TLS; to a loopback registry only")
	flags.StringVar(&o.Name, "name", "acceld:dev", "name of the image in the layout")
	flags.StringVar(&o.Version, "version", "dev", "version label")
	flags.BoolVar(&o.Controller, "controller", false, "make the controller's image rather than the agent's")
	flags.StringVar(&o.Revision, "revision", "", "commit label")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || (*out == "") == (*push == "") {
		return errors.New("say either -out or -push, and no other arguments")
	}
	created, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	o.Created = created
	img, err := New(*bin, o)
	if err != nil {
		return err
	}
	where := *out
	if *push != "" {
		where = *push
		err = Push(img, *push, *insecure)
	} else {
		err = Write(img, *out, o.Name)
	}
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	size, err := Size(img)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s %s %.1f MB\n", where, digest, float64(size)/1e6)
	return err
}

// epoch reads SOURCE_DATE_EPOCH (reproducible-builds.org), seconds since 1970; empty is 1970.
func epoch(text string) (time.Time, error) {
	if text == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
