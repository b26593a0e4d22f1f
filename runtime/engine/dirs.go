package engine

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Dirs returns the directories in which a change can change the result of [Read], whether or not they exist. It
// leaves out those that only lead to another one, such as /etc.
func Dirs(files Files, e accel.ContainerEngine) []string {
	w := &witness{Files: files}
	_, _ = Read(w, e) // an error ends it early, which is fine
	holds, listed := map[string]bool{}, map[string]bool{}
	for _, s := range w.seen {
		if s.dir {
			listed[path.Clean(s.name)] = true
		} else {
			holds[path.Dir(path.Clean(s.name))] = true
		}
	}
	for dir := range listed {
		leads := func(other string) bool { return strings.HasPrefix(other, strings.TrimSuffix(dir, "/")+"/") }
		if !slices.ContainsFunc(slices.Concat(keys(holds), keys(listed)), leads) {
			holds[dir] = true
		}
	}
	return keys(holds)
}

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
