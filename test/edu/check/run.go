package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"
)

// run is the whole program but for the process around it. dev holds the
// device nodes, and open opens one by its path.
func run(ctx context.Context, args []string, dev fs.FS, open func(path string) (accelerator, error), stdout,
	stderr io.Writer,
) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitPass
	}
	if err != nil {
		return exitUsage
	}
	var n int
	if c.vfio {
		n, err = checkVFIO(ctx, c, stdout)
	} else {
		n, err = check(ctx, c, dev, open, stdout)
	}
	if err != nil {
		if errors.Is(err, errGone) {
			fmt.Fprintln(stderr, err)
		} else {
			fmt.Fprintln(stderr, "edu-check: FAIL", err)
		}
		return exitCode(err)
	}
	fmt.Fprintf(stdout, "edu-check: PASS %d device(s)\n", n)
	return exitPass
}

// check checks the devices that c asks for and returns how many there were.
func check(ctx context.Context, c config, dev fs.FS, open func(path string) (accelerator, error),
	stdout io.Writer,
) (int, error) {
	paths := c.devices
	if paths == nil {
		var err error
		if paths, err = find(dev); err != nil {
			return 0, err
		}
	}
	if c.expect >= 0 && len(paths) != c.expect {
		return 0, fmt.Errorf("%d device(s) visible, %d expected", len(paths), c.expect)
	}
	if c.expect < 0 && len(paths) == 0 {
		return 0, errors.New("no /dev/edu<N> visible")
	}
	held := map[string]accelerator{}
	for _, path := range paths {
		a, err := open(path)
		if err != nil {
			return 0, gone(path, err)
		}
		held[path] = a
		i, err := a.Info()
		if err != nil {
			return 0, gone(path, err)
		}
		fmt.Fprintf(stdout, "%s serial %s bdf %s\n", path, i.Serial, i.BDF)
		if c.leave != "" {
			if err := leave(a, c.leave, stdout); err != nil {
				return 0, gone(path, err)
			}
			continue
		}
		if err := verify(a); err != nil {
			return 0, gone(path, err)
		}
	}
	if c.leave != "" && c.hold > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(c.hold):
		}
		return len(paths), nil
	}
	if c.hold > 0 {
		return len(paths), hold(ctx, c, held, stdout)
	}
	return len(paths), nil
}

// heartbeatEvery is how often hold reports, if it computes as often.
const heartbeatEvery = time.Second

// hold keeps every device busy for as long as c says, or until ctx ends, or until one fails.
func hold(ctx context.Context, c config, held map[string]accelerator, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, c.hold)
	defer cancel()
	var mu sync.Mutex // one line at a time
	var wg sync.WaitGroup
	errs := make(chan error, len(held))
	for path, a := range held {
		wg.Go(func() {
			err := holdOne(ctx, a, c, func(ops int, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(stdout, "%s alive, %d factorials, slowest %v\n", path, ops, took.Round(time.Microsecond))
			})
			if err != nil {
				errs <- gone(path, err)
				cancel()
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs // nil when nobody failed
}

// holdOne computes on one device until ctx ends, once each period. Each second
// it also moves some data, which keeps the device visibly busy (a copy takes it
// 200 ms), and calls beat with the number of factorials since the last beat and
// the time that the slowest took.
func holdOne(
	ctx context.Context, a accelerator, c config, beat func(ops int, slowest time.Duration),
) error {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	last, ops, slowest := time.Now(), 0, time.Duration(0)
	for n := uint32(1); ; n = n%maxInteresting + 1 {
		start := time.Now()
		if err := verifyFactorial(a, cmp.Or(uint32(c.number), n)); err != nil {
			return err
		}
		ops, slowest = ops+1, max(slowest, time.Since(start))
		if time.Since(last) >= heartbeatEvery {
			if err := verifyCopy(a, c.copies); err != nil {
				return err
			}
			beat(ops, slowest)
			last, ops, slowest = time.Now(), 0, 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
