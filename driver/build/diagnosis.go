package build

import (
	"bytes"
	"io"
	"regexp"
	"strings"

	"github.com/acceld/acceld/accel"
)

// buildLogLimit is how many bytes of a build's output are kept; a compiler's first messages are the ones that matter.
const buildLogLimit = 16 << 20

// symptom is one way in which a build reports why it failed. The rows are ordered by how much they explain: a full
// disk also causes a compiler error, and a compiler error also makes make fail.
type symptom struct {
	pattern string
	reason  accel.Reason
}

func symptoms() []symptom {
	return []symptom{
		{`No space left on device|Disk quota exceeded`, accel.NoSpace},
		{
			`Killed signal terminated program|out of memory allocating|virtual memory exhausted|Cannot allocate memory|: Killed$|\] Killed$|ld terminated with signal 9`,
			accel.BuildOutOfMemory,
		},
		{
			`(^|[ /])(gcc|cc|clang|ld|ld\.lld|make)[-0-9.]*: (command )?not found|: (gcc|cc|clang|ld)[-0-9.]*: No such file or directory|: [^:]*/?(gcc|clang)-[0-9]+: not found`,
			accel.CompilerMissing,
		},
		{`^[^\s:"']+:\d+(:\d+)?: (fatal )?error: `, accel.BuildFailed},
		{`^[^\s:"']+: (fatal |internal compiler )?error: |^error: `, accel.BuildFailed},
		{`^[^\s:"']+:\d+: Error: `, accel.BuildFailed}, // the assembler
		{
			`^(ERROR: )?modpost: .*(undefined!|is not|uses GPL-only|uses symbol|imports|missing)|^ERROR: .*undefined!|^FATAL: modpost: `,
			accel.BuildFailed,
		},
		{`undefined reference to |^ld(\.lld)?: (error: )?`, accel.BuildFailed},
		{`^Makefile:\d+: \*\*\* |^[^ ]+:\d+: \*\*\* `, accel.BuildFailed},
		{`^make(\[\d+\])?: \*\*\* No rule to make target`, accel.BuildFailed},
		// A shell or make did not find a program, such as pahole. Make itself only says "Error 127".
		{`^(\S*sh|\S+): (line )?\d+: \S+: (command )?not found$|^make(\[\d+\])?: \S+: No such file or directory$`, accel.BuildFailed},
		{`^make(\[\d+\])?: \*\*\* `, accel.BuildFailed},
	}
}

var (
	// colours are SGR and erase-in-line, which compilers write if they mistake a pipe for a terminal (ECMA-48).
	colours = regexp.MustCompile(`\x1b\[[0-9;]*[mK]`)
	// step is a line of progress, such as "  CC [M]  edu.o".
	step = regexp.MustCompile(`^  [A-Z]`)
)

// diagnosis reads a build's output as it arrives. It keeps the log, reports progress and remembers the first line of
// each symptom.
type diagnosis struct {
	log      io.Writer
	progress func(done int, command string)
	work     string // the work directory, removed from messages for people
	rows     []*regexp.Regexp
	first    []string // by row
	last     string
	part     []byte // an incomplete line
	counted  int    // progress lines
	written  int
	err      error // from writing the log
}

func newDiagnosis(log io.Writer, work string, progress func(int, string)) *diagnosis {
	d := &diagnosis{log: log, work: work, progress: progress}
	for _, s := range symptoms() {
		d.rows = append(d.rows, regexp.MustCompile(s.pattern))
	}
	d.first = make([]string, len(d.rows))
	return d
}

// Write processes a piece of output. It never fails: a build does not stop because of its log.
func (d *diagnosis) Write(b []byte) (int, error) {
	if keep := min(len(b), buildLogLimit-d.written); keep > 0 && d.err == nil {
		_, d.err = d.log.Write(b[:keep])
		d.written += keep
	}
	d.part = append(d.part, b...)
	for {
		i := bytes.IndexByte(d.part, '\n')
		if i < 0 {
			const longest = 64 << 10
			if len(d.part) > longest {
				d.part = d.part[:0] // no compiler writes a line this long
			}
			return len(b), nil
		}
		d.line(string(d.part[:i]))
		d.part = d.part[i+1:]
	}
}

func (d *diagnosis) line(line string) {
	line = strings.TrimRight(colours.ReplaceAllString(line, ""), "\r ")
	if line == "" {
		return
	}
	clean := strings.ReplaceAll(strings.ReplaceAll(line, d.work+"/", ""), d.work, ".")
	if step.MatchString(clean) {
		d.counted++
		d.progress(d.counted, strings.Join(strings.Fields(clean), " "))
		return
	}
	d.last = clean
	for i, row := range d.rows {
		if d.first[i] == "" && row.MatchString(clean) {
			d.first[i] = clean
		}
	}
}

// problem returns why the build failed. Program is the program that failed, and exit its exit error.
func (d *diagnosis) problem(program string, exit error) *accel.Problem {
	if len(d.part) > 0 {
		d.line(string(d.part))
		d.part = nil
	}
	if d.err != nil && accel.ReasonForError(d.err, "") == accel.NoSpace {
		return accel.Problemf(accel.NoSpace, "cannot write the build log: %v", d.err)
	}
	for i, s := range symptoms() {
		if d.first[i] != "" {
			return accel.Problemf(s.reason, "%s", strings.TrimSpace(d.first[i]))
		}
	}
	if d.last != "" {
		return accel.Problemf(accel.BuildFailed, "%s (%v)", strings.TrimSpace(d.last), exit)
	}
	return accel.Problemf(accel.BuildFailed, "%s ended without a word: %v", program, exit)
}
