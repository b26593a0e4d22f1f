package artifact

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
)

// The media types of an artifact.
const (
	ArtifactType = "application/vnd.acceld.kmod.v1"
	ConfigType   = "application/vnd.acceld.kmod.config.v1+json"
	LayerType    = "application/vnd.acceld.kmod.layer.v1.tar+zstd"
)

// Schema is the version of [Config]; artifacts with another schema are not used.
const Schema = 1

// Config is the configuration of an artifact: what it is for and what is in it.
type Config struct {
	Schema int `json:"schema"`
	// Profile is the kind of accelerator, such as "qemu-edu".
	Profile       string `json:"profile"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// Arch is the machine name of `uname -m`.
	Arch          string `json:"arch"`
	KernelRelease string `json:"kernelRelease"`
	// KernelVersion is `uname -v` and KernelBuildID the hexadecimal build-id; either may be unknown. A release alone
	// does not identify a kernel: distributions build a release more than once.
	KernelVersion string    `json:"kernelVersion,omitempty"`
	KernelBuildID string    `json:"kernelBuildID,omitempty"`
	Created       time.Time `json:"created,omitzero"`
	// BuiltBy names the program that built the artifact.
	BuiltBy  string   `json:"builtBy,omitempty"`
	Modules  []Module `json:"modules"`
	Firmware []File   `json:"firmware,omitempty"`
	// UserSpace are the libraries and programs that belong to the modules.
	UserSpace []RootFile `json:"userSpace,omitempty"`
	// Identity identifies the driver in the builder's store. Only package driver interprets it.
	Identity json.RawMessage `json:"identity,omitempty"`
}

// Module is one module file of an artifact.
type Module struct {
	Name       string   `json:"name"`
	File       string   `json:"file"` // in the layer, without a directory: "edu.ko"
	SHA256     string   `json:"sha256"`
	BuildID    string   `json:"buildID,omitempty"`
	SrcVersion string   `json:"srcVersion,omitempty"`
	Vermagic   string   `json:"vermagic,omitempty"`
	Depends    []string `json:"depends,omitempty"`
	Version    string   `json:"version,omitempty"`
}

// File is one firmware file of an artifact; Path is relative to the firmware directory.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// RootFile is one file or link of a user space; Path is relative to its root.
type RootFile struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256,omitempty"`
	// Link is the name, in the same directory, that a symbolic link points to; empty for a file.
	Link string `json:"link,omitempty"`
}

// Wanted says what an artifact must be for.
type Wanted struct {
	Kind          string
	Version       string // empty accepts every version
	Arch          string // `uname -m`
	KernelRelease string
	KernelVersion string // `uname -v`
	KernelBuildID string
	// Root says what is wanted of an image in a foreign layout, apart from its modules; nil if nothing is.
	Root *Root
}

// Root is what is wanted of an image that is laid out like the root of a system.
type Root struct {
	// Modules are the names of the modules that are wanted from /lib/modules/<release>, with underscores.
	Modules []string
	// Firmware are the files that are wanted from /lib/firmware.
	Firmware []string
	// File says whether a file or a link is wanted, by its path without a leading slash; text is where a link points
	// to. Wanted ones are put below "root".
	File func(name, text string) bool
	// Alone says that only such files are wanted, no modules and no firmware.
	Alone bool
}

// Tags are the tags under which an artifact for w is looked up if a source names none: first with the kernel's
// build-id, which is exact, then with its release.
func (w Wanted) Tags() []string {
	var out []string
	for _, kernel := range []string{w.KernelBuildID[:min(16, len(w.KernelBuildID))], w.KernelRelease} {
		if kernel != "" {
			out = append(out, tag(w.Version, kernel, w.Arch))
		}
	}
	return out
}

// tag joins the parts of a tag. A tag has at most 128 characters from a small set (OCI distribution specification
// 1.1).
func tag(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	text := regexp.MustCompile(`[^A-Za-z0-9_.-]`).ReplaceAllString(strings.Join(parts, "-"), "_")
	return text[:min(128, len(text))]
}

// mismatch says why c does not match w; nil if it does.
func (w Wanted) mismatch(c Config) *accel.Problem {
	switch {
	case c.Profile != w.Kind:
		return accel.Problemf(accel.ArtifactNotFound, "is a driver of %q, wanted is one of %q", c.Profile, w.Kind)
	case c.Arch != w.Arch:
		return accel.Problemf(accel.ArchMismatch, "is for %s, the machine is %s", c.Arch, w.Arch)
	case c.KernelRelease != w.KernelRelease:
		return accel.Problemf(accel.KernelMismatch, "is for kernel %q, running is %q", c.KernelRelease, w.KernelRelease)
	case c.KernelBuildID != "" && w.KernelBuildID != "":
		if c.KernelBuildID != w.KernelBuildID {
			return accel.Problemf(accel.KernelMismatch, "is for kernel %q with build-id %s, the running one has %s",
				c.KernelRelease, c.KernelBuildID, w.KernelBuildID)
		}
	case c.KernelVersion != "" && w.KernelVersion != "" && c.KernelVersion != w.KernelVersion:
		return accel.Problemf(accel.KernelMismatch, "is for kernel %q %q, running is %q", c.KernelRelease,
			c.KernelVersion, w.KernelVersion)
	}
	if w.Version != "" && c.version() != w.Version {
		return accel.Problemf(accel.ArtifactNotFound, "is of version %q, wanted is %q", c.version(), w.Version)
	}
	return nil
}

