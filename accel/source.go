package accel

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// SourceType is a way to get kernel modules.
type SourceType string

// The source types. The first three need no configuration.
const (
	SourceLoaded    SourceType = "loaded"
	SourceStore     SourceType = "store"
	SourceInstalled SourceType = "installed"
	SourceOCI       SourceType = "oci"    // a prebuilt artifact in a registry
	SourceBuild     SourceType = "build"  // from source, against the host's headers
	SourceBundle    SourceType = "bundle" // an artifact in a file or directory
	SourceRoot      SourceType = "root"   // user space in a directory of the host that is laid out like a root
	// user space in packages of a distribution or a vendor, which are unpacked and not installed
	SourcePackages SourceType = "packages"
	// what the definition says of the host's distribution, see [Distribution]
	SourceDistribution SourceType = "distribution"
	// user space in a redistributable or self-extracting archive of a vendor
	SourceArchive SourceType = "archive"
)

// sourceRow describes one type of source.
type sourceRow struct {
	typ SourceType
	// where says for people where a driver from this source is.
	where string
	// fields are the fields of an entry that apply to this type. A type without fields always comes first and needs
	// no entry.
	fields []string
	// prebuilt says that it provides drivers that somebody else built.
	prebuilt bool
	// modules and userSpace say which half of a driver it provides.
	modules, userSpace bool
	// problems returns, as sentences, the errors in the fields that only this type has; nil if it has no such fields.
	problems func(Source) []string
}

func sourceRows() []sourceRow {
	return []sourceRow{
		{typ: SourceLoaded, where: "loaded"},
		{typ: SourceStore, where: "in the store"},
		{typ: SourceInstalled, where: "installed"},
		{
			typ: SourceOCI, where: "fetched", prebuilt: true, modules: true, userSpace: true,
			problems: Source.registryProblems,
			fields: []string{
				"image", "mirrors", "digest", "keys", "ca", "credentials", "proxy", "plainHTTP", "push", "devices",
			},
		},
		{
			typ: SourceBuild, where: "built", modules: true, problems: Source.buildProblems,
			fields: []string{
				"path", "make", "system", "anyCompiler", "image", "needs", "mirrors", "digest", "keys", "ca", "credentials",
				"proxy", "plainHTTP", "devices",
			},
		},
		{
			typ: SourceBundle, where: "from the bundle", prebuilt: true, modules: true, userSpace: true,
			fields: []string{"path", "digest", "keys"},
		},
		{typ: SourceRoot, where: "in the driver root", userSpace: true, fields: []string{"path"}},
		{
			typ: SourcePackages, where: "in packages", userSpace: true, problems: Source.packagesProblems,
			fields: []string{
				"format", "url", "mirrors", "suite", "components", "packages", "optionalPackages", "path", "keys", "ca", "proxy",
				"also",
			},
		},
		{
			typ: SourceDistribution, where: "from the distribution", modules: true, userSpace: true,
			fields: []string{}, // none
		},
		{
			typ: SourceArchive, where: "in the archive", userSpace: true, problems: Source.archiveProblems,
			fields: []string{"path", "digest"},
		},
	}
}

// meantType says which of some types was probably meant. People call them by what is in them, too.
func meantType(word string, which func(sourceRow) bool) string {
	called := map[string]SourceType{
		"registry": SourceOCI, "image": SourceOCI, "container": SourceOCI, "docker": SourceOCI, "artifact": SourceOCI,
		"source": SourceBuild, "compile": SourceBuild, "dkms": SourceBuild, "make": SourceBuild, "file": SourceBundle,
		"directory": SourceBundle, "deb": SourcePackages, "rpm": SourcePackages, "apt": SourcePackages, "dnf": SourcePackages,
		"package": SourcePackages, "distro": SourceDistribution, "runfile": SourceArchive, "tar": SourceArchive,
	}
	names := strings.Split(sourceNames(which), ", ")
	if near := DidYouMean(word, names); near != "" {
		return near
	}
	meant := called[Nearest(word, slices.Sorted(maps.Keys(called)))]
	if !slices.Contains(names, string(meant)) {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", meant)
}

// row returns the row of a type; ok is false for an unknown type.
func (t SourceType) row() (r sourceRow, ok bool) {
	for _, r := range sourceRows() {
		if r.typ == t {
			return r, true
		}
	}
	return sourceRow{}, false
}

// Where says where a driver from a source of this type is, such as "in the store"; empty for an unknown type.
func (t SourceType) Where() string {
	r, _ := t.row()
	return r.where
}

// Prebuilt reports whether sources of this type provide drivers that somebody else built.
func (t SourceType) Prebuilt() bool {
	r, _ := t.row()
	return r.prebuilt
}

// NotPrebuilt says that a type is none of those whose drivers somebody else built, and which was probably meant.
func NotPrebuilt(t SourceType) string {
	prebuilt := func(r sourceRow) bool { return r.prebuilt }
	return fmt.Sprintf("%q is not one of %s%s", t, sourceNames(prebuilt), meantType(string(t), prebuilt))
}

func sourceNames(which func(sourceRow) bool) string {
	var out []string
	for _, r := range sourceRows() {
		if which(r) {
			out = append(out, string(r.typ))
		}
	}
	return strings.Join(out, ", ")
}

// set returns the fields of a source that are configured, in the order in which errors are reported.
func (s Source) set() []string {
	var out []string
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name, f := FieldName(v.Type().Field(i)), v.Field(i)
		if name != "type" && !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0) {
			out = append(out, name)
		}
	}
	return out
}

