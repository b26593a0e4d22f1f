package runtime

import (
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
)

// hostLinks are links in the host's own directories to the libraries and programs of a driver's user space, for
// programs outside containers. They lead through [accel.UserSpaceRoot], so they lead nowhere while the driver changes.
type hostLinks struct{ *files }

// wanted returns the links that a kind asks for, by path, with their text.
func (l *hostLinks) wanted(def *accel.Definition) map[string]string {
	u, root := def.Driver.UserSpace, accel.UserSpaceRoot(def.Kind)
	if u == nil || !u.Host {
		return nil
	}
	out := map[string]string{}
	add := func(dir, from, name string) {
		if text := path.Join(root, from, name); l.host.Exists(text) {
			out[path.Join(dir, name)] = text
		}
	}
	libraries := l.first(l.host.Programs().LibraryDirs())
	for _, group := range def.Container.Libraries {
		for _, name := range group.Of(l.driverVersion(def)) {
			add(libraries, accel.UserSpaceLibraries, name)
		}
	}
	programs := l.first([]string{"/usr/local/bin", "/usr/bin"})
	for _, group := range def.Container.Programs {
		for _, name := range group.Names {
			add(programs, accel.UserSpacePrograms, name)
		}
	}
	return out
}

// first returns the first directory that exists, or else the last one.
func (l *hostLinks) first(dirs []string) string {
	for _, dir := range dirs {
		if l.host.Exists(dir) {
			return dir
		}
	}
	return dirs[len(dirs)-1]
}

// apply makes the links that a kind asks for and removes those that it does not ask for any more. Another file
// in the place of a link is a FileConflict.
func (l *hostLinks) apply(def *accel.Definition) *accel.Problem {
	if l.right(def) {
		return nil
	}
	wanted := l.wanted(def)
	for name := range wanted {
		if p := l.conflict(def.Kind, name); p != nil {
			return p
		}
	}
	if p := l.clear(def.Kind, wanted); p != nil {
		return p
	}
	for name, text := range wanted {
		if old, err := l.host.Readlink(name); err == nil && old == text {
			continue
		}
		if err := l.ledger.Symlink(text, name); err != nil {
			return l.problem("make the link", name, err)
		}
		l.log.Info("made link to the driver's user space", "path", name, "to", text)
	}
	return nil
}

// conflict reports a file of the host, or a link of another kind, in the place of a link.
func (l *hostLinks) conflict(kind, name string) *accel.Problem {
	text, err := l.host.Readlink(name)
	if err != nil && !l.host.Exists(name) || strings.HasPrefix(text, accel.UserSpaceRoot(kind)+"/") {
		return nil
	}
	return accel.Problemf(accel.FileConflict,
		"driver.userSpace.host asks for a link to the user space of %q at %q, where there is another file", kind, name)
}

// clear removes the links of a kind, except those that are wanted.
func (l *hostLinks) clear(kind string, wanted map[string]string) *accel.Problem {
	made, err := l.ledger.Links(accel.UserSpaceRoot(kind) + "/")
	if err != nil && len(wanted) == 0 {
		return nil // most kinds have never made one, and a purge checks again
	}
	if err != nil {
		return l.problem("read the record of", "links", err)
	}
	for _, name := range made {
		if wanted[name] == "" {
			if p := l.remove(name); p != nil {
				return p
			}
		}
	}
	return nil
}

// right tells whether the links of a kind are those that it asks for. If the record of links cannot be read, only
// those that it asks for count: a driver must keep serving while the disk with the record fails.
func (l *hostLinks) right(def *accel.Definition) bool {
	wanted := l.wanted(def)
	for name, text := range wanted {
		if old, err := l.host.Readlink(name); err != nil || old != text {
			return false
		}
	}
	made, err := l.ledger.Links(accel.UserSpaceRoot(def.Kind) + "/")
	return err != nil || len(made) == len(wanted)
}
