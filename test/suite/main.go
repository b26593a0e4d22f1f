// Command suite runs what needs minutes or the test bed: every scenario, fault, storm and long check of the tree. They
// are dealt into parts that take about as long, because all of them do not fit into one run of CI. `make test` starts
// it; the commit chooses the part, or PART=2/16 does. For every two processors it runs one, the longest first.
// It keeps each one's output in a file, and ends with a table: what ran, what did not, and in which part that does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.part, "part", "", "the part to run, such as 2/16, or all; the commit chooses one unless set")
	flag.StringVar(&o.only, "run", "", "run the units whose name matches this regular expression, of whatever part")
	flag.StringVar(&o.logs, "logs", "bin/suite", "the folder for outputs, and for how long each unit took")
	flag.BoolVar(&o.list, "list", false, "print the table and run nothing")
	flag.BoolVar(&o.record, "record", false, "write how long units took into "+secondsFile)
	flag.BoolVar(&o.docs, "docs", false, "write into "+proofsFile+" in which part each proof runs, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := suite(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

type options struct {
	part, only, logs string
	list, record     bool
	docs             bool
}

func suite(ctx context.Context, o options) error {
	s, err := open(ctx, o.logs)
	if err != nil {
		return err
	}
	chosen, err := s.choose(ctx, o)
	if err != nil {
		return err
	}
	if o.docs {
		return s.document()
	}
	if o.list {
		s.table(os.Stdout, chosen)
		return nil
	}
	if err := room(s.root); err != nil {
		return err
	}
	fmt.Printf("suite: %s\n", chosen.why)
	if err := s.build(ctx); err != nil {
		return err
	}
	s.run(ctx, chosen)
	if o.record {
		if err := s.save(); err != nil {
			return err
		}
	}
	s.table(os.Stdout, chosen)
	return s.verdict(os.Stdout)
}
