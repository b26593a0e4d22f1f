package runtime

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/runtime/engine"
)

// TestUnitOpens: what acceld writes for a container runtime is below a directory that its unit leaves writable.
// ProtectSystem=full closes /usr and /etc.
func TestUnitOpens(t *testing.T) {
	const unit = "../systemd/acceld.service"
	var open []string
	for line := range strings.Lines(string(read(t, unit))) {
		if all, ok := strings.CutPrefix(line, "ReadWritePaths="); ok {
			for _, dir := range strings.Fields(all) {
				open = append(open, strings.TrimPrefix(dir, "-")+"/")
			}
		}
	}
	check := func(name, file string) {
		closed := strings.HasPrefix(file, "/usr/") || strings.HasPrefix(file, "/etc/")
		if closed && !slices.ContainsFunc(open, func(dir string) bool { return strings.HasPrefix(file, dir) }) {
			t.Errorf("acceld writes %q for %s, and ReadWritePaths in %s does not have its directory", file, name,
				path.Base(unit))
		}
	}
	for _, row := range engine.Rows() {
		if row.Dropins != "" {
			check(row.Name, row.Dropins+"/")
		}
		for _, dir := range row.HookDirs {
			check(row.Name, dir+"/")
		}
	}
	wrote := map[string]bool{}
	for _, s := range corpus(t) {
		if s.want != "change" {
			continue
		}
		r, _ := s.on(t, s.tree(t))
		rep, _ := r.CheckConfig()
		for _, f := range rep.Change.Files {
			check(s.engine, f.Path)
			wrote[r.engine.Name] = true
		}
	}
	for _, row := range engine.Rows() {
		if !wrote[row.Name] {
			t.Errorf("no sample in testdata/corpus changes the files of %s", row.Name)
		}
	}
}
