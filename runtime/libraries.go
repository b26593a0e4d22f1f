package runtime

import (
	"path"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
)

// libraries renders the user-space files of the driver that containers get from the host. Each file is mounted under
// its own name and under the soname that programs ask for, because a link cannot be mounted.
func (w *specWriter) libraries(def *accel.Definition) ([]*specs.Mount, *accel.Problem) {
	var mounts []*specs.Mount
	version := w.driverVersion(def)
	for _, group := range def.Container.Libraries {
		for _, name := range group.Names {
			if strings.Contains(name, "{{.DriverVersion}}") && version == "" {
				continue
			}
			name = strings.ReplaceAll(name, "{{.DriverVersion}}", version)
			file, err := w.host.Programs().Library(name)
			if err != nil {
				continue // not on the host: containers bring their own
			}
			if group.SameVersion && version != "" && !strings.HasSuffix(file, "."+version) {
				return nil, accel.Problemf(accel.LibraryMismatch,
					"library %q of the host is %q, and the loaded driver of %q has version %q", name, file, def.Kind,
					version)
			}
			targets := []string{path.Base(file)}
			if name != targets[0] {
				targets = append(targets, name)
			}
			for _, target := range targets {
				mounts = append(mounts, &specs.Mount{
					HostPath: file, ContainerPath: path.Join(group.Path, target),
					Options: append(readOnlyOptions(), "rbind"),
				})
			}
		}
	}
	return mounts, nil
}

// driverVersion returns the version of the definition's first loaded module that reports one.
func (w *specWriter) driverVersion(def *accel.Definition) string {
	for _, m := range def.Driver.Modules {
		if v, err := w.host.ReadAttribute(path.Join("/sys/module", strings.ReplaceAll(m.Name, "-", "_"),
			"version")); err == nil && v != "" {
			return v
		}
	}
	return ""
}
