package driver

import (
	"bufio"
	"path"
	"slices"
	"strings"
	"sync"
)

// moduleIndex is what depmod wrote about the modules of one kernel.
type moduleIndex struct {
	dir     string // /lib/modules/<release>
	lines   []indexLine
	byName  map[string]int // into lines
	builtin map[string]bool
	before  map[string][]string // soft dependencies

	once sync.Once
	own  string // see flags
}

// indexLine is one line of modules.dep; paths are relative to the directory.
type indexLine struct {
	path    string
	depends []string // everything it needs, in the order that they must be loaded
}

// modulesOf reads modules.dep, modules.builtin and modules.softdep of a kernel. Without them the index is empty.
func (d *Driver) modulesOf(release string) *moduleIndex {
	x := &moduleIndex{dir: path.Join("/lib/modules", release), byName: map[string]int{}, builtin: map[string]bool{}, before: map[string][]string{}}
	d.eachLine(path.Join(x.dir, "modules.dep"), func(line string) {
		file, rest, ok := strings.Cut(line, ":")
		name, isModule := moduleBase(file)
		if !ok || !isModule {
			return
		}
		depends := strings.Fields(rest)
		slices.Reverse(depends) // depmod writes the one that is loaded first last
		if i, twice := x.byName[name]; twice && rank(x.lines[i].path) <= rank(file) {
			return
		}
		x.byName[name] = len(x.lines)
		x.lines = append(x.lines, indexLine{path: file, depends: depends})
	})
	d.eachLine(path.Join(x.dir, "modules.builtin"), func(line string) {
		if name, ok := moduleBase(line); ok {
			x.builtin[name] = true
		}
	})
	d.eachLine(path.Join(x.dir, "modules.softdep"), func(line string) {
		fields := strings.Fields(line) // softdep <name> pre: …
		if len(fields) > 2 && fields[0] == "softdep" {
			x.before[normal(fields[1])] = append(x.before[normal(fields[1])], softBefore(strings.Join(fields[2:], " "))...)
		}
	})
	return x
}

// rank is depmod's default search order (depmod.d(5)): what an administrator added comes before the kernel's own.
func rank(file string) int {
	for i, prefix := range []string{"updates/", "extra/", "weak-updates/"} {
		if strings.HasPrefix(file, prefix) {
			return i
		}
	}
	return 3
}

// file returns the path of the module as the machine sees it.
func (x *moduleIndex) file(name string) (string, bool) {
	i, ok := x.byName[normal(name)]
	if !ok {
		return "", false
	}
	return x.absolute(x.lines[i].path), true
}

// absolute makes a path of modules.dep absolute: some depmods write them so already.
func (x *moduleIndex) absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(x.dir, p)
}

// chain returns the files that must be loaded for the module name, itself last; nil when it is not installed.
func (x *moduleIndex) chain(name string) []string {
	i, ok := x.byName[normal(name)]
	if !ok {
		return nil
	}
	var out []string
	for _, p := range x.lines[i].depends {
		out = append(out, x.absolute(p))
	}
	return append(out, x.absolute(x.lines[i].path))
}

func (d *Driver) eachLine(name string, do func(string)) {
	f, err := d.h.Open(name)
	if err != nil {
		return // a kernel without modules has none of these files
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20) // a line of modules.dep grows with the number of dependencies
	for s.Scan() {
		do(s.Text())
	}
}
