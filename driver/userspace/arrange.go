package userspace

import (
	"context"
	"debug/elf"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Wanted returns which files and links of a tree may be needed for def's user space, by their path and, for a link, by
// where it points to. It is wider than what [Spaces.Take] keeps: the soname of a library is in the file, and its file's
// name may have any version.
func Wanted(def *accel.Definition) func(name, text string) bool {
	libraries, programs := map[string]bool{}, map[string]bool{}
	for _, l := range def.Container.Libraries {
		for _, name := range l.Names {
			libraries[stem(name)] = true
		}
	}
	for _, p := range def.Container.Programs {
		for _, name := range p.Names {
			programs[name] = true
		}
	}
	var files []string
	for _, c := range def.Driver.Companions {
		programs[c.Program] = true
		files = append(files, c.Files...)
	}
	matches := func(name string) bool {
		base := path.Base(name)
		file := slices.ContainsFunc(files, func(pattern string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
		return file || programs[base] || strings.Contains(base, ".so") && libraries[stem(base)]
	}
	return func(name, text string) bool {
		if text != "" && slices.Contains(merged(), name) { // a directory's other name
			return true
		}
		return matches(name) || text != "" && matches(text)
	}
}

// merged are directories that are links where /usr is merged.
func merged() []string { return []string{"lib", "lib64", "bin", "sbin", "usr/lib64", "usr/sbin"} }

// Tree is a directory that is laid out like a root.
type Tree struct {
	*host.Host
	// Arch is the processor that its programs are for, as `uname -m` says it.
	Arch string
	// Deep says that libraries and programs may be in any directory of it, as in what was unpacked. Otherwise only the
	// loader's directories and those of PATH count.
	Deep bool
	// Licences says that the texts of licences in it are kept with the entry.
	Licences bool
}

// A tree that was unpacked has what was wanted of an image, so these are far above what any driver has.
const (
	directoryLimit = 4096
	depthLimit     = 16
)

// Take puts what def names of a tree into the store, as the user space for a version of the modules. It reads the tree
// and changes nothing there. A library that must have the modules' version and has another one is a LibraryMismatch;
// a tree that has nothing of what def names is a UserSpaceMissing.
func (s *Spaces) Take(ctx context.Context, def *accel.Definition, version string, t Tree, from Source) (Manifest,
	*accel.Problem,
) {
	w, done, problem := s.o.Store.Workspace("")
	if problem != nil {
		return Manifest{}, problem
	}
	defer done()
	a := &arrangement{
		ended: ctx.Err, spaces: s, tree: t, def: def, version: version, to: path.Join(w.Entry, "root"), origin: from.Origin,
		files: map[string]File{}, sources: map[string]string{},
	}
	if problem := a.run(); problem != nil {
		return Manifest{}, problem
	}
	m := Manifest{
		Schema: Schema, Kind: def.Kind, Version: version, Wish: Wish(def), Files: a.sorted(), Made: s.o.Now().UTC(),
		Source: from,
	}
	m.Key = m.key()
	if problem := s.trusted(def, m); problem != nil {
		return Manifest{}, problem
	}
	if err := s.publish(w, m); err != nil {
		return Manifest{}, accel.ProblemOf(err, "cannot put the user space from %q into the store", from.Origin)
	}
	s.o.Log.Info("user space stored", "kind", def.Kind, "version", version, "from", from.Origin, "key", m.Key, "files",
		len(m.Files), "bytes", m.Size())
	return m, nil
}

// arrangement is an entry that is being made of a tree.
type arrangement struct {
	ended               func() error // why the work was called off; nil if it was not
	spaces              *Spaces
	tree                Tree
	def                 *accel.Definition
	version, to, origin string
	files               map[string]File   // by path in the entry
	sources             map[string]string // path in the entry → file in the tree
}

func (a *arrangement) sorted() []File {
	var out []File
	for _, f := range a.files {
		out = append(out, f)
	}
	slices.SortFunc(out, func(x, y File) int { return strings.Compare(x.Path, y.Path) })
	return out
}

func (a *arrangement) run() *accel.Problem {
	programs, libraries := a.tree.programDirs(), a.tree.libraryDirs()
	if a.tree.Deep {
		all, err := a.tree.directories()
		if err != nil {
			return accel.Problemf(accel.ArtifactInvalid, "%s: %v", a.origin, err)
		}
		libraries, programs = append(libraries, all...), append(programs, all...)
	}
	for _, group := range a.def.Container.Libraries {
		for _, name := range group.Of(a.version) {
			file := a.tree.library(libraries, name)
			if file == "" {
				continue // not every version of a driver has every library
			}
			if group.SameVersion && !strings.HasSuffix(file, "."+a.version) {
				return accel.Problemf(accel.LibraryMismatch,
					"%s: library %q is %q there, and the modules of %q have version %q", a.origin, name, path.Base(file),
					a.def.Kind, a.version)
			}
			if problem := a.library(name, file); problem != nil {
				return problem
			}
		}
	}
	for _, group := range a.def.Container.Programs {
		for _, name := range group.Names {
			if file := a.tree.program(programs, name); file != "" {
				if problem := a.add(path.Join(accel.UserSpacePrograms, name), file, 0o755); problem != nil {
					return problem
				}
			}
		}
	}
	if problem := a.companions(programs); problem != nil {
		return problem
	}
	if len(a.files) > 0 && a.tree.Licences {
		return a.licences(libraries)
	}
	if len(a.files) == 0 {
		return accel.Problemf(accel.UserSpaceMissing, "%s: it has no library and no program that %q names", a.origin,
			a.def.Kind)
	}
	return nil
}

// companions keeps the programs of the driver's daemons and the files that these read, if the tree has them.
func (a *arrangement) companions(programs []string) *accel.Problem {
	const most = 1000
	for _, c := range a.def.Driver.Companions {
		file := a.tree.program(programs, c.Program)
		if file == "" {
			continue
		}
		if problem := a.add(path.Join(accel.UserSpacePrograms, c.Program), file, 0o755); problem != nil {
			return problem
		}
		for _, pattern := range c.Files {
			found := a.tree.Glob("/", pattern)
			if len(found) > most {
				return accel.Problemf(accel.ArtifactInvalid, "%s: more than %d files are %q", a.origin, most, pattern)
			}
			for _, name := range found {
				if problem := a.add(strings.TrimPrefix(name, "/"), name, 0o644); problem != nil {
					return problem
				}
			}
		}
	}
	return nil
}

// licences keeps the texts of licences in directories of the tree, below "licences".
func (a *arrangement) licences(dirs []string) *accel.Problem {
	const most = 100
	kept := 0
	for _, dir := range dirs {
		entries, err := a.tree.ReadDir(dir)
		if err != nil {
			continue // usually there is no such directory
		}
		for _, e := range entries {
			base, _, _ := strings.Cut(strings.ToLower(e.Name()), ".")
			text := slices.Contains([]string{"copyright", "license", "licence", "copying", "eula"}, base)
			if !text || !e.Type().IsRegular() || kept == most {
				continue
			}
			kept++
			file := path.Join(dir, e.Name())
			to := path.Join("licences", strings.TrimPrefix(file, "/licences")) // of an entry of another store, as it is
			if problem := a.add(to, file, 0o644); problem != nil {
				return problem
			}
		}
	}
	return nil
}

// library adds a library under the name of its file, with a link from the name that programs ask for.
func (a *arrangement) library(name, file string) *accel.Problem {
	base := path.Base(file)
	if problem := a.add(path.Join(accel.UserSpaceLibraries, base), file, 0o644); problem != nil || base == name {
		return problem
	}
	link := path.Join(a.to, accel.UserSpaceLibraries, name)
	at := path.Join(accel.UserSpaceLibraries, name)
	if _, there := a.files[at]; there {
		return nil
	}
	if err := a.spaces.h.Symlink(base, link); err != nil {
		return accel.ProblemOf(err, "cannot make %q", link)
	}
	a.files[at] = File{Path: at, Link: base}
	return nil
}

// add copies a file of the tree to a path of the entry, unless it is there already.
func (a *arrangement) add(at, file string, mode fs.FileMode) *accel.Problem {
	if from, there := a.sources[at]; there {
		if from != file {
			return accel.Problemf(accel.ArtifactInvalid, "%s: both %q and %q would be %q", a.origin, from, file, at)
		}
		return nil
	}
	if err := a.ended(); err != nil {
		return accel.ProblemOf(err, "the user space of %q was called off", a.def.Kind)
	}
	f, err := a.tree.Open(file)
	if err != nil {
		return accel.ProblemOf(err, "cannot read %q of %s", file, a.origin)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return accel.Problemf(accel.ArtifactInvalid, "%s: %q is not a file", a.origin, file)
	}
	to := path.Join(a.to, at)
	if err := a.spaces.h.MkdirAll(path.Dir(to), 0o755); err != nil {
		return accel.ProblemOf(err, "cannot make %q", path.Dir(to))
	}
	sum, problem := a.spaces.o.Store.Copy(f, to)
	if problem != nil {
		return problem
	}
	if err := a.spaces.h.Chmod(to, mode); err != nil {
		return accel.ProblemOf(err, "cannot change the mode of %q", to)
	}
	a.sources[at], a.files[at] = file, File{Path: at, SHA256: sum, Size: st.Size()}
	return nil
}

// libraryDirs are the loader's own directories, and those that vendors' packages use.
func (t Tree) libraryDirs() []string {
	own := t.Programs().For(t.Arch).LibraryDirs()
	return append(own, "/usr/local/lib64", "/usr/local/lib", "/opt/lib64", "/opt/lib")
}

func (t Tree) programDirs() []string {
	return []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/opt/bin"}
}

// directories are all directories of a tree, in order.
func (t Tree) directories() (out []string, err error) {
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		if len(out) >= directoryLimit || depth > depthLimit {
			return errors.New("it has too many directories")
		}
		out = append(out, dir)
		entries, err := t.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() { // a link to one is not
				if err := walk(path.Join(dir, e.Name()), depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return out, walk("/", 0)
}

// library finds a library for the machine's processor, by the name of a file or a link, or else by its soname. It
// returns the file itself; empty if there is none.
func (t Tree) library(dirs []string, name string) string {
	for _, dir := range dirs {
		if file := path.Join(dir, name); !t.ours(file) && t.Programs().For(t.Arch).Native(file) {
			if real, err := t.Follow(file); err == nil {
				return real
			}
		}
	}
	for _, dir := range dirs {
		entries, err := t.ReadDir(dir)
		if err != nil {
			continue // usually there is no such directory
		}
		for _, e := range entries {
			file := path.Join(dir, e.Name())
			if e.Type().IsRegular() && strings.HasPrefix(e.Name(), stem(name)) && t.soname(file) == name &&
				t.Programs().For(t.Arch).Native(file) {
				return file
			}
		}
	}
	return ""
}

// ours tells whether file is a link to a user space that serves (driver.userSpace.host). It is nothing of the host's.
func (t Tree) ours(file string) bool {
	text, err := t.Readlink(file)
	return err == nil && strings.HasPrefix(text, accel.UserSpaceRoot(""))
}

// soname is the soname in a library; empty if it has none.
func (t Tree) soname(file string) string {
	f, err := t.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	library, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	names, err := library.DynString(elf.DT_SONAME)
	if err != nil || len(names) != 1 {
		return ""
	}
	return names[0]
}

// program finds an executable file; empty if there is none.
func (t Tree) program(dirs []string, name string) string {
	for _, dir := range dirs {
		file := path.Join(dir, name)
		real, err := t.Follow(file)
		if err != nil || t.ours(file) {
			continue
		}
		if st, err := t.Stat(real); err == nil && st.Mode().IsRegular() {
			return real
		}
	}
	return ""
}
