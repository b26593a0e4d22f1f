package runtime

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/engine"
)

// Remnants removes, or with dry only finds, files for the container runtime that are recognizable as acceld's by
// their content: files of a version before the ledger, or files whose ledger is lost. A file counts if its name is
// one of ours and it names our hook's program, is that program (its directory is its digest), or begins with our
// comment. Everything else stays, including what the ledger has a record of: the ledger undoes that, has left it for a
// reason, or has restored it because it was there before acceld.
func (r *Runtime) Remnants(dry bool) (found []string, p *accel.Problem) {
	defer r.begin()()
	for _, name := range r.findRemnants() {
		recorded, err := r.ledger.Recorded(name)
		if err != nil {
			return found, r.problem("look for the record of", name, err)
		}
		if recorded {
			continue
		}
		if !dry {
			if err := r.host.Remove(name); err != nil {
				return found, r.problem("remove", name, err)
			}
		}
		found = append(found, name)
	}
	if dry {
		return found, nil
	}
	for _, name := range found { // remove the program directories that are empty now
		for dir := path.Dir(name); path.Base(name) == programName && (ours(path.Join(dir, programName)) ||
			dir == programDirs()[0]); dir = path.Dir(dir) {
			if entries, err := r.host.ReadDir(dir); err != nil || len(entries) > 0 || r.host.Remove(dir) != nil {
				break
			}
		}
	}
	return found, nil
}

func (r *Runtime) findRemnants() []string {
	var found []string
	for _, s := range r.specs.mentioning(programName) {
		vendor, class, _ := strings.Cut(s.Kind, "/")
		gated := len(s.Devices) > 0
		for _, d := range s.Devices {
			gated = gated && len(programsIn(d.ContainerEdits)) > 0
		}
		if gated && path.Base(s.path) == cdi.GenerateSpecName(vendor, class)+".json" {
			found = append(found, s.path)
		}
	}
	for _, dir := range r.hooks.everyDir() {
		name := path.Join(dir, jsonName)
		var f hookFile
		if b, err := r.host.ReadFile(name); err == nil && json.Unmarshal(b, &f) == nil && ours(f.Hook.Path) {
			found = append(found, name)
		}
	}
	for _, program := range r.program.installed() {
		if sum, err := r.program.sum(r.host, program); err == nil && sum[:12] == path.Base(path.Dir(program)) {
			found = append(found, program)
		}
	}
	for _, row := range engine.Rows() {
		if row.Dropins == "" {
			continue
		}
		for _, name := range r.host.Glob(row.Dropins, "*-acceld.*") {
			if b, err := r.host.ReadFile(name); err == nil && bytes.HasPrefix(b, []byte("# Written by acceld")) {
				found = append(found, name)
			}
		}
	}
	return found
}
