package engine

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Dirs returns the directories in which a change can change the result of [Read], whether or not they exist. It
// leaves out those that only lead to another one, such as /etc.
func Dirs(files Files, e accel.ContainerEngine) []string {
	r := reader{files, map[string]bool{}, map[string]bool{}}
	_, _ = Read(r, e) // an error ends it early, which is fine
	for dir := range r.listed {
		leads := func(other string) bool { return strings.HasPrefix(other, strings.TrimSuffix(dir, "/")+"/") }
		if !slices.ContainsFunc(slices.Concat(keys(r.holds), keys(r.listed)), leads) {
			r.holds[dir] = true
		}
	}
	return keys(r.holds)
}

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// reader records where files are looked for.
type reader struct {
	Files
	holds  map[string]bool // directories in which a file was read
	listed map[string]bool
}

func (r reader) ReadFile(name string) ([]byte, error) {
	r.holds[path.Dir(path.Clean(name))] = true
	return r.Files.ReadFile(name)
}

func (r reader) ReadDir(name string) ([]fs.DirEntry, error) {
	r.listed[path.Clean(name)] = true
	return r.Files.ReadDir(name)
}
