package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/test/unproven"
)

// TestAll is which database is taken, and what the list of what was not checked says of it.
func TestAll(t *testing.T) {
	silent, finding := errors.New("exit status 1"), errors.New("exit status 3")
	for name, tc := range map[string]struct {
		live   error
		proxy  string // the version that the module proxy has
		cached []string
		found  error // what govulncheck says by the database in files
		want   []string
		err    error
		list   string
	}{
		"live":      {want: []string{"live ./cmd/...", "live ./..."}},
		"a finding": {live: finding, err: finding, want: []string{"live ./cmd/..."}},
		"none": {
			live: silent, want: []string{"live ./cmd/..."},
			list: "vulnerabilities: no database can be had from here\n",
		},
		"empty": {
			live: silent, cached: []string{"vulndb-2026-01-02/README"},
			want: []string{"live ./cmd/..."}, list: "vulnerabilities: no database can be had from here\n",
		},
		"stored": {live: silent, cached: []string{
			"vulndb-2026-01-02/GO-1.json",
			"vulndb-2026-03-01/GO-1.json",
		}, want: []string{
			"live ./cmd/...", "2026-03-01 ./cmd/...",
			"2026-03-01 ./...",
		}, list: after("2026-03-01")},
		"a newer module": {
			live: silent, proxy: "v0.0.0-20260821203800-a752ea54fd1b",
			cached: []string{"vulndb-2026-01-02/GO-1.json"}, want: []string{
				"live ./cmd/...", "module ./cmd/...",
				"module ./...",
			}, list: after("2026-08-21"),
		},
		"an older module": {
			live: silent, proxy: "v0.0.0-20250821203800-a752ea54fd1b",
			cached: []string{"vulndb-2026-01-02/GO-1.json"}, want: []string{
				"live ./cmd/...", "2026-01-02 ./cmd/...",
				"2026-01-02 ./...",
			}, list: after("2026-01-02"),
		},
		"a stored finding": {
			live: silent, cached: []string{"vulndb-2026-01-02/GO-1.json"}, found: finding,
			err: finding, want: []string{"live ./cmd/...", "2026-01-02 ./cmd/..."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, tree := t.TempDir(), t.TempDir()
			for _, file := range append(tc.cached, "module/data/osv/GO-2.json") {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var ran []string
			play := func(_ context.Context, _, program string, args ...string) ([]byte, error) {
				switch {
				case program == "go" && tc.proxy == "":
					return []byte(`{"Error": "403 Forbidden"}`), errors.New("exit status 1")
				case program == "go":
					return fmt.Appendf(nil, `{"Dir": %q, "Version": %q}`, filepath.Join(dir, "module"), tc.proxy), nil
				case args[0] != "-db":
					ran = append(ran, "live "+args[0])
					if errors.Is(tc.live, silent) {
						return []byte("govulncheck: fetching vulnerabilities: no such host"), tc.live
					}
					return nil, tc.live
				}
				rest := strings.TrimPrefix(args[1], "file://"+dir+"/")
				rest = strings.TrimPrefix(strings.TrimSuffix(rest, "/data/osv"), "vulndb-")
				ran = append(ran, rest+" "+args[2])
				return nil, tc.found
			}
			list := unproven.In(tree)
			if err := list.Note(what, "said before"); err != nil {
				t.Fatal(err)
			}
			c := check{
				program: "govulncheck", patterns: []string{"./cmd/..."}, below: []string{"below"}, cache: dir,
				run: play, out: &bytes.Buffer{}, list: list,
			}
			if err := c.all(t.Context()); !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, ran); diff != "" {
				t.Error(diff)
			}
			said, err := os.ReadFile(filepath.Join(tree, unproven.File))
			if err != nil {
				t.Fatal(err)
			}
			if tc.err == nil && string(said) != tc.list {
				t.Errorf("not checked: %q, want %q", said, tc.list)
			}
		})
	}
}

func after(date string) string {
	return "vulnerabilities: those made known after " + date +
		", the date of the newest database that can be had from here\n"
}
