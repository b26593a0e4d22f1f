package accel

import (
	"fmt"
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
	// problems returns, as sentences, the errors in the fields that only this type has; nil if it has no such fields.
	problems func(Source) []string
}

func sourceRows() []sourceRow {
	return []sourceRow{
		{typ: SourceLoaded, where: "loaded"},
		{typ: SourceStore, where: "in the store"},
		{typ: SourceInstalled, where: "installed"},
		{
			typ: SourceOCI, where: "fetched", prebuilt: true, problems: Source.registryProblems,
			fields: []string{"image", "mirrors", "digest", "keys", "ca", "credentials", "proxy", "plainHTTP", "push"},
		},
		{
			typ: SourceBuild, where: "built", problems: Source.buildProblems,
			fields: []string{"path", "make", "system", "anyCompiler"},
		},
		{typ: SourceBundle, where: "from the bundle", prebuilt: true, fields: []string{"path", "digest", "keys"}},
	}
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

// PrebuiltSources lists the prebuilt types for people: "oci, bundle".
func PrebuiltSources() string { return sourceNames(func(r sourceRow) bool { return r.prebuilt }) }

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

// Problems returns the errors in a source as it is configured, each sentence beginning with the field; none if it is
// usable. Templates are parsed, not filled.
func (s Source) Problems() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	row, known := s.Type.row()
	if !known {
		bad("type: %q is not one of %s", s.Type, sourceNames(func(r sourceRow) bool { return r.fields != nil }))
		return out
	}
	if row.fields == nil {
		bad("type: %q always comes first and needs no entry", s.Type)
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
	if slices.Contains(row.fields, "path") && !path.IsAbs(s.Path) && !strings.HasPrefix(s.Path, "{{") {
		bad("path: %q is not an absolute path", s.Path)
	}
	if s.Digest != "" && !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(s.Digest) {
		bad("digest: %q is not sha256: and 64 hexadecimal digits", s.Digest)
	}
	for i, k := range s.Keys {
		if !path.IsAbs(k) {
			bad("keys[%d]: %q is not an absolute path", i, k)
		}
	}
	s.Make = slices.Clone(s.Make) // the walk writes each text back
	templates(reflect.ValueOf(&s).Elem(), "", "", func(_ TemplateKind, field, text string) string {
		if _, err := ParseTemplate(field, text); err != nil {
			bad("%s: %v", field, err)
		}
		return text
	})
	return out
}

// buildProblems returns the errors in the fields that only a source of type build has.
func (s Source) buildProblems() []string {
	if slices.Contains([]BuildSystem{"", BuildKbuild, BuildMake, BuildDKMS}, s.System) {
		return nil
	}
	return []string{fmt.Sprintf("system: %q is not one of kbuild, make, dkms", s.System)}
}

// registryProblems returns the errors in the fields that only a source of type oci has.
func (s Source) registryProblems() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	server, rest, _ := strings.Cut(s.Image, "/")
	if rest == "" || !strings.ContainsAny(server, ".:") && server != "localhost" {
		bad("image: %q names no registry, such as registry.example/driver", s.Image)
	}
	for i, m := range s.Mirrors {
		if m == "" || strings.Contains(m, "://") || strings.Contains(m, "@") {
			bad("mirrors[%d]: %q is not a registry, such as mirror.example or mirror.example/path", i, m)
		}
	}
	for _, f := range []struct{ field, value string }{{"ca", s.CA}, {"credentials", s.Credentials}} {
		if f.value != "" && !path.IsAbs(f.value) {
			bad("%s: %q is not an absolute path", f.field, f.value)
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
