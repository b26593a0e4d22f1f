package hostpkg

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/acceld/acceld/test/vm/progress"
)

// Follow returns a writer for what apt-get says (and mmdebstrap with --verbose, which shows apt-get's words), that
// counts the step: first megabytes fetched, then packages set up.
func Follow(step *progress.Step) *Follower {
	return &Follower{
		step: step, need: regexp.MustCompile(`^Need to get ([0-9.,]+) ([kMG]?B)`),
		got:  regexp.MustCompile(`^Get:\d+ .*\[([0-9.,]+) ([kMG]?B)\]$`),
		news: regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`),
	}
}

// Follower is an io.Writer for the words of apt-get.
type Follower struct {
	step            *progress.Step
	need, got, news *regexp.Regexp
	rest            string
	bytes           float64
	packages, setUp int
}

// Write never fails.
func (f *Follower) Write(p []byte) (int, error) {
	lines := strings.Split(f.rest+string(p), "\n")
	f.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		f.line(strings.TrimRight(line, "\r"))
	}
	return len(p), nil
}

func (f *Follower) line(line string) {
	switch {
	case strings.HasPrefix(line, "Setting up "):
		if f.setUp++; f.setUp == 1 {
			f.step.Of("packages set up", f.packages)
		}
		f.step.Set(f.setUp)
	case f.news.MatchString(line):
		f.packages, _ = strconv.Atoi(f.news.FindStringSubmatch(line)[1])
		f.setUp = 0
	case f.need.MatchString(line):
		f.bytes = 0
		f.step.Of("MB fetched", int(size(f.need.FindStringSubmatch(line))))
	case f.got.MatchString(line):
		f.bytes += size(f.got.FindStringSubmatch(line))
		f.step.Set(int(f.bytes))
	}
}

// size is in megabytes.
func size(match []string) float64 {
	number, _ := strconv.ParseFloat(strings.ReplaceAll(match[1], ",", ""), 64)
	return number * map[string]float64{"B": 1e-6, "kB": 1e-3, "MB": 1, "GB": 1e3}[match[2]]
}
