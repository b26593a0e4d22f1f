package unpack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Class is what a file of a redistributable archive is for.
type Class string

// The classes.
const (
	Library       Class = "library"
	Program       Class = "program"
	Configuration Class = "configuration"
	Firmware      Class = "firmware"
	Module        Class = "module" // of the kernel, or its source
	Documentation Class = "documentation"
	Unit          Class = "unit" // of systemd
	Other         Class = "other"
)

// Manifest says what each file of a redistributable archive is.
type Manifest struct {
	Description string
	Version     string
	Modules     []string // of the kernel
	Entries     []ManifestEntry
	// Warnings are entries that cannot be read, or whose type is unknown.
	Warnings []string
}

// ManifestEntry is one file or link of a manifest.
type ManifestEntry struct {
	File string // in the archive; for a link, its name
	Type string // as the vendor names it, such as "UTILITY_LIB"
	Class
	// Compat says that it is a library for programs of 32 bits.
	Compat bool
	// Path is a directory below the one that its class goes to, such as "vdpau", or the whole path below the root if
	// it begins with "/"; empty if there is none.
	Path string
	// Target is the text of a link; empty for a file.
	Target string
}

// The limits of a manifest. Those of real ones are a few thousand lines of up to 200 bytes.
const (
	manifestLimit  = 8 << 20
	manifestLines  = 100_000
	warningsLimit  = 100
	manifestHeader = 16 // lines before the first entry
)

// entryForm is a line such as "libexample.so.1.2 0755 UTILITY_LIB NATIVE".
var entryForm = regexp.MustCompile(`^(\S+)\s+([0-7]{3,5})\s+([A-Z][A-Z0-9_]*)((?:\s+\S+)*)\s*$`)

// ParseManifest reads a manifest: lines with description, version, something, the names of kernel modules and more,
// then a line for each file, with its mode, type and what its type needs (nvidia-installer 595, install-from-cwd.c).
func ParseManifest(r io.Reader) (Manifest, error) {
	var m Manifest
	lines := bufio.NewScanner(Limit(r, manifestLimit))
	lines.Buffer(nil, 64<<10)
	for n := 0; lines.Scan(); n++ {
		if n > manifestLines {
			return m, fmt.Errorf("it has more than %d lines", manifestLines)
		}
		line := strings.TrimSpace(lines.Text())
		fields := entryForm.FindStringSubmatch(line)
		switch {
		case fields != nil && n >= 2:
			m.add(fields[1], fields[3], strings.Fields(fields[4]))
		case len(m.Entries) > 0 && line != "":
			m.warn(fmt.Sprintf("line %d is no entry: %.100q", n+1, line))
		case n == 0:
			m.Description = line
		case n == 1:
			m.Version = line
		case n == 3:
			m.Modules = strings.Fields(line)
		case n > manifestHeader:
			return m, errors.New("it has no entries where a manifest has them")
		}
	}
	if err := lines.Err(); err != nil {
		return m, err
	}
	if m.Version == "" || len(m.Version) > 64 || len(m.Entries) == 0 {
		return m, errors.New("it names no version and no files")
	}
	return m, nil
}

func (m *Manifest) warn(text string) {
	if len(m.Warnings) < warningsLimit {
		m.Warnings = append(m.Warnings, text)
	}
}

// add adds an entry with what follows its type.
func (m *Manifest) add(file, kind string, rest []string) {
	e := ManifestEntry{File: strings.TrimPrefix(file, "./"), Type: kind, Class: class(kind)}
	if !Local(e.File) {
		m.warn(fmt.Sprintf("it names the file %.100q", file))
		return
	}
	depth := -1
	var words []string
	for _, word := range rest {
		name, value, marked := strings.Cut(word, ":")
		switch {
		case word == "NATIVE", word == "COMPAT32":
			e.Compat = word == "COMPAT32"
		case word == "CLASSIC", word == "NEW": // of thread-local storage
		case marked && name == "INHERIT_PATH_DEPTH":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				depth = n
			}
		case marked: // "MODULE:x": the part of the driver that it belongs to
		default:
			words = append(words, word)
		}
	}
	if linked(kind) {
		if len(words) == 0 {
			m.warn(fmt.Sprintf("link %q of type %s leads nowhere", e.File, kind))
			return
		}
		e.Target, words = words[len(words)-1], words[:len(words)-1]
	}
	if len(words) > 0 {
		e.Path = words[0]
	}
	if depth >= 0 {
		elements := strings.Split(path.Dir(e.File), "/")
		e.Path = strings.Join(elements[min(depth, len(elements)):], "/")
	}
	if e.Class == Other {
		m.warn(fmt.Sprintf("file %q has the unknown type %s", e.File, kind))
	}
	m.Entries = append(m.Entries, e)
}

// linked reports whether entries of a type are symbolic links.
func linked(kind string) bool {
	return strings.HasSuffix(kind, "_SYMLINK") || strings.HasSuffix(kind, "_NEWSYM")
}

// class is the class of a type. Vendors add types with each release, but name them alike.
func class(kind string) Class {
	for _, row := range []struct {
		class Class
		ends  []string
	}{
		{Module, []string{"MODULE_SRC", "KERNEL_MODULE", "DKMS_CONF", "SIGNING_KEY"}},
		{Documentation, []string{"DOCUMENTATION", "MANPAGE", "DOT_DESKTOP", "LICENSE", "HEADER", "ICON"}},
		{Firmware, []string{"FIRMWARE"}},
		{Unit, []string{"SYSTEMD_UNIT", "SYSTEMD_UNIT_SYMLINK", "SYSTEMD_SLEEP_SCRIPT", "UDEV_RULES"}},
		{Program, []string{"_BINARY", "_BIN_SYMLINK", "_MODPROBE", "_SCRIPT", "_EXECUTABLE"}},
		{Library, []string{"_LIB", "_LIBS", "_LIBRARY", "_SHARED_LIB", "_LA", "_DLL", "_MODULE"}},
		{Configuration, []string{
			"_JSON", "_ICD", "_CONFIG", "_CONF", "_PROFILE", "_DATA", "_LAYER", "EXPLICIT_PATH", "FILES_D",
		}},
		{Library, []string{"_SYMLINK", "_NEWSYM"}}, // what remains of links is of libraries
	} {
		if slices.ContainsFunc(row.ends, func(end string) bool { return strings.HasSuffix(kind, end) }) {
			return row.class
		}
	}
	return Other
}
