package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/test/docs"
)

// step is what a page asks of its reader: one command line, or one block of YAML.
type step struct {
	page          string
	line          int
	section, info string
	// text is the command, or the YAML.
	text string
	// output is what the page shows of what a command prints.
	output string
}

func (s step) where() string { return fmt.Sprintf("%s:%d", s.page, s.line) }

func (s step) command() bool { return !strings.HasPrefix(s.info, "yaml") }

// summary is one line of it.
func (s step) summary() string {
	line, _, _ := strings.Cut(s.text, "\n")
	return line
}

// chapter is a page, or some sections of it, with what it takes for granted.
type chapter struct {
	name string // as a part of the scenario
	page string
	// only are anchors of sections; without them it is all that the page's other chapters leave.
	only []string
	// bare wants acceld not to be there yet; otherwise it is installed and ready.
	bare bool
	// before is what is to be there, or done elsewhere, when the reader comes to a step that begins so.
	before []stop
	// after takes back what would stand in the next page's way.
	after func(r *reader)
}

type stop struct {
	begins string
	do     func(r *reader)
}

// excuse is a step that nobody carries out, and why.
type excuse struct{ page, begins, why string }

func (e excuse) is(s step) bool { return s.page == e.page && strings.HasPrefix(s.text, e.begins) }

// excused finds the excuse of a step.
func excused(all []excuse, s step) (why string, ok bool) {
	i := slices.IndexFunc(all, func(e excuse) bool { return e.is(s) })
	if i < 0 {
		return "", false
	}
	return all[i].why, true
}

// steps reads a page.
func steps(page, text string) ([]step, error) {
	var all []step
	for _, b := range docs.Parse(text).Blocks {
		s := step{page: page, line: b.Line, section: b.Section, info: b.Info}
		switch kind, _, _ := strings.Cut(b.Info, " "); kind {
		case "sh", "console":
			for _, c := range b.Commands() {
				s.line, s.text, s.output = c.Line, c.Text, c.Output
				all = append(all, s)
			}
		case "yaml":
			s.text = b.Text
			all = append(all, s)
		case "text", "json": // shows something, asks for nothing
		default:
			return nil, fmt.Errorf("%s: nobody knows what to do with a block of %q", s.where(), b.Info)
		}
	}
	return all, nil
}

