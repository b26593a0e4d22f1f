package source

import (
	"context"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/template"
)

// Verdict is how a source answers.
type Verdict string

// The verdicts.
const (
	Satisfied   Verdict = "satisfied"
	Unavailable Verdict = "unavailable" // the only one that falls through to the next source
	Refused     Verdict = "refused"
	Failed      Verdict = "failed"
	Waiting     Verdict = "waiting" // it will be there by itself
)

// Answer is what one source says about one kind.
type Answer struct {
	Verdict Verdict
	Plan    *kmod.Plan // when satisfied
	Problem *accel.Problem
}

// Options change how a driver is looked for.
type Options struct {
	// NoBuild leaves out the sources that need a compiler or a network.
	NoBuild bool
	// Retry forgets that earlier loads of the driver ended uncleanly.
	Retry bool
	// Fresh asks the configured sources before the host and the store, which have what served until now.
	Fresh bool
}

// row is one type of source, in a file of its own. Where a driver comes from is decided by the order of the rows.
type row struct {
	typ accel.SourceType
	// always is asked without an entry in the definition.
	always bool
	// slow needs a compiler or a network.
	slow bool
	// late is the order among what is asked last when the newest is wanted: what the host has already.
	late int
	name func(accel.Source) string
	// ask is nil for what nobody has to be asked for.
	ask func(*Sources, context.Context, *accel.Definition, accel.Facts, accel.Source, Options) Answer
}

// rows are the types of sources, in the order in which they are asked: what is ready precedes what must be fetched or
// built.
func rows() []row {
	return []row{loadedRow(), storeRow(), installedRow(), ociRow(), buildRow(), bundleRow()}
}

// loadedRow is what is loaded already: whoever looks for a driver has seen that it is not.
func loadedRow() row { return row{typ: accel.SourceLoaded, always: true} }

// Source is one place that the driver of a definition may come from.
type Source struct {
	Type  accel.SourceType
	Entry accel.Source // of the definition; of others the type alone
	Name  string       // for people
	late  int
	Ask   func(context.Context) Answer
}

// For is where the driver of def may come from, in order.
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

// place is a source of the type of a row.
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

// Dirs returns the source trees of the builds of def and the directories that they are in, as the host sees them:
// a change there may help a driver that could not be built. Sources whose template fails are left out.
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
