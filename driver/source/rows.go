package source

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/template"
)

// Verdict is the answer of a source.
type Verdict string

// The verdicts. A build that failed has an outcome of the same name.
const (
	Satisfied   Verdict = "satisfied"
	Unavailable Verdict = "unavailable" // the only one that falls through to the next source
	Refused     Verdict = "refused"
	Failed      Verdict = "failed"
	Waiting     Verdict = "waiting" // it will become available without further action
)

// Answer is the answer of one source for one kind.
type Answer struct {
	Verdict Verdict
	Plan    *kmod.Plan // if satisfied
	Problem *accel.Problem
	// Note says for people what is out of the ordinary, whatever the verdict; empty otherwise.
	Note string
}

// Options change how a driver is searched for.
type Options struct {
	// NoBuild skips the sources that need a compiler or a network.
	NoBuild bool
	// Retry clears the record of earlier loads of the driver that ended uncleanly.
	Retry bool
	// Fresh asks the configured sources before the host and the store, which have the drivers used so far.
	Fresh bool
	// Exact wants the user space that the definition asks for, and not one of the same version that it asked for
	// before.
	Exact bool
}

// search is one search for the driver of a definition.
type search struct {
	*Sources
	def   *accel.Definition
	facts accel.Facts
	Options
}

// row is one type of source that a definition configures.
type row struct {
	typ   accel.SourceType
	title string // for people; the source's path or image follows
	slow  bool   // it needs a compiler or a network
	ask   func(*search, context.Context, accel.Source) Answer
}

// rows are the types of sources, in the order in which they are asked.
func rows() []row {
	return []row{
		{accel.SourceOCI, "oci", true, (*search).askOCI},
		{accel.SourceBuild, "build from", true, (*search).askBuild},
		{accel.SourceBundle, "bundle", false, (*search).askBundle},
		{accel.SourceDistribution, "distribution", false, (*search).askDistribution},
	}
}

// Source is one possible source of a definition's driver.
type Source struct {
	Name string // for people
	Ask  func(context.Context) Answer
}

// For lists the possible sources of def's driver, in order: what the host has comes before what must be fetched or
// built, unless a fresh driver is wanted. A driver that is already loaded is not among them: whoever looks for a driver
// has seen that it is missing.
func (x *Sources) For(def *accel.Definition, facts accel.Facts, o Options) []Source {
	q := &search{x, def, facts, o}
	here := []Source{
		{"store", func(context.Context) Answer { return q.stored() }},
		{"installed", func(context.Context) Answer { return q.installed() }},
	}
	var configured []Source
	for _, p := range q.configured() {
		configured = append(configured, q.place(p.row, p.source))
	}
	if o.Fresh {
		slices.Reverse(here)
		return append(configured, here...)
	}
	return append(here, configured...)
}

// placed is a configured source with the row of its type.
type placed struct {
	row    row
	source accel.Source
}

// configured returns the configured sources in the order in which they are asked.
func (q *search) configured() (out []placed) {
	for _, s := range q.def.Driver.Sources {
		if !slices.ContainsFunc(rows(), func(r row) bool { return r.typ == s.Type }) {
			out = append(out, placed{row{title: string(s.Type), ask: (*search).askUnknown}, s})
		}
	}
	for _, r := range rows() {
		for _, s := range q.def.Driver.Sources {
			if s.Type == r.typ {
				out = append(out, placed{r, s})
			}
		}
	}
	return out
}

func (q *search) askUnknown(_ context.Context, s accel.Source) Answer {
	return Answer{Verdict: Refused, Problem: accel.Problemf(accel.DefinitionInvalid,
		"driver.sources of %q has type %q, which is not known", q.def.Kind, s.Type)}
}

// askDistribution answers for a source that stayed in the definition because it says nothing of the host's
// distribution; see [accel.Definition.On].
func (q *search) askDistribution(context.Context, accel.Source) Answer {
	return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource, "%s",
		q.def.NoDistribution(q.facts.OS.Major()))}
}

// place makes a source of a row's type.
func (q *search) place(r row, s accel.Source) Source {
	return Source{named(r.title, s), func(ctx context.Context) Answer {
		if text := s.Lacks(q.def, q.facts); text != "" {
			return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource, "%s", text)}
		}
		if r.slow && q.NoBuild {
			return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource,
				"nothing is built or fetched at this time")}
		}
		return r.ask(q, ctx, s)
	}}
}

// named is the name of a source for people: the title of its type and its path or image. A build may have both.
func named(title string, s accel.Source) string {
	if s.Path != "" && s.Image != "" {
		return title + " " + s.Path + " in " + s.ImageName()
	}
	return strings.TrimSpace(title + " " + s.Image + s.Path)
}

// Dirs returns the paths of def's sources and their parent directories, as paths on the host. A change there may help
// a driver that could not be built. Sources whose template fails are left out.
func Dirs(def *accel.Definition, facts accel.Facts) []string {
	var out []string
	for _, s := range def.Driver.Sources {
		p, problem := template.Fill(def, facts, "path", s.Path)
		if problem == nil && p != "" {
			out = append(out, path.Dir(p), p)
		}
	}
	return out
}