// book is every page of the documents, by path.
func book(root string) (map[string][]step, error) {
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	pages := map[string][]step{}
	for _, name := range append(names, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		page, err := filepath.Rel(root, name)
		if err != nil {
			return nil, err
		}
		if pages[page], err = steps(page, string(text)); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// of returns the steps of a chapter, in the order of its page.
func (c chapter) of(pages map[string][]step, all []chapter) []step {
	var others []string
	for _, o := range all {
		if o.page == c.page && len(o.only) > 0 {
			others = append(others, o.only...)
		}
	}
	var out []step
	for _, s := range pages[c.page] {
		if len(c.only) > 0 && slices.Contains(c.only, s.section) || len(c.only) == 0 && !slices.Contains(others,
			s.section) {
			out = append(out, s)
		}
	}
	return out
}

// The uses of YAML.
const (
	useConfig     = "a configuration of the agent"
	useDefinition = "a definition"
	usePartitions = "partitions of a definition"
	useObject     = "objects of the API"
	useFile       = "a file that commands name"
	useUnknown    = ""
)

// named is the file that a block says to be, in a comment on its first line.
func (s step) named() string {
	if m := regexp.MustCompile(`^# ([\w./-]+\.yaml)\n`).FindStringSubmatch(s.text); m != nil {
		return m[1]
	}
	return ""
}

// use is what a reader does with a block of YAML.
func (s step) use() string {
	var object struct {
		APIVersion, Kind string
		Metadata         map[string]any
	}
	first, _, _ := strings.Cut(s.text, "\n---\n")
	switch {
	case s.info == "yaml config":
		return useConfig
	case s.info == "yaml definition":
		return useDefinition
	case s.info == "yaml partitions":
		return usePartitions
	case yaml.Unmarshal([]byte(first), &object) == nil && object.APIVersion != "" && object.Kind != "" &&
		len(object.Metadata) > 0:
		return useObject
	case s.named() != "":
		return useFile
	}
	return useUnknown
}

// The places where a reader types.
const (
	onNode = "node"
	atDesk = "desk"
)

// place is where a command is typed, by its first word: what is about a host on the node, everything else at the own
// desk, in a clone of the repository.
func place(command string) (string, error) {
	words := strings.Fields(command)
	for len(words) > 0 && strings.Contains(words[0], "=") {
		words = words[1:]
	}
	word := ""
	if len(words) > 0 {
		word = words[0]
	}
	switch word {
	case "acceld", "acceld-nvml", "apt", "sh", "sudo", "systemctl":
		return onNode, nil
	case "go", "make", "helm", "kubectl", "openssl", "sha256sum", "for":
		return atDesk, nil
	case "curl": // the agent's endpoint is the node's own, what is forwarded is the desk's
		if strings.Contains(command, "127.0.0.1:9480") {
			return onNode, nil
		}
		return atDesk, nil
	}
	return "", fmt.Errorf("nobody knows where %q is typed", word)
}

// audit says what no chapter carries out and nobody excuses, and what names nothing that exists.
func audit(pages map[string][]step, host, cluster []chapter, excuses []excuse) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	all := slices.Concat(host, cluster)
	done := map[string][]string{}
	for i, c := range all {
		own := c.of(pages, all)
		if len(own) == 0 {
			fault("chapter %q has no step", c.name)
		}
		for _, section := range c.only {
			if !slices.ContainsFunc(own, func(s step) bool { return s.section == section }) {
				fault("chapter %q: %s has no section %q with a step", c.name, c.page, section)
			}
		}
		for _, b := range c.before {
			if !slices.ContainsFunc(own, func(s step) bool { return strings.HasPrefix(s.text, b.begins) }) {
				fault("chapter %q: no step of it begins with %q", c.name, b.begins)
			}
		}
		for _, s := range own {
			done[s.where()] = append(done[s.where()], c.name)
			if i < len(host) && !s.command() && s.use() == useObject {
				fault("%s: objects need a cluster, and chapter %q has none", s.where(), c.name)
			}
		}
	}
	for _, e := range excuses {
		if !slices.ContainsFunc(pages[e.page], e.is) {
			fault("excused, and not there: %s: %q", e.page, e.begins)
		}
		if e.why == "" {
			fault("excused without a reason: %s: %q", e.page, e.begins)
		}
	}
	for _, own := range pages {
		for _, s := range own {
			if _, ok := excused(excuses, s); ok {
				continue
			}
			if n := len(done[s.where()]); n != 1 {
				fault("%s: %q is carried out by %d chapters %q", s.where(), s.summary(), n, done[s.where()])
			}
			if !s.command() {
				if s.use() == useUnknown {
					fault("%s: nobody knows what to do with the YAML that begins with %q", s.where(), s.summary())
				}
			} else if _, err := place(s.text); err != nil {
				fault("%s: %v", s.where(), err)
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// TestNewcomerReadsAll: a block of a page that no chapter of TestNewcomer carries out and no row excuses is a failure,
// and so is a chapter or a row for what is not there. It needs no guest.
func TestNewcomerReadsAll(t *testing.T) {
	pages, err := book("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range audit(pages, hostChapters(), clusterChapters(), excuses()) {
		t.Error(fault)
	}
}

// TestNewcomerAudit shows the audit what it must catch.
func TestNewcomerAudit(t *testing.T) {
	const page = "# One\n\n```sh\nmake demo\nacceld status # all\n```\n\n## Two\n\n```yaml\na: 1\n```\n\n" +
		"```yaml\n# mine/x.yaml\na: 1\n```\n\n```yaml\napiVersion: v1\nkind: Pod\nmetadata: {name: x}\n```\n\n```text\nls\n```\n\n```sh\nls -l\n```\n"
	own, err := steps("p.md", page)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string][]step{"p.md": own}
	one, two := chapter{name: "one", page: "p.md", only: []string{"one"}}, chapter{name: "two", page: "p.md"}
	fragment, strange := excuse{"p.md", "a: 1", "a fragment"}, excuse{"p.md", "ls", "no such place"}
	for _, c := range []struct {
		name          string
		host, cluster []chapter
		excuses       []excuse
		want          []string
	}{
		{"all is well", []chapter{one}, []chapter{two}, []excuse{fragment, strange}, nil},
		{
			"nobody reads a section",
			[]chapter{one},
			nil,
			[]excuse{fragment, strange},
			[]string{
				`p.md:14: "# mine/x.yaml" is carried out by 0 chapters []`,
				`p.md:19: "apiVersion: v1" is carried out by 0 chapters []`,
			},
		},
		{
			"two read the same, one of them without a cluster",
			[]chapter{one, two},
			[]chapter{two},
			[]excuse{fragment, strange},
			[]string{
				`p.md:14: "# mine/x.yaml" is carried out by 2 chapters ["two" "two"]`,
				`p.md:19: "apiVersion: v1" is carried out by 2 chapters ["two" "two"]`,
				`p.md:19: objects need a cluster, and chapter "two" has none`,
			},
		},
		{
			"what is not excused",
			[]chapter{one},
			[]chapter{two},
			nil,
			[]string{
				`p.md:10: nobody knows what to do with the YAML that begins with "a: 1"`,
				`p.md:30: nobody knows where "ls" is typed`,
			},
		},
		{
			"what names nothing",
			[]chapter{{
				name: "one", page: "p.md", only: []string{"one", "three"},
				before: []stop{{"acceld doctor", nil}},
			}, {name: "none", page: "q.md"}},
			[]chapter{two},
			[]excuse{fragment, strange, {"p.md", "rm", "it is gone"}, {"p.md", "make", ""}},
			[]string{
				`chapter "none" has no step`, `chapter "one": no step of it begins with "acceld doctor"`,
				`chapter "one": p.md has no section "three" with a step`,
				`excused without a reason: p.md: "make"`, `excused, and not there: p.md: "rm"`,
			},
		},
	} {
		if diff := cmp.Diff(c.want, audit(pages, c.host, c.cluster, c.excuses)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if _, err := steps("p.md", "```python\nx\n```\n"); err == nil {
		t.Error("a block that nobody knows is no fault")
	}
}
