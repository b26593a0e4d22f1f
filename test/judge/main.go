// Command judge tries device plugins and DRA drivers on a real node: a real kernel, kubelet, scheduler and container
// runtime in a virtual machine with PCI devices that can be unplugged and can fail. It knows the subjects by what the
// cluster sees of them, so it can try anybody's. The result is a table.
//
//	go run ./test/judge -subject test/judge/subjects/acceld.yaml -subject mine.yaml
//
// docs/judge.md describes subjects and scenarios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/progress"
	"github.com/acceld/acceld/test/vm/seed"
	"github.com/acceld/acceld/test/vm/supply"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// trial is what the flags ask for.
type trial struct {
	subjects  []*Subject
	scenarios []*Scenario
	options   bed.Options
	table     string
}

// run tries every subject, and reports whether one of them failed a scenario.
func run(ctx context.Context, args []string, out io.Writer) (failed bool, err error) {
	t, err := parse(args)
	if err != nil {
		return false, err
	}
	log := progress.New(os.Stderr)
	b, err := bed.OpenLog(ctx, log, supply.Config{Engines: []seed.Engine{t.options.Engine}})
	if err != nil {
		return false, err
	}
	defer b.Close()
	var columns []column
	for _, s := range t.subjects {
		verdicts, err := try(ctx, b, s, t)
		if err != nil {
			return false, fmt.Errorf("cannot try %q: %w", s.Name, err)
		}
		columns = append(columns, column{strings.TrimSpace(s.Name + " " + s.version(ctx)), verdicts})
	}
	text := table(t.scenarios, columns)
	if _, err := io.WriteString(out, text); err != nil {
		return false, err
	}
	if t.table != "" {
		if err := os.WriteFile(t.table, []byte(text), 0o644); err != nil {
			return false, fmt.Errorf("cannot keep the table: %w", err)
		}
	}
	return anyFailed(columns), nil
}

func parse(args []string) (*trial, error) {
	t := &trial{}
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "usage: go run ./test/judge -subject FILE [-subject FILE ...] [flags]\n\n"+
			"Tries device plugins and DRA drivers on a real node, as root; see docs/judge.md. The exit status is 1 if a\n"+
			"subject failed a scenario, and 2 if it could not be tried.\n\n")
		flags.PrintDefaults()
	}
	var subjects []string
	flags.Func("subject", "file that describes what is tried; may be given several times",
		func(file string) error { subjects = append(subjects, file); return nil })
	scenarios := flags.String("scenarios", "", "file of scenarios; the built-in ones unless set")
	pick := flags.String("run", "", "take only scenarios whose name matches this `regexp`")
	flags.StringVar(&t.table, "table", "", "also write the table into this file")
	flags.IntVar(&t.options.Accelerators, "devices", 2, "devices that are plugged in, 2 to 8")
	flags.StringVar(&t.options.Kernel, "kernel", "", "kernel of the guest: a release on its disk, oldest or later")
	flags.StringVar((*string)(&t.options.Engine), "engine", string(seed.CRIO), "container runtime: crio or containerd")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(*pick)
	if err != nil {
		return nil, fmt.Errorf("cannot pick scenarios: %w", err)
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case len(subjects) == 0:
		return nil, errors.New("say what is tried: -subject FILE")
	case t.options.Accelerators < 2 || t.options.Accelerators > 8:
		return nil, fmt.Errorf("-devices %d is not 2 to 8", t.options.Accelerators)
	}
	for _, file := range subjects {
		s, err := readSubject(file)
		if err != nil {
			return nil, err
		}
		t.subjects = append(t.subjects, s)
	}
	all, err := readScenarios(*scenarios)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if re.MatchString(s.Name) {
			t.scenarios = append(t.scenarios, s)
		}
	}
	if len(t.scenarios) == 0 {
		return nil, fmt.Errorf("no scenario has a name like %q", *pick)
	}
	return t, nil
}

// begin is how long a subject has to offer its devices for the first time, compiling a driver included.
const begin = 10 * time.Minute

// try starts a node for one subject and tries all scenarios one after the other.
func try(ctx context.Context, b *bed.Bed, s *Subject, t *trial) ([]verdict, error) {
	n, err := b.StartNode(ctx, t.options)
	if err != nil {
		return nil, err
	}
	defer n.Stop()
	c := &court{Node: n, subject: s, devices: t.options.Accelerators}
	if err := c.install(ctx); err != nil {
		return nil, err
	}
	var verdicts []verdict
	for i, scenario := range t.scenarios {
		fmt.Fprintf(os.Stderr, "judge: %s: %s …\n", s.Name, scenario.Name)
		v := c.judge(ctx, scenario)
		fmt.Fprintf(os.Stderr, "judge: %s: %s: %s\n", s.Name, scenario.Name, v)
		verdicts = append(verdicts, v)
		if err := c.restore(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			for range t.scenarios[i+1:] {
				verdicts = append(verdicts, verdict{untried: true, err: err})
			}
			break
		}
	}
	return verdicts, nil
}
