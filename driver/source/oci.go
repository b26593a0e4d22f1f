package source

import (
	"context"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/template"
)

func ociRow() row {
	return row{
		typ: accel.SourceOCI, slow: true, name: func(s accel.Source) string { return "oci " + s.Image },
		ask: (*Sources).askOCI,
	}
}

// askOCI pulls the driver from the registries of a source. Nothing goes into the store before everything has been
// judged.
func (x *Sources) askOCI(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source,
	o Options,
) Answer {
	image, problem := template.Fill(def, facts, "driver.sources.image", s.Image)
	if problem != nil {
		return Answer{Verdict: Refused, Problem: problem}
	}
	s.Image = image
	return x.fetch(ctx, def, facts, accel.SourceOCI, o, func(c *artifact.Client, dir string) (artifact.Pulled,
		*accel.Problem,
	) {
		return c.Pull(ctx, s, wanted(def, facts), dir)
	})
}
