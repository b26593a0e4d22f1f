// Command packages creates the deb and the rpm of acceld from static programs and the files of the tree. The same
// programs give the same bytes, on any machine and at any time.
package main

import (
	"cmp"
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
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	var o Options
	flags := flag.NewFlagSet("packages", flag.ContinueOnError)
	flags.StringVar(&o.Root, "root", "../..", "root of the tree")
	flags.StringVar(&o.Bin, "bin", "../../bin", "directory of the static programs, all for one processor")
	flags.StringVar(&o.Share, "share", "../../bin/share",
		"directory of manual pages and completions, where there is one")
	out := flags.String("out", "../../dist", "directory of the packages")
	described := flags.String("version", "dev", "the version, as git describe --tags --always --dirty says it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	created, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	o.Created = created
	if o.Version, err = Version(*described, created); err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("cannot write packages: %w", err)
	}
	for _, format := range Formats() {
		file, err := Write(format, o, *out)
		if err != nil {
			return fmt.Errorf("cannot make the %s: %w", format, err)
		}
		if _, err := fmt.Fprintln(stdout, file); err != nil {
			return err
		}
	}
	return nil
}

// epoch reads SOURCE_DATE_EPOCH (reproducible-builds.org), seconds since 1970; empty is 1970.
func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
