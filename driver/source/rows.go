package source

import (
	"context"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/template"
)

// Verdict is the answer of a source.
type Verdict string

// The verdicts.
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
}

// Options change how a driver is searched for.
type Options struct {
	// NoBuild skips the sources that need a compiler or a network.
	NoBuild bool
	// Retry clears the record of earlier loads of the driver that ended uncleanly.
	Retry bool
	// Fresh asks the configured sources before the host and the store, which have the drivers used so far.
	Fresh bool
}

// row is one type of source, in its own file. The order of the rows decides where a driver comes from.
type row struct {
	typ accel.SourceType
	// always means that the source is asked even without an entry in the definition.
	always bool
	// slow means that the source needs a compiler or a network.
	slow bool
	// late is the position among the sources that Fresh asks last: those that the host already has.
	late int
	name func(accel.Source) string
	// ask is nil if the source need not be asked.
	ask func(*Sources, context.Context, *accel.Definition, accel.Facts, accel.Source, Options) Answer
}

// rows are the types of sources, in the order in which they are asked: what is ready comes before what must be
// fetched or built.
func rows() []row {
	return []row{loadedRow(), storeRow(), installedRow(), ociRow(), buildRow(), bundleRow()}
}

// loadedRow is the driver that is already loaded. It is never asked: whoever looks for a driver has seen that it is
// missing.
func loadedRow() row { return row{typ: accel.SourceLoaded, always: true} }

// Source is one possible source of a definition's driver.
type Source struct {
	Type  accel.SourceType
	Entry accel.Source // from the definition; for other sources only the type is set
	Name  string       // for people
	late  int
	Ask   func(context.Context) Answer
}

// For lists the possible sources of def's driver, in order.
func (x *Sources) For(def *accel.Definition, facts accel.Facts, o Options) []Source {
	var first, unknown, configured []Source
	for _, r := range rows() {
		if r.always && r.ask != nil {
			first = append(first, x.place(def, facts, r, accel.Source{Type: r.typ}, o))
		}
		for _, s := range def.Driver.Sources {
			if s.Type == r.typ && !r.always {
				configured = append(configured, x.place(def, facts, r, s, o))
			}
		}
	}
	for _, s := range def.Driver.Sources {
		if !slices.ContainsFunc(rows(), func(r row) bool { return r.typ == s.Type }) {
			unknown = append(unknown, Source{
				Type: s.Type, Entry: s, Name: string(s.Type),
				Ask: func(context.Context) Answer {
					return Answer{Refused, nil, accel.Problemf(accel.DefinitionInvalid,
						"driver.sources of %q has type %q, which is not known", def.Kind, s.Type)}
				},
			})
		}
	}
	return slices.Concat(first, unknown, configured)
}

// place makes a source of a row's type.
func (x *Sources) place(def *accel.Definition, facts accel.Facts, r row, s accel.Source, o Options) Source {
	out := Source{Type: r.typ, late: r.late, Entry: s, Name: string(r.typ)}
	if r.name != nil {
		out.Name = r.name(s)
	}
	out.Ask = func(ctx context.Context) Answer {
		if r.slow && o.NoBuild {
			return Answer{Unavailable, nil, accel.Problemf(accel.NoDriverSource,
				"nothing is built or fetched at this time")}
		}
		return r.ask(x, ctx, def, facts, s, o)
	}
	return out
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
