// Command release completes what is published of one version. It takes the images and packages that are already in
// the output directory, and adds the chart, an archive of the programs for each processor, kubectl's plugin, an
// installation script, checksums, their signature, and where all of it comes from (SLSA provenance). The same
// programs give the same bytes, on any machine and at any time; only the signature differs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	log.SetOutput(io.Discard) // Helm's loader warns that the chart links to the manifests
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// Options say what is published.
type Options struct {
	// Root is the root of the source tree, Out the directory of the artifacts.
	Root, Out string
	// Trees are directories with the files of a host, one for each processor; the base name of each is the processor.
	Trees []string
	// Plugins are directories with kubectl's plugin, named after a system and a processor, such as darwin-arm64.
	Plugins []string
	// Version is a semantic version without "v".
	Version string
	// Source is where the source is published, Revision its commit.
	Source, Revision string
	// URL is where the artifacts will be; the installation script downloads them from there unless told otherwise.
	URL string
	// Key is a file with the private key that signs; without one, nothing is signed.
	Key string
	// Created is the time of everything in the artifacts.
	Created time.Time
}

func run(args []string, stdout io.Writer) error {
	var o Options
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	program := flags.String("version-of", "", "print the version of this program and do nothing else")
	flags.StringVar(&o.Root, "root", "../..", "root of the source tree")
	flags.StringVar(&o.Out, "out", "../../dist/release", "directory of the artifacts")
	flags.Func("tree", "directory with the files of a host, named after its processor; may be given several times",
		func(dir string) error { o.Trees = append(o.Trees, dir); return nil })
	flags.Func("plugin", "directory with kubectl's plugin, named after its system and processor, such as darwin-arm64; "+
		"may be given several times", func(dir string) error { o.Plugins = append(o.Plugins, dir); return nil })
	flags.StringVar(&o.Version, "version", "", "semantic version of the release")
	flags.StringVar(&o.Source, "source", "https://github.com/acceld/acceld", "where the source is published")
	flags.StringVar(&o.Revision, "revision", "", "commit of the source")
	flags.StringVar(&o.URL, "url", "", "where the artifacts will be published")
	flags.StringVar(&o.Key, "key", "", "file with the private key (ECDSA P-256, PEM) that signs the checksums")
	push := flags.String("push", "", "push the chart to this repository, such as registry.example.com/charts")
	insecure := flags.Bool("insecure", false, "push without TLS; to a loopback registry only")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *program != "" {
		version, err := versionOf(*program)
		if err == nil {
			_, err = fmt.Fprintln(stdout, version)
		}
		return err
	}
	var err error
	if o.Created, err = epoch(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := o.write(); err != nil {
		return err
	}
	if *push != "" {
		if err := pushChart(filepath.Join(o.Out, o.chartFile()), *push, *insecure, o.Created); err != nil {
			return err
		}
	}
	return o.report(stdout)
}

// check refuses options from which no release can be made.
func (o *Options) check() error {
	if err := semantic(o.Version); err != nil {
		return err
	}
	if len(o.Trees) == 0 {
		return errors.New("say -tree: there are no programs")
	}
	if o.Revision == "" {
		return errors.New("say -revision: nobody could tell what the release was made from")
	}
	return o.changesListed()
}

// write writes the artifacts. What is there already is only added to the checksums.
func (o *Options) write() error {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fmt.Errorf("cannot write the release: %w", err)
	}
	for _, dir := range o.Trees {
		if err := o.archive(dir); err != nil {
			return err
		}
	}
	if err := o.plugins(); err != nil {
		return err
	}
	if err := o.chart(); err != nil {
		return err
	}
	signer, err := readKey(o.Key)
	if err != nil {
		return err
	}
	if err := o.script(signer); err != nil {
		return err
	}
	return o.seal(signer)
}

// report prints the size and the name of each artifact.
func (o *Options) report(stdout io.Writer) error {
	entries, err := os.ReadDir(o.Out)
	if err != nil {
		return fmt.Errorf("cannot list the release: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("cannot list the release: %w", err)
		}
		if _, err := fmt.Fprintf(stdout, "%8.1f kB  %s\n", float64(info.Size())/1e3, filepath.Join(o.Out, e.Name())); err != nil {
			return err
		}
	}
	if o.Key == "" {
		_, err = fmt.Fprintln(stdout, "not signed: KEY names no key")
	}
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
