package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// progress tells a person how far it is.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	what  string
	began time.Time
	n, of int
}

func newProgress(out io.Writer, what string, of int) *progress {
	return &progress{out: out, what: what, began: time.Now(), of: of}
}

// done counts one more and says what it was, in one line.
func (p *progress) done(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	since := time.Since(p.began)
	left := since / time.Duration(p.n) * time.Duration(p.of-p.n)
	what := strings.TrimSpace(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
	fmt.Fprintf(p.out, "%s: %d of %d, %v gone, about %v left: %s\n", p.what, p.n, p.of, since.Round(time.Second),
		left.Round(time.Second), what)
}

// table prints every result, those that somebody must look at last.
func table(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nMUTANT\tPLACE\tOUTCOME\tBY\tTIME")
	for _, r := range results {
		o, by := string(r.outcome), r.by
		if r.Explained != "" {
			o += ", explained"
		}
		if r.outcome == broken {
			by = ""
		}
		fmt.Fprintf(w, "%s\t%s:%d\t%s\t%s\t%.1fs\n", r.ID, r.File, r.line, o, by, r.took.Seconds())
	}
	_ = w.Flush()
	for _, r := range results {
		switch {
		case r.outcome == broken:
			fmt.Fprintf(out, "\n%s:%d: %s did not compile:\n%s\n", r.File, r.line, r.ID, r.by)
		case r.outcome == survived && r.Explained != "":
			fmt.Fprintf(out, "\n%s:%d: %s survived, as explained: %s\n", r.File, r.line, r.ID, r.Explained)
		case r.outcome == survived:
			fmt.Fprintf(out, "\n%s:%d: %s survived: %s\n", r.File, r.line, r.ID, r.Why)
			for _, e := range r.edits() {
				fmt.Fprint(out, marked("- ", e.Was), marked("+ ", e.Now))
			}
		}
	}
}

func marked(mark, text string) string {
	var b strings.Builder
	for _, l := range trimmed(text) {
		b.WriteString("\t" + mark + l + "\n")
	}
	return b.String()
}

// score counts results.
type score struct{ all, killed, late, explained int }

func sum(results []result) score {
	s := score{all: len(results)}
	for _, r := range results {
		switch {
		case r.outcome == killed:
			s.killed++
		case r.outcome == late:
			s.late++
		case r.outcome == survived && r.Explained != "":
			s.explained++
		}
	}
	return s
}

// percent is the share that was noticed, rounded down. What is explained counts as not noticed: otherwise a score would
// be a matter of explaining.
func (s score) percent() int { return 100 * (s.killed + s.late) / max(s.all, 1) }

// sentence is how a score is written, here and by String.
const sentence = "Of %d mutants the unit tests notice %d (%d %%), %d of them by a test that hangs; for %d others the list explains why no test can."

func (s score) String() string {
	return fmt.Sprintf(sentence, s.all, s.killed+s.late, s.percent(), s.late, s.explained)
}

// least is the score below which the tests are not good enough.
const least = 95

// verdict is an error when somebody must do something.
func verdict(results []result, s score) error {
	var err error
	for _, r := range results {
		switch {
		case r.outcome == broken:
			err = errors.Join(err, fmt.Errorf("%s did not compile", r.ID))
		case r.outcome == survived && r.Explained == "":
			err = errors.Join(err, fmt.Errorf("%s survived", r.ID))
		case r.outcome != survived && r.Explained != "":
			err = errors.Join(err, fmt.Errorf("%s is explained, but %s notices it", r.ID, r.by))
		}
	}
	if s.percent() < least {
		err = errors.Join(err, fmt.Errorf("the score is %d %%, at least %d %% are wanted", s.percent(), least))
	}
	return err
}

// The score is in a page, between two marks.
const (
	page      = "docs/proofs.md"
	openMark  = "<!-- the score: make mutants WRITE=1 -->\n"
	closeMark = "<!-- end of the score -->\n"
)

// between finds the text between the marks.
func between(text []byte) (from, to int, err error) {
	from = bytes.Index(text, []byte(openMark))
	to = bytes.Index(text, []byte(closeMark))
	if from < 0 || to < from {
		return 0, 0, fmt.Errorf("%s has no place for the score", page)
	}
	return from + len(openMark), to, nil
}

// standing is what the page says: the score of the recorded results, and how many mutants have none.
func standing(list []mutant, known record) string {
	results := known.results(list)
	if len(results) == 0 {
		return unscored
	}
	text := sum(results).String()
	if missing := len(list) - len(results); missing > 0 {
		text += fmt.Sprintf(" %d more have not been run yet.", missing)
	}
	return text
}

// unscored is what the page says before the first run.
const unscored = "No score yet."

// save writes the record, and what it amounts to into the page.
func save(root string, list []mutant, known record) error {
	if err := known.write(root); err != nil {
		return err
	}
	return writePage(filepath.Join(root, page), standing(list, known))
}

// writePage puts a text between the marks of the page.
func writePage(name, standing string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	from, to, err := between(text)
	if err != nil {
		return err
	}
	return os.WriteFile(name, bytes.Join([][]byte{text[:from], text[to:]}, []byte(standing+"\n")), 0o644)
}
