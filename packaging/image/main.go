// Command image creates the container image of the agent, or of the controller, from static programs. It needs no
// container engine and no base image. It creates one image for each processor, with an index if there are several,
// and can attach to each a list of its contents (SPDX). The same programs give the same bytes, on any machine and at
// any time.
package main

import (
	"cmp"
	"compress/gzip"
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
	var bins []string
	flags.Func("bin", "directory of the static programs for one processor; may be given several times",
		func(dir string) error {
			bins = append(bins, dir)
			return nil
		})
	out := flags.String("out", "", "write an OCI layout into this directory, or into this file when it ends in .tar")
	push := flags.String("push", "", "push to this reference, such as registry.example.com/acceld:v1")
	insecure := flags.Bool("insecure", false, "push without TLS; to a loopback registry only")
	flags.StringVar(&o.Name, "name", "acceld:dev", "name of the image in the layout")
	flags.StringVar(&o.Version, "version", "dev", "version label")
	flags.BoolVar(&o.Controller, "controller", false, "make the controller's image rather than the agent's")
	flags.StringVar(&o.Revision, "revision", "", "commit label")
	flags.IntVar(&o.Compression, "compression", gzip.BestCompression,
		"gzip level, 1 to 9; a low one is quicker and makes a larger image")
	sbom := flags.Bool("sbom", false, "attach to each image the list of the modules that are in it, as SPDX")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || (*out == "") == (*push == "") {
		return errors.New("say either -out or -push, and no other arguments")
	}
	if o.Compression < gzip.BestSpeed || o.Compression > gzip.BestCompression {
		return fmt.Errorf("-compression %d is not one of 1 to 9", o.Compression)
	}
	created, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	o.Created = created
	if len(bins) == 0 {
		bins = []string{"bin"}
	}
	r, err := NewRelease(bins, o, *sbom)
	if err != nil {
		return err
	}
	where := *out
	if *push != "" {
		where = *push
		err = Push(r, *push, *insecure)
	} else {
		err = Write(r, *out, o.Name)
	}
	if err != nil {
		return err
	}
	return report(stdout, where, r)
}

// report prints the target, the digest of the release, and the size of each image.
func report(stdout io.Writer, where string, r *Release) error {
	digest, err := r.Digest()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s %s", where, digest); err != nil {
		return err
	}
	for _, img := range r.Images {
		file, err := img.ConfigFile()
		if err != nil {
			return err
		}
		size, err := Size(img)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stdout, " %s %.1f MB", file.Architecture, float64(size)/1e6); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(stdout)
	return err
}

// epoch reads SOURCE_DATE_EPOCH (reproducible-builds.org), seconds since 1970; empty is 1970.
func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
