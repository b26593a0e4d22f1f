package accel

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Problems returns what is wrong with a source as it is configured, each sentence beginning with the field; none when
// it can be used. Templates are parsed, not filled.
func (s Source) Problems() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	registry := map[string]bool{
		"image": s.Image != "", "mirrors": len(s.Mirrors) > 0, "ca": s.CA != "", "credentials": s.Credentials != "",
		"proxy": s.Proxy != "", "plainHTTP": s.PlainHTTP, "push": s.Push,
	}
	build := map[string]bool{"make": len(s.Make) > 0, "system": s.System != "", "anyCompiler": s.AnyCompiler}
	foreign := build
	switch s.Type {
	case SourceOCI:
		foreign["path"] = s.Path != ""
		out = append(out, s.registryProblems()...)
	case SourceBuild:
		foreign = registry
		foreign["digest"], foreign["keys"] = s.Digest != "", len(s.Keys) > 0
		if !slices.Contains([]BuildSystem{"", BuildKbuild, BuildMake, BuildDKMS}, s.System) {
			bad("system: %q is not one of kbuild, make, dkms", s.System)
		}
	case SourceBundle:
		maps.Copy(foreign, registry)
	case SourceLoaded, SourceStore, SourceInstalled:
		bad("type: %q always comes first and needs no entry", s.Type)
		return out
	default:
		bad("type: %q is not one of oci, build, bundle", s.Type)
		return out
	}
	for _, field := range []string{"path", "make", "system", "anyCompiler", "image", "mirrors", "digest", "keys", "ca", "credentials", "proxy", "plainHTTP", "push"} {
		if foreign[field] {
			bad("%s: means nothing for a source of type %s", field, s.Type)
		}
	}
	if s.Type != SourceOCI && !path.IsAbs(s.Path) && !strings.HasPrefix(s.Path, "{{") { // a template may choose between paths
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
	for _, t := range append([]struct{ field, text string }{{"path", s.Path}, {"image", s.Image}}, makeFields(s.Make)...) {
		if _, err := ParseTemplate(t.field, t.text); err != nil {
			bad("%s: %v", t.field, err)
		}
	}
	return out
}

func makeFields(arguments []string) []struct{ field, text string } {
	var out []struct{ field, text string }
	for i, a := range arguments {
		out = append(out, struct{ field, text string }{fmt.Sprintf("make[%d]", i), a})
	}
	return out
}

// registryProblems are those of the fields that only a source of type oci has.
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
		// The value is not repeated: it may hold a password.
		if u, err := url.Parse(s.Proxy); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
			bad("proxy: not a URL, such as http://proxy.example:3128")
		}
	}
	if s.Push && (s.Digest != "" || strings.Contains(s.Image, "@")) {
		bad("push: an image that is pinned to a digest cannot be pushed to")
	}
	if s.Push && len(s.Keys) > 0 {
		bad("push: a host has no key to sign with, so the others would refuse what it publishes; push signed drivers with `acceld driver build --push --sign-key`")
	}
	return out
}
