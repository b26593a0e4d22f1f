package driver

import (
	"path"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
)

// SourceDirs returns the source trees of the builds of def and the directories that they are in, as the host sees them:
// a change there may help a driver that could not be built. Sources whose template fails are left out.
func SourceDirs(def *accel.Definition, facts accel.Facts) []string {
	var out []string
	for _, s := range def.Driver.Sources {
		p, problem := template.Fill(def, facts, "path", s.Path)
		if problem == nil && p != "" {
			out = append(out, path.Dir(p), p)
		}
	}
	return out
}
