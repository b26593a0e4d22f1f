package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// parts is the number of parts of the suite. One part, with everything built first, fits into 88 minutes on two
// processors that are a third as fast as those on which the seconds were measured: there the checks and the building of
// the test bed take 40 of them.
const parts = 16

// deal gives each unit its part: the longest first, always to the part that has least so far. It depends on nothing but
// the units and their seconds.
func deal(units []*unit) {
	units = slices.Clone(units)
	slices.SortStableFunc(units, longest)
	load := make([]int, parts)
	for _, u := range units {
		if u.always {
			u.part = 0
			continue
		}
		least := 0
		for i := range load {
			if load[i] < load[least] {
				least = i
			}
		}
		load[least] += u.seconds
		u.part = least + 1
	}
}

// choice is which units run, and why these.
type choice struct {
	why  string
	runs func(*unit) bool
}

// choose reads the options; without any the commit chooses.
func (s *state) choose(ctx context.Context, o options) (choice, error) {
	if o.only != "" {
		pattern, err := regexp.Compile(o.only)
		if err != nil {
			return choice{}, fmt.Errorf("cannot read -run: %w", err)
		}
		return choice{"units that match " + o.only, func(u *unit) bool { return pattern.MatchString(u.name) }}, nil
	}
	if o.part == "all" {
		return choice{"all parts", func(*unit) bool { return true }}, nil
	}
	part, why := 0, "PART="+o.part
	if o.part == "" {
		out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
		commit := strings.TrimSpace(string(out))
		if err != nil || commit == "" {
			commit = "00" // a tree without history has one choice, too
		}
		part = byCommit(commit)
		why = fmt.Sprintf("part %d of %d, chosen by commit %s (PART=n/%d chooses another, PART=all runs all)", part,
			parts, commit[:min(12, len(commit))], parts)
	} else {
		var of int
		if n, err := fmt.Sscanf(o.part, "%d/%d", &part, &of); n != 2 || err != nil || of != parts || part < 1 ||
			part > parts {
			return choice{}, fmt.Errorf("cannot run part %q: want 1/%d to %d/%d, or all", o.part, parts, parts, parts)
		}
	}
	return choice{why, func(u *unit) bool { return u.part == 0 || u.part == part }}, nil
}

// byCommit is the part that a commit, in hexadecimal, chooses.
func byCommit(commit string) int {
	digits, err := hex.DecodeString(commit)
	if err != nil {
		return 1
	}
	rest := 0
	for _, d := range digits {
		rest = (rest*256 + int(d)) % parts
	}
	return rest + 1
}
