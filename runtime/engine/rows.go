package engine

import (
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
)

// Row is what acceld knows about one container runtime. Package detect knows where its programs and sockets are.
type Row struct {
	// Name is that of [accel.ContainerEngine].
	Name string
	// Daemon is true if a daemon has read the files, so that its configuration in force can differ from them.
	Daemon bool
	// CRI is true if the daemon itself lists its pods to a kubelet.
	CRI bool
	// Versioned is true if only newer versions read specs. acceld then asks the daemon if its program's version is too
	// coarse to tell.
	Versioned bool
	// VersionPath is the path of the daemon's HTTP API that returns its version; empty if it has no such API.
	VersionPath string
	// Reload is true if the runtime applies a change without a restart.
	Reload bool
	// Dropins is the directory in which acceld writes files of its own; empty if the runtime reads no such files.
	Dropins string
	// HookDirs are the directories in which acceld's OCI hook may be; the first is the one that the runtime reads if
	// nothing is configured. There are none if it reads no hooks.
	HookDirs []string
	// Check is the runtime's own program with the arguments that make it check the files of [Stage]; DIR in an
	// argument stands for their directory. It is empty if there is no such program.
	Check []string

	read func(Files, accel.ContainerEngine) (*Config, *accel.Problem)
	// changes returns possible changes, the one that changes least of others' files first.
	changes func(files Files, e accel.ContainerEngine, now *Config, dir string) []Change
	stage   func(Files, *Config) (map[string][]byte, error) // nil without a Check
}

// Rows returns the container runtimes that acceld knows.
func Rows() []Row {
	return []Row{
		{
			Name: "cri-o", Daemon: true, CRI: true, Reload: true, Dropins: crioDropins, HookDirs: hookDirs(),
			Check: []string{"crio", "--config", "DIR/crio.conf", "--config-dir", "DIR/crio.conf.d", "config"},
			read:  readCRIO, changes: specDirsIn(dropinsOf, "[crio.runtime]"), stage: stageCRIO,
		},
		{
			Name: "podman", Reload: true, Dropins: podmanDropins, HookDirs: hookDirs(),
			read: readPodman, changes: specDirsIn(func(accel.ContainerEngine) string { return podmanDropins }, "[engine]"),
		},
		{
			Name: "containerd", Daemon: true, CRI: true, Versioned: true, Dropins: "/etc/containerd/conf.d",
			Check: []string{"containerd", "--config", "DIR/0.toml", "config", "dump"},
			read:  readContainerd, changes: containerdChanges, stage: stageContainerd,
		},
		{
			Name: "docker", Daemon: true, Versioned: true, VersionPath: "/version",
			read: readDocker, changes: dockerChanges,
		},
	}
}

// RowOf returns the row of a container runtime; the zero Row if acceld does not know it.
func RowOf(name string) Row {
	for _, r := range Rows() {
		if r.Name == name {
			return r
		}
	}
	return Row{}
}

// StageDir is a placeholder in staged files for the directory into which they are put.
const StageDir = "/.acceld-stage."

// Stage returns copies of the files of a configuration for the runtime's own program to read, under the names that
// the Check of its [Row] expects below one directory. It returns none for a configuration that the runtime does not
// read directly, such as a template.
func Stage(files Files, e accel.ContainerEngine) (map[string][]byte, error) {
	row := RowOf(e.Name)
	if row.stage == nil {
		return nil, nil
	}
	c, p := row.read(files, e)
	if p != nil {
		return nil, p
	}
	return row.stage(files, c)
}

// hookDirs returns where CRI-O and podman look for hooks. If nothing is configured they read the first, and not
// /etc/containers/oci/hooks.d, which their manuals mention.
func hookDirs() []string {
	return []string{"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d", "/run/containers/oci/hooks.d"}
}

// specDirsIn returns a function that adds a directory to the cdi_spec_dirs of a table, by a file of acceld's own in
// the directory that dropins returns.
func specDirsIn(
	dropins func(accel.ContainerEngine) string, table string,
) func(Files, accel.ContainerEngine, *Config, string) []Change {
	return func(files Files, e accel.ContainerEngine, now *Config, dir string) []Change {
		text := ownComment + "\n" + table + "\ncdi_spec_dirs = " + quoted(append(slices.Clone(now.SpecDirs), dir)) + "\n"
		return ownFiles(files, dropins(e), ".conf", []byte(text))
	}
}

// ownNames are the names to try for a file of acceld's own: no later file may override it.
func ownNames() []string { return []string{ownName, "99-acceld", "zz-acceld"} }

// ownFiles returns one change for each of these names.
func ownFiles(files Files, dir, suffix string, text []byte) []Change {
	var changes []Change
	for _, name := range ownNames() {
		changes = append(changes, one(files, path.Join(dir, name+suffix), text, false))
	}
	return changes
}
