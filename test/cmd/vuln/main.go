// Command vuln runs govulncheck with the newest database of vulnerabilities that can be had: the live one; else that of
// the module golang.org/x/vulndb, which a module proxy may have; else what somebody has put into the cache as
// vulndb-<date>/GO-….json, from data/osv of that module's repository. It says which, and what that leaves unchecked.
//
//	vuln -govulncheck PROGRAM [-C DIR]... PATTERN...
//
// It ends with 0 when it found nothing or there is no database, and with govulncheck's status otherwise.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/test/unproven"
	"github.com/acceld/acceld/test/vm/cache"
)

func main() {
	c := check{run: run, out: os.Stdout, list: unproven.In(".")}
	flag.StringVar(&c.program, "govulncheck", "govulncheck", "the program to run")
	flag.Func("C", "a module below this one to check too, all of it", func(dir string) error {
		c.below = append(c.below, dir)
		return nil
	})
	flag.Parse()
	c.patterns = flag.Args()
	dir, err := cache.Open(nil)
	if err == nil {
		c.cache = dir.Path()
		err = c.all(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}

// what is the name of the check in the list of what was not checked.
const what = "vulnerabilities"

// module holds the reports of the database, one file each, below data/osv.
const module = "golang.org/x/vulndb"

type check struct {
	program         string
	patterns, below []string
	cache           string // the folder in which databases may lie
	run             func(ctx context.Context, dir, program string, args ...string) (output []byte, err error)
	out             io.Writer
	list            unproven.List
}

// database is a folder of reports. The live one has no folder.
type database struct{ dir, date string }

func (c check) all(ctx context.Context) error {
	err := c.with(ctx, database{})
	if err == nil {
		fmt.Fprintln(c.out, "vuln: by the live database")
		return c.list.Proven(what)
	}
	if !errors.Is(err, errSilent) {
		return err
	}
	db, found := c.stored(ctx)
	if !found {
		fmt.Fprintln(c.out, "vuln: NOT CHECKED, no database of vulnerabilities can be had from here")
		return c.list.Note(what, "no database can be had from here")
	}
	if err := c.with(ctx, db); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "vuln: by the database of %s: the live one does not answer from here\n", db.date)
	return c.list.Note(what, "those made known after "+db.date+
		", the date of the newest database that can be had from here")
}

// errSilent is that the database does not answer.
var errSilent = errors.New("the database of vulnerabilities does not answer")

// with runs the checks by one database.
func (c check) with(ctx context.Context, db database) error {
	var flags []string
	if db.dir != "" {
		flags = []string{"-db", "file://" + db.dir}
	}
	for _, dir := range append([]string{"."}, c.below...) {
		patterns := c.patterns
		if dir != "." {
			patterns = []string{"./..."}
		}
		output, err := c.run(ctx, dir, c.program, append(slices.Clone(flags), patterns...)...)
		if err != nil && bytes.Contains(output, []byte("govulncheck: fetching vulnerabilities")) {
			if db.dir == "" {
				return errSilent
			}
			return fmt.Errorf("cannot read the database in %q: %w\n%s", db.dir, err, output)
		}
		fmt.Fprintf(c.out, "%s", output)
		if err != nil {
			return fmt.Errorf("checked %q by the database of %s: %w", dir, orLive(db.date), err)
		}
	}
	return nil
}

func orLive(date string) string {
	if date == "" {
		return "today"
	}
	return date
}

// stored is the newest database in files.
func (c check) stored(ctx context.Context) (database, bool) {
	var found []database
	const prefix = "vulndb-"
	// Only a malformed pattern is an error.
	dirs, _ := filepath.Glob(filepath.Join(c.cache, prefix+"????-??-??"))
	for _, dir := range dirs {
		found = append(found, database{dir, strings.TrimPrefix(filepath.Base(dir), prefix)})
	}
	// Where the proxy does not have the module either, what is stored is all there is.
	if output, err := c.run(ctx, ".", "go", "mod", "download", "-json", module+"@latest"); err == nil {
		var got struct{ Dir, Version string }
		if json.Unmarshal(output, &got) == nil {
			found = append(found, database{filepath.Join(got.Dir, "data", "osv"), date(got.Version)})
		}
	}
	found = slices.DeleteFunc(found, func(db database) bool {
		reports, err := filepath.Glob(filepath.Join(db.dir, "GO-*.json"))
		return err != nil || len(reports) == 0
	})
	if len(found) == 0 {
		return database{}, false
	}
	return slices.MaxFunc(found, func(a, b database) int { return strings.Compare(a.date, b.date) }), true
}

// date is the day of a version v0.0.0-yyyymmddhhmmss-revision.
func date(version string) string {
	fields := strings.Split(version, "-")
	if len(fields) < 3 {
		return version
	}
	when, err := time.Parse("20060102150405", fields[len(fields)-2])
	if err != nil {
		return version
	}
	return when.Format(time.DateOnly)
}

// run returns what a program writes to its standard output, and behind it what it writes to the other.
func run(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if dir != "." {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // acceld-nvml
	}
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	err := cmd.Run()
	if err != nil {
		out.Write(errors.Bytes())
	}
	return out.Bytes(), err
}