// version is the driver's version according to the configuration, or else to its modules.
func (c Config) version() string {
	v := c.DriverVersion
	for _, m := range c.Modules {
		v = cmp.Or(v, m.Version)
	}
	return v
}

// parseConfig reads and checks a configuration.
func parseConfig(data []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("its configuration cannot be read: %w", err)
	}
	if c.Schema != Schema {
		return c, fmt.Errorf("its configuration has schema %d, known is %d", c.Schema, Schema)
	}
	if c.Profile == "" || c.Arch == "" || c.KernelRelease == "" || len(c.Modules) == 0 {
		return c, fmt.Errorf("its configuration lacks profile, arch, kernelRelease or modules")
	}
	if err := c.bounded(); err != nil {
		return c, err
	}
	seen := map[string]bool{}
	for _, m := range c.Modules {
		if m.File != path.Base(m.File) || !strings.HasSuffix(m.File, ".ko") || strings.HasPrefix(m.File, ".") ||
			seen[m.File] || m.Name == "" {
			return c, fmt.Errorf("its configuration names the module file %q", m.File)
		}
		seen[m.File] = true
	}
	for _, f := range c.Firmware {
		if !unpack.Local(f.Path) || seen[firmwareDir+f.Path] {
			return c, fmt.Errorf("its configuration names the firmware file %q", f.Path)
		}
		seen[firmwareDir+f.Path] = true
	}
	return c, c.checkUserSpace()
}

// checkUserSpace refuses a user space in which a link leaves its directory or stands for one: nothing is written
// through a link.
func (c Config) checkUserSpace() error {
	links, seen := map[string]bool{}, map[string]bool{}
	for _, f := range c.UserSpace {
		linked := f.Link != ""
		if !unpack.Local(f.Path) || seen[f.Path] || linked == (f.SHA256 != "") ||
			linked && (!unpack.Local(f.Link) || f.Link != path.Base(f.Link)) {
			return fmt.Errorf("its configuration names the file %q of a user space", f.Path)
		}
		seen[f.Path], links[f.Path] = true, linked
	}
	for _, f := range c.UserSpace {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if links[dir] {
				return fmt.Errorf("its configuration names the file %q, and %q is a link", f.Path, dir)
			}
		}
	}
	return nil
}

// The limits of what a configuration says. The longest real text is a `uname -v` of some 80 characters; an identity is
// a few of them with the arguments of a make.
const (
	textLimit     = 256
	pathLimit     = 1024
	identityLimit = 16 << 10
)

// bounded refuses a configuration whose texts or lists are longer than any real one: they are stored and shown.
func (c Config) bounded() error {
	texts := []string{c.Profile, c.DriverVersion, c.Arch, c.KernelRelease, c.KernelVersion, c.KernelBuildID, c.BuiltBy}
	for _, m := range c.Modules {
		texts = append(append(texts, m.Name, m.File, m.SHA256, m.BuildID, m.SrcVersion, m.Vermagic, m.Version),
			m.Depends...)
	}
	for _, text := range texts {
		if len(text) > textLimit {
			return fmt.Errorf("its configuration has a text of %d characters, allowed are %d: %.40q…", len(text),
				textLimit, text)
		}
	}
	for _, f := range c.Firmware {
		if len(f.Path) > pathLimit || len(f.SHA256) > textLimit {
			return fmt.Errorf("its configuration names a firmware file with %d characters", len(f.Path)+len(f.SHA256))
		}
	}
	if len(c.UserSpace) > linkLimit {
		return fmt.Errorf("its configuration names %d files of a user space, allowed are %d", len(c.UserSpace), linkLimit)
	}
	for _, f := range c.UserSpace {
		if len(f.Path) > pathLimit || len(f.SHA256) > textLimit || len(f.Link) > textLimit {
			return fmt.Errorf("its configuration names a file of a user space with %d characters",
				len(f.Path)+len(f.SHA256)+len(f.Link))
		}
	}
	if len(c.Identity) > identityLimit {
		return fmt.Errorf("its configuration has an identity of %d bytes, allowed are %d", len(c.Identity), identityLimit)
	}
	return nil
}

// The directories of the firmware and of the user space in a layer.
const (
	firmwareDir = "firmware/"
	rootDir     = "root/"
)

// files returns the digests of all files in the layer, by name.
func (c Config) files() map[string]string {
	out := map[string]string{}
	for _, m := range c.Modules {
		out[m.File] = m.SHA256
	}
	for _, f := range c.Firmware {
		out[firmwareDir+f.Path] = f.SHA256
	}
	for _, f := range c.UserSpace {
		if f.Link == "" {
			out[rootDir+f.Path] = f.SHA256
		}
	}
	return out
}
