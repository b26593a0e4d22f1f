package engine

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Dirs returns the directories in which a change can change what [Read] returns, there or not. Those that only lead to
// another one are left out, such as /etc.
func Dirs(files Files, e accel.ContainerEngine) []string {
	r := reader{files, map[string]bool{}, map[string]bool{}}
	_, _ = Read(r, e) // as far as it comes
	for dir := range r.listed {
		leads := func(other string) bool { return strings.HasPrefix(other, strings.TrimSuffix(dir, "/")+"/") }
		if !slices.ContainsFunc(slices.Concat(keys(r.holds), keys(r.listed)), leads) {
			r.holds[dir] = true
		}
	}
	return keys(r.holds)
}

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// reader notes where files are looked for.
type reader struct {
	Files
	holds  map[string]bool // a file
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
