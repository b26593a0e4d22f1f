package accel

import "slices"

// UserSpace says where the user-space half of a driver comes from: the libraries and programs that containers get
// ([Edits.Libraries], [Edits.Programs]), in the version of the loaded modules. A kind without it gives out those that
// are installed on the host.
type UserSpace struct {
	// Sources are asked in order. Without any, the user space comes with the modules: from the same images as they, or
	// from the same distribution.
	Sources []Source `json:"sources,omitempty"`
	// Host makes links to the libraries and programs in the host's own directories, for programs outside containers.
	Host bool `json:"host,omitempty"`
}

// from returns u with other sources.
func (u UserSpace) from(sources []Source) *UserSpace {
	u.Sources = sources
	return &u
}

// UserSpaceSources are the sources of the kind's user space, in the order in which they are asked; none if the kind
// gives out what is installed on the host.
func (def *Definition) UserSpaceSources() []Source {
	u := def.Driver.UserSpace
	if u == nil || len(u.Sources) > 0 {
		return slices.Clone(u.sources())
	}
	return slices.DeleteFunc(slices.Clone(def.Driver.Sources), func(s Source) bool {
		return !s.Type.Prebuilt() && !s.ofDistribution()
	})
}

// UserSpaceWish is what a definition asks of a user space.
type UserSpaceWish struct {
	Sources   []Source
	Libraries []Libraries
	Programs  []Programs
	// Companions are, for each companion, its program and its files.
	Companions [][]string `json:",omitempty"`
}

// UserSpaceWish is what def asks of a user space; nil if it gives out what is installed on the host.
func (def *Definition) UserSpaceWish() *UserSpaceWish {
	if def.Driver.UserSpace == nil {
		return nil
	}
	w := &UserSpaceWish{
		Sources: def.UserSpaceSources(), Libraries: slices.Clone(def.Container.Libraries),
		Programs: def.Container.Programs,
	}
	for i := range w.Libraries {
		w.Libraries[i].Required = nil // it changes nothing in the user space
	}
	for _, c := range def.Driver.Companions {
		w.Companions = append(w.Companions, append([]string{c.Program}, c.Files...))
	}
	return w
}

func (u *UserSpace) sources() []Source {
	if u == nil {
		return nil
	}
	return u.Sources
}

// UserSpaceRoot is the directory with the user space that serves a kind, as a path on the host: usr/bin, usr/lib64 and
// whatever else its definition names. It is a link, which is not there while no driver serves. Programs that look for
// an installed driver can be given it as the root of one.
func UserSpaceRoot(kind string) string { return "/run/acceld/driver/" + kind }

// The directories of a user space, below its root.
const (
	UserSpaceLibraries = "usr/lib64"
	UserSpacePrograms  = "usr/bin"
)

// Programs are programs of the driver that containers get.
type Programs struct {
	// Path is the directory in the container; "/usr/bin" when empty.
	Path string `json:"path,omitempty"`
	// Names are the names of the programs, such as "nvidia-smi"; those that are not there are left out.
	Names []string `json:"names"`
}