// Problems returns the errors in a source of kernel modules as it is configured, each sentence beginning with the
// field; none if it is usable. Templates are filled with the facts of an invented machine.
func (s Source) Problems() []string {
	return s.problems(func(r sourceRow) bool { return r.modules })
}

// UserSpaceProblems is Problems for a source of user space.
func (s Source) UserSpaceProblems() []string {
	out := s.problems(func(r sourceRow) bool { return r.userSpace })
	if s.Push {
		out = append(out, "push: nothing of a user space is built here that could be published")
	}
	return out
}

// problems is Problems for a source of one of the types for which fits is true.
func (s Source) problems(fits func(sourceRow) bool) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	row, known := s.Type.row()
	if known && row.fields == nil {
		bad("type: %q always comes first and needs no entry", s.Type)
		return out
	}
	if !known || !fits(row) {
		bad("type: %q is not one of %s%s", s.Type, sourceNames(fits), meantType(string(s.Type), fits))
		return out
	}
	if row.problems != nil {
		out = append(out, row.problems(s)...)
	}
	for _, field := range s.set() {
		if !slices.Contains(row.fields, field) {
			bad("%s: means nothing for a source of type %s", field, s.Type)
		}
	}
	// A template may choose between paths, so it may begin with an action.
	needsPath := slices.Contains(row.fields, "path") && (s.URL == "" || s.Path != "")
	if needsPath && !path.IsAbs(s.Path) && !strings.HasPrefix(s.Path, "{{") {
		bad("path: %q is not an absolute path: begin it with a slash", s.Path)
	}
	if s.Digest != "" && !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(s.Digest) {
		bad("digest: %q is not sha256: and 64 hexadecimal digits", s.Digest)
	}
	if s.Devices != "" {
		if _, _, ok := s.devices(); !ok {
			bad("devices: %q is not a range of device ids, such as 1e00-ffff", s.Devices)
		}
	}
	out = append(out, keyProblems(s.Keys)...)
	// The walk writes each text back.
	s.Make, s.Packages, s.Needs = slices.Clone(s.Make), slices.Clone(s.Packages), slices.Clone(s.Needs)
	s.OptionalPackages, s.Also = slices.Clone(s.OptionalPackages), slices.Clone(s.Also)
	for i, n := range s.Needs {
		s.Needs[i].Packages, s.Needs[i].Also = slices.Clone(n.Packages), slices.Clone(n.Also)
		s.Needs[i].OptionalPackages = slices.Clone(n.OptionalPackages)
	}
	templates(reflect.ValueOf(&s).Elem(), "", "", func(_ TemplateKind, field, text string) string {
		if problem := TemplateProblem(text, false); problem != "" {
			bad("%s: %s", field, problem)
		}
		return text
	})
	return out
}

// buildProblems returns the errors in the fields that only a source of type build has, and in those of its image.
func (s Source) buildProblems() []string {
	var out []string
	if !slices.Contains([]BuildSystem{"", BuildKbuild, BuildMake, BuildDKMS}, s.System) {
		out = append(out, "system: "+NotOneOf(s.System, BuildKbuild, BuildMake, BuildDKMS))
	}
	if len(s.Needs) > 0 && s.Image == "" {
		out = append(out, "needs: are for a build in an image, and no image is set")
	}
	for i, n := range s.Needs {
		texts := append(n.problems(), keyProblems(n.Keys)...)
		if n.URL == "" && !path.IsAbs(n.Path) {
			texts = append(texts, fmt.Sprintf("path: %q is not an absolute path, and there is no url", n.Path))
		}
		for _, text := range texts {
			out = append(out, fmt.Sprintf("needs[%d].%s", i, text))
		}
	}
	if s.Image != "" {
		s.Push = false // push is of no use to a build, which is said elsewhere
		return append(out, s.registryProblems()...)
	}
	for _, field := range s.set() {
		if slices.Contains([]string{"mirrors", "digest", "keys", "ca", "credentials", "proxy", "plainHTTP"}, field) {
			out = append(out, field+": is for the registry of a builder image, and no image is set")
		}
	}
	return out
}

// ImageName is the complete name of the image of a source: a digest that is configured apart is part of it.
func (s Source) ImageName() string {
	if s.Image == "" || s.Digest == "" {
		return s.Image
	}
	name, _, _ := strings.Cut(s.Image, "@")
	return name + "@" + s.Digest
}

// keyProblems returns the errors in a list of files with keys, each sentence beginning with the field.
func keyProblems(keys []string) (out []string) {
	for i, k := range keys {
		if !path.IsAbs(k) {
			out = append(out, fmt.Sprintf("keys[%d]: %q is not an absolute path: begin it with a slash", i, k))
		}
	}
	return out
}

