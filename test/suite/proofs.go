package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// proofsFile is the page of what is proven; the last column of its table says in which run of CI.
const proofsFile = "docs/proofs.md"

// fill writes the last column of the page's table, row by row from the row's command.
func fill(page string, units []*unit) string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(page) {
		row := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(row, "| claim |"):
			inside = true
			row = "| claim | command | run |"
		case inside && strings.HasPrefix(row, "|---"):
			row = "|---|---|---|"
		case inside && strings.HasPrefix(row, "| "):
			claim, command := cells(row)
			row = fmt.Sprintf("| %s | %s | %s |", claim, command, when(command, units))
		default:
			inside = false
		}
		out.WriteString(row + "\n")
	}
	return out.String()
}

// cells are the first two cells of a row; a bar in a cell is written \|.
func cells(row string) (claim, command string) {
	bar := regexp.MustCompile(`(^|[^\\])\|`)
	var at []int
	for _, m := range bar.FindAllStringIndex(row, -1) {
		at = append(at, m[1]-1)
	}
	if len(at) < 3 {
		return row, ""
	}
	return strings.TrimSpace(row[at[0]+1 : at[1]]), strings.TrimSpace(row[at[1]+1 : at[2]])
}

// when says in which run a row's commands are: each, a part, or none but by hand.
func when(command string, units []*unit) string {
	var found []string
	add := func(s string) {
		if !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(command, -1) {
		text := strings.ReplaceAll(m[1], `\|`, "|")
		names := named(text, units)
		for _, u := range names {
			if u.part == 0 {
				add("each")
			} else {
				add(fmt.Sprintf("%d/%d", u.part, parts))
			}
		}
		switch {
		case len(names) > 0:
		case strings.Contains(text, "ACCELD_BENCH=1") || strings.HasPrefix(text, "make figures") ||
			strings.HasPrefix(text, "make mutants"):
			add("measured by hand")
		default:
			add("each")
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

// named are the units of a command.
func named(command string, units []*unit) (found []*unit) {
	pattern := "."
	if m := regexp.MustCompile(`(?:RUN=|-run )'?([^' ]+)`).FindStringSubmatch(command); m != nil {
		pattern, _, _ = strings.Cut(m[1], "/")
	}
	tests, err := regexp.Compile(pattern)
	if err != nil || strings.Contains(command, "ACCELD_BENCH=1") {
		return nil
	}
	byTarget := map[string]string{
		"make demo": "demo", "make screenshots": "pages in a browser", "make test-arm64": "programs for arm64",
		"make test-nvidia-source": "nvidia/TestWholeSource", "make fuzz T=5m": "fuzz",
	}
	for _, u := range units {
		dir, test := path.Split(u.name)
		kubelet := strings.HasPrefix(u.name, "kubelet ")
		switch {
		case byTarget[command] == u.name,
			strings.HasPrefix(command, "make kubelets") && kubelet,
			strings.HasPrefix(command, "cd test/kubelet") && kubelet && strings.Contains(u.name, "1.37"),
			strings.HasPrefix(command, "cd packaging/"+u.name) || strings.HasPrefix(command, "cd test/"+u.name+" "),
			strings.HasPrefix(command, "make e2e") && dir == "e2e/" && tests.MatchString(test),
			strings.HasPrefix(command, "make power") && dir == "power/" && tests.MatchString(test),
			strings.HasPrefix(command, "make faults") && dir == "faults/" && tests.MatchString(test),
			dir != "" && strings.Contains(command, "ACCELD_TESTBED=1") && strings.HasSuffix(command,
				"./test/"+strings.TrimSuffix(dir, "/")) && tests.MatchString(test),
			strings.HasSuffix(command, "./test/purge") && strings.Contains(u.name, "purge"),
			strings.HasSuffix(command, "./runtime") && strings.Contains(u.name, "runtime, real"):
			found = append(found, u)
		}
	}
	return found
}
