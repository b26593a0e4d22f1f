package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Exit codes; doc.go and test/edu/README.md say what they mean.
const (
	exitPass = iota
	exitFail
	exitUsage
	exitGone
)

// config is what the flags say.
type config struct {
	devices []string      // nil: every one that is visible
	expect  int           // -1: any number but none
	hold    time.Duration // 0: check once
	every   time.Duration // the period of the computations while it holds
	number  uint          // the factorial that it computes while it holds; 0: some in turn
	copies  int           // bytes of each copy while it holds
	vfio    bool          // compute through VFIO, on what the environment names
	leave   string        // not empty: say what is in the device's memory and leave this there, and compute nothing
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	code := run(ctx, os.Args[1:], os.DirFS("/dev"), open, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// parse reads the flags; it has printed the reason when it fails.
func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var devices string
	flags := flag.NewFlagSet("edu-check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&devices, "devices", "",
		"comma-separated device `nodes`; empty: every visible /dev/edu<N>, or its partitions")
	flags.IntVar(&c.expect, "expect", -1, "fail unless exactly `N` devices are there; -1: one or more")
	flags.DurationVar(&c.hold, "hold", 0, "keep computing for this `long`, or until SIGTERM")
	flags.DurationVar(&c.every, "every", 100*time.Millisecond, "the `period` of the computations with -hold")
	flags.UintVar(&c.number, "number", 0, "with -hold, compute the factorial of this `n`; 0: of some in turn")
	flags.IntVar(&c.copies, "copy", 64, "with -hold, copy this many `bytes` once a second")
	flags.StringVar(&c.leave, "leave", "",
		"compute nothing: say what is in the device's memory, and leave this `text` there")
	flags.BoolVar(&c.vfio, "vfio", false, "compute on the devices that were given with VFIO")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case c.hold < 0:
		err = fmt.Errorf("-hold %v is negative", c.hold)
	case c.every <= 0:
		err = fmt.Errorf("-every %v is not positive", c.every)
	case c.number > math.MaxUint32:
		err = fmt.Errorf("-number %d is more than 32 bits", c.number)
	case c.copies < 1:
		err = fmt.Errorf("-copy %d is not positive", c.copies)
	case len(c.leave) > leaveMax:
		err = fmt.Errorf("-leave has %d bytes, at most %d fit", len(c.leave), leaveMax)
	case c.expect < -1:
		err = fmt.Errorf("-expect %d is negative", c.expect)
	}
	if err != nil {
		fmt.Fprintln(stderr, "edu-check:", err)
	}
	if devices != "" {
		c.devices = strings.Split(devices, ",")
	}
	return c, err
}

// exitCode is what err means to whoever started the program.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitPass
	case errors.Is(err, errGone):
		return exitGone
	default:
		return exitFail
	}
}
