package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/test/unproven"
)

// table says of each unit whether it ran, how long it took, or in which part it runs.
func (s *state) table(out io.Writer, c choice) {
	units := slices.Clone(s.units)
	slices.SortStableFunc(units, func(a, b *unit) int { return strings.Compare(a.name, b.name) })
	fmt.Fprintf(out, "\n%-44s %-6s %8s %8s  %s\n", "unit", "part", "seconds", "planned", "this run")
	sum := make([]int, parts+1)
	for _, u := range units {
		part, took, word := "each", "", "not run"
		if u.part > 0 {
			part = fmt.Sprintf("%d/%d", u.part, parts)
		}
		sum[u.part] += u.seconds
		if c.runs(u) {
			word = "to run"
		}
		if u.ran {
			took, word = fmt.Sprintf("%.0f", u.took.Seconds()), "ok"
			if u.err != nil {
				word = "FAILED"
			}
		}
		fmt.Fprintf(out, "%-44s %-6s %8s %8d  %s\n", u.name, part, took, u.seconds, word)
	}
	for i := 1; i <= parts; i++ {
		fmt.Fprintf(out, "part %d/%d: %d s of work planned, %d at a time\n", i, parts, sum[0]+sum[i], workers())
	}
}

// verdict says how many units passed and failed, of how many there are, in the form that CI systems look for.
func (s *state) verdict(out io.Writer) error {
	passed, failed := 0, 0
	for _, u := range s.units {
		switch {
		case u.err != nil:
			failed++
		case u.ran:
			passed++
		}
	}
	for _, u := range s.units {
		for _, line := range u.skipped {
			fmt.Fprintf(out, "NOT CHECKED in %s: %s\n", u.name, line)
		}
	}
	said, err := os.ReadFile(filepath.Join(s.root, unproven.File))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(said)) {
		fmt.Fprintf(out, "NOT CHECKED %s", line)
	}
	fmt.Fprintf(out, "\n%d of %d units ran in %s\n%d passed, %d failed\n", passed+failed, len(s.units),
		brief(time.Since(s.start)), passed, failed)
	if failed > 0 {
		return errors.New("units failed")
	}
	if passed == 0 {
		return errors.New("nothing ran")
	}
	return nil
}

// save writes how long the units took that passed; the others keep what was known.
func (s *state) save() error {
	for _, u := range s.units {
		if u.ran && u.err == nil {
			u.seconds = int(u.took.Seconds() + 0.5)
		}
	}
	return os.WriteFile(filepath.Join(s.root, secondsFile), format(s.units), 0o644)
}

// document writes the page of what is proven.
func (s *state) document() error {
	path := filepath.Join(s.root, proofsFile)
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(fill(string(page), s.units)), 0o644)
}
