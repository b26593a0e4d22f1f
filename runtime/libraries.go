package runtime

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
)

// userSpace is where the user-space files of a kind's driver are found: in the driver's own user space, or else on the
// host. A kind never gets some from here and some from there.
type userSpace struct {
	*specWriter
	def     *accel.Definition
	version string // of the loaded modules; empty if unknown
}

// libraries renders the libraries and programs of the driver that containers get. Each library is mounted under its own
// name and under the soname that programs ask for, because a link cannot be mounted.
func (w *specWriter) libraries(def *accel.Definition) ([]*specs.Mount, *accel.Problem) {
	u := userSpace{w, def, w.driverVersion(def)}
	if def.Driver.UserSpace != nil && !w.host.Exists(accel.UserSpaceRoot(def.Kind)) {
		return nil, accel.Problemf(accel.UserSpaceMissing, "no user space of %q serves", def.Kind)
	}
	var mounts []*specs.Mount
	mount := func(from, dir, name string) {
		mounts = append(mounts, &specs.Mount{
			HostPath: from, ContainerPath: path.Join(dir, name), Options: append(readOnlyOptions(), "rbind"),
		})
	}
	for _, group := range def.Container.Libraries {
		dirs := []string{"/usr/lib", "/usr/lib64"}
		if group.Path != "" {
			dirs = append(dirs, group.Path)
		}
		for _, name := range group.Of(u.version) {
			from, file, err := u.library(name)
			if err != nil {
				continue // not there: containers bring their own
			}
			if group.SameVersion && u.version != "" && !strings.HasSuffix(file, "."+u.version) {
				return nil, accel.Problemf(accel.LibraryMismatch,
					"library %q of %s is %q, and the loaded driver of %q has version %q", name, u.place(), file,
					def.Kind, u.version)
			}
			for _, dir := range dirs {
				mount(from, dir, path.Base(file))
				if name != path.Base(file) {
					mount(from, dir, name)
				}
			}
		}
	}
	for _, group := range def.Container.Programs {
		for _, name := range group.Names {
			if from, err := u.program(name); err == nil {
				mount(from, cmp.Or(group.Path, "/usr/bin"), name)
			}
		}
	}
	return mounts, nil
}

// missing says which libraries that every container needs are not there although the driver is loaded; nil if all are,
// or no driver is loaded.
func (w *specWriter) missing(def *accel.Definition) *accel.Problem {
	u := userSpace{w, def, w.driverVersion(def)}
	if u.version == "" && !w.loaded(def) {
		return nil
	}
	var names []string
	for _, group := range def.Container.Libraries {
		for _, name := range group.Required {
			if _, _, err := u.library(name); err != nil {
				names = append(names, fmt.Sprintf("%q", name))
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return accel.Problemf(accel.LibraryMissing, "the driver of %q is loaded, and %s lacks what every container needs: %s",
		def.Kind, u.place(), strings.Join(names, ", "))
}

// loaded reports whether the definition's first module is loaded.
func (f *files) loaded(def *accel.Definition) bool {
	return len(def.Driver.Modules) > 0 &&
		f.host.Exists(path.Join("/sys/module", strings.ReplaceAll(def.Driver.Modules[0].Name, "-", "_")))
}

// place says where libraries are looked for.
func (u userSpace) place() string {
	if u.def.Driver.UserSpace == nil {
		return "the host"
	}
	return "the driver's user space"
}

// library returns the file of a library as a container's mount names it, and that file with all links resolved. A file
// of the driver's own user space is named below the link that is not there while the driver changes.
func (u userSpace) library(name string) (from, file string, err error) {
	if u.def.Driver.UserSpace == nil {
		file, err = u.host.Programs().Library(name)
		return file, file, err
	}
	dir := path.Join(accel.UserSpaceRoot(u.def.Kind), accel.UserSpaceLibraries)
	if !u.host.Exists(path.Join(dir, name)) {
		return "", "", fmt.Errorf("library %q: %w", name, fs.ErrNotExist)
	}
	file, err = u.host.Follow(path.Join(dir, name))
	return path.Join(dir, path.Base(file)), file, err
}

// program returns a program as a container's mount names it.
func (u userSpace) program(name string) (string, error) {
	if u.def.Driver.UserSpace == nil {
		return u.host.Programs().LookPath(name)
	}
	file := path.Join(accel.UserSpaceRoot(u.def.Kind), accel.UserSpacePrograms, name)
	if !u.host.Exists(file) {
		return "", fmt.Errorf("program %q: %w", name, fs.ErrNotExist)
	}
	return file, nil
}

// driverVersion returns the version of the definition's first loaded module that reports one.
func (f *files) driverVersion(def *accel.Definition) string {
	for _, m := range def.Driver.Modules {
		if v, err := f.host.ReadAttribute(path.Join("/sys/module", strings.ReplaceAll(m.Name, "-", "_"),
			"version")); err == nil && v != "" {
			return v
		}
	}
	return ""
}