// Repository identifies the repository of a set among those that were used.
func (s PackageSet) Repository() string { return s.URL + " " + s.Suite }

// PackageSet is what a source of type packages names.
func (s Source) PackageSet() PackageSet {
	return PackageSet{
		Format: s.Format, URL: s.URL, Path: s.Path, Mirrors: s.Mirrors, Suite: s.Suite, Components: s.Components,
		Packages: s.Packages, OptionalPackages: s.OptionalPackages, Also: s.Also,
		Keys: s.Keys, CA: s.CA, Proxy: s.Proxy,
	}
}

// Each returns the set and, for each further repository, the same set there.
func (s PackageSet) Each() []PackageSet {
	out := []PackageSet{s}
	out[0].Also = nil
	for _, p := range s.Also {
		other := out[0]
		other.URL, other.Mirrors, other.Suite = p.URL, p.Mirrors, p.Suite
		out = append(out, other)
	}
	return out
}

// devices are the first and the last device id that a source is for; ok is false for what is not a range.
func (s Source) devices() (first, last string, ok bool) {
	first, last, ok = strings.Cut(s.Devices, "-")
	id := regexp.MustCompile(`^[0-9a-f]{4}$`)
	return first, last, ok && id.MatchString(first) && id.MatchString(last) && first <= last
}

// Lacks says for people that the driver from a source does not support a device of def on this host; empty if it
// supports all of them.
func (s Source) Lacks(def *Definition, facts Facts) string {
	first, last, ok := s.devices()
	if !ok {
		return ""
	}
	for _, d := range facts.All() {
		if def.Recognises(d) && (d.Device < first || d.Device > last) {
			return fmt.Sprintf("the driver there supports the device ids %s, and %s has %s", s.Devices, d.Address, d.Device)
		}
	}
	return ""
}

// packagesProblems returns the errors in the fields that only a source of type packages has.
func (s Source) packagesProblems() []string { return s.PackageSet().problems() }

// problems returns the errors in a set, each sentence beginning with the field; none if it is usable.
func (s PackageSet) problems() []string {
	var out []string
	if s.Format != "deb" && s.Format != "rpm" {
		out = append(out, "format: "+NotOneOf(s.Format, "deb", "rpm"))
	}
	if len(s.Packages) == 0 {
		out = append(out, "packages: at least one is needed")
	}
	for i, p := range s.Also {
		if !isWeb(p.URL) {
			out = append(out, fmt.Sprintf("also[%d].url: not a URL, such as https://deb.example.org/debian-security", i))
		}
		if s.Format == "deb" && p.Suite == "" {
			out = append(out, fmt.Sprintf("also[%d].suite: is needed, such as bookworm-security", i))
		}
	}
	if s.URL == "" && len(s.Also) > 0 {
		out = append(out, "also: is for packages of a repository")
	}
	if s.URL == "" {
		return out
	}
	if !isWeb(s.URL) {
		out = append(out, "url: not a URL, such as https://deb.example.org/debian")
	}
	if s.Path != "" {
		out = append(out, "path: is for packages without a repository")
	}
	if len(s.Keys) == 0 {
		out = append(out, "keys: a repository needs a file with the OpenPGP key that signs it")
	}
	if s.Format == "deb" && s.Suite == "" {
		out = append(out, `suite: is needed, such as bookworm, or "./" for a repository without suites`)
	}
	return out
}

// archiveProblems returns the errors in the fields that only a source of type archive has.
func (s Source) archiveProblems() []string {
	if s.Digest == "" {
		return []string{"digest: is needed, because nobody signs such an archive"}
	}
	return nil
}

// registryProblems returns the errors in the fields for a registry.
func (s Source) registryProblems() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	server, rest, _ := strings.Cut(s.Image, "/")
	if rest == "" || !strings.ContainsAny(server, ".:") && server != "localhost" {
		bad("image: %q names no registry, such as registry.example/driver", s.Image)
	}
	for i, m := range s.Mirrors {
		if text := registryProblem(m); text != "" {
			bad("mirrors[%d]: %s", i, text)
		}
	}
	for _, f := range []struct{ field, value string }{{"ca", s.CA}, {"credentials", s.Credentials}} {
		if f.value != "" && !path.IsAbs(f.value) {
			bad("%s: %q is not an absolute path: begin it with a slash", f.field, f.value)
		}
	}
	if s.Proxy != "" {
		// Do not repeat the value: it may contain a password.
		if u, err := url.Parse(s.Proxy); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" &&
			u.Scheme != "socks5" {
			bad("proxy: not a URL, such as http://proxy.example:3128")
		}
	}
	if s.Push && (s.Digest != "" || strings.Contains(s.Image, "@")) {
		bad("push: an image that is pinned to a digest cannot be pushed to")
	}
	if s.Push && len(s.Keys) > 0 {
		bad(
			"push: a host has no key to sign with, so the others would refuse what it publishes; push signed drivers with `acceld driver build --push --sign-key`")
	}
	return out
}
