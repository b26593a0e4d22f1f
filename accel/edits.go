package accel

import (
	"strings"
)

// Edits are what a container gets with an accelerator of a kind.
type Edits struct {
	Env []string `json:"env,omitempty"` // "NAME=value" each
	// Mounts are files and directories of the host.
	Mounts []Mount `json:"mounts,omitempty" privileged:"mounts files of the host"`
	// Libraries and Programs are the driver's own: those of its user space, or else those of the host.
	Libraries []Libraries `json:"libraries,omitempty"`
	Programs  []Programs  `json:"programs,omitempty"`
	// Nodes are device nodes that every accelerator of the kind shares, such as "/dev/kfd".
	Nodes []string `json:"nodes,omitempty" privileged:"gives out nodes of other devices"`
	// OptionalNodes are like Nodes, but are left out if the host does not have them.
	OptionalNodes []string `json:"optionalNodes,omitempty" privileged:"gives out nodes of other devices"`
	// RDMA adds the nodes of the RDMA device that is nearest to the accelerator ("/dev/infiniband/uverbs0"): port if
	// both are below one PCI port, root if they are at least below one root complex. Empty adds none.
	RDMA string `json:"rdma,omitempty" enum:"port,root" privileged:"gives out nodes of other devices"`
}

// Mount is a bind mount from the host.
type Mount struct {
	// HostPath is the file or directory on the host.
	HostPath string `json:"hostPath"`
	// ContainerPath is where containers find it.
	ContainerPath string `json:"containerPath"`
	// Options are mount options; "ro", "nosuid", "nodev" when empty.
	Options []string `json:"options,omitempty"`
	// Optional mounts are left out if the host does not have the path.
	Optional bool `json:"optional,omitempty"`
}

// Libraries are shared libraries that containers get from outside their image, because they must match the loaded
// driver.
type Libraries struct {
	// Path is a directory in the container where they are too, for images that have it in LD_LIBRARY_PATH. They are
	// always in /usr/lib and /usr/lib64: every loader searches one of these.
	Path string `json:"path,omitempty"`
	// Names are sonames, such as "libcuda.so.1" or "libx.so.{{.DriverVersion}}", with the version of the loaded
	// module. acceld finds them in the driver's user space, or else as the host's loader does; libraries that are not
	// there are left out.
	Names []string `json:"names"`
	// SameVersion refuses a library whose file name does not end with the version of the loaded module.
	SameVersion bool `json:"sameVersion,omitempty"`
	// Required are those of Names without which no container can use a device, because no image has them. If one is not
	// there while the driver is loaded, the kind says so: LibraryMissing.
	Required []string `json:"required,omitempty"`
}

// Of returns the names for a version of the modules. If it is empty, names with a version are left out.
func (l Libraries) Of(version string) (out []string) {
	for _, name := range l.Names {
		if version != "" || !strings.Contains(name, "{{.DriverVersion}}") {
			out = append(out, strings.ReplaceAll(name, "{{.DriverVersion}}", version))
		}
	}
	return out
}
