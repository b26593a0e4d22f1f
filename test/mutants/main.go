// Command mutants shows what the unit tests would notice: each entry of its list is one harmful change of one place,
// such as a check that is dropped or an fsync that is forgotten, and some test must fail with it. `make mutants` starts
// it; it changes nothing in the tree, because the compiler gets the changed file by -overlay, and it ends with 1 when a
// change goes unnoticed.
//
// Why not go-mutesting or gremlins: both find their mutants themselves, by operators of the language (another
// comparison, a statement less), and can be told which operators, packages and changed lines to take, but not which
// mutants. At a hundred thousand lines that is days of computing, for a list that nobody has judged. Here the list is
// the point: reviewed data, in the directory list, where each entry says what would come of it. What no generator can
// guess, such as two steps swapped or a lock let go early, is in it like the rest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

func main() {
	pick := flag.String("run", "", "take only mutants whose id or file matches this `regexp`")
	fresh := flag.Bool("new", false, "take only mutants without a result in "+recordFile)
	write := flag.Bool("write", false, "write the results into "+recordFile+", and the score of all that it has into "+
		page)
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many mutants are run at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, options{root: ".", pick: *pick, fresh: *fresh, write: *write, jobs: *jobs})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	root  string // of the module
	pick  string // a regexp; empty for all
	fresh bool   // only those without a recorded result
	write bool
	jobs  int
}

// run is the command: the list is checked, the tests are run as they are, then with each mutant.
func run(ctx context.Context, out io.Writer, o options) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	all, err := read(root)
	if err != nil {
		return err
	}
	if problems := check(root, all); len(problems) > 0 {
		for _, p := range problems {
			fmt.Fprintln(out, p)
		}
		return fmt.Errorf("%d entries of the list are not right", len(problems))
	}
	re, err := regexp.Compile(o.pick)
	if err != nil {
		return fmt.Errorf("cannot pick mutants: %v", err)
	}
	r, err := newRunner(root, out)
	if err != nil {
		return err
	}
	defer r.close()
	var picked []mutant
	for _, m := range all {
		if _, known := r.record[m.ID]; (re.MatchString(m.ID) || re.MatchString(m.File)) && !(known && o.fresh) {
			picked = append(picked, m)
		}
	}
	if len(picked) == 0 {
		return fmt.Errorf("no mutant to run has an id or a file like %q", o.pick)
	}
	began := time.Now()
	results, err := r.all(ctx, picked, max(o.jobs, 1))
	if o.write {
		err = errors.Join(err, save(root, all, r.record.with(all, results)))
	}
	if err != nil {
		return err
	}
	s := sum(results)
	table(out, results)
	fmt.Fprintf(out, "\n%s In %v.\n", s, time.Since(began).Round(time.Second))
	return verdict(results, s)
}
