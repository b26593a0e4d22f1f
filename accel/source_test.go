package accel

import (
	"strings"
	"testing"
)

func TestSourceProblems(t *testing.T) {
	good := Source{Type: SourceOCI, Image: "registry.example/driver:v{{.DriverVersion}}-{{.KernelVersion}}"}
	for _, c := range []struct {
		name   string
		change func(*Source)
		says   string // empty: nothing is wrong
	}{
		{"as in the documentation", func(*Source) {}, ""},
		{"everything", func(s *Source) {
			s.Mirrors, s.Digest, s.Keys = []string{"mirror.example/x"}, "sha256:"+strings.Repeat("a", 64),
				[]string{"/etc/key.pub"}
			s.CA, s.Credentials, s.Proxy, s.PlainHTTP = "/etc/ca.pem", "/root/.docker/config.json", "http://proxy:3128",
				true
		}, ""},
		{"local registry", func(s *Source) { s.Image = "localhost/driver" }, ""},
		{"no registry", func(s *Source) { s.Image = "driver" }, `image: "driver" names no registry`},
		{"no image", func(s *Source) { s.Image = "" }, `image: "" names no registry`},
		{"template", func(s *Source) { s.Image = "registry.example/x:{{" }, "image: not a template"},
		{"path", func(s *Source) { s.Path = "/x" }, "path: means nothing for a source of type oci"},
		{"mirror", func(s *Source) {
			s.Mirrors = []string{"a.example", "https://x"}
		}, `mirrors[1]: "https://x" is not a registry`},
		{"digest", func(s *Source) { s.Digest = "md5:1" }, `digest: "md5:1" is not sha256:`},
		{"key", func(s *Source) { s.Keys = []string{"key.pub"} }, `keys[0]: "key.pub" is not an absolute path`},
		{"authority", func(s *Source) { s.CA = "ca.pem" }, `ca: "ca.pem" is not an absolute path`},
		{"credentials", func(s *Source) {
			s.Credentials = "~/.docker/config.json"
		}, `credentials: "~/.docker/config.json" is not`},
		{"proxy", func(s *Source) { s.Proxy = "user:secret@proxy" }, "proxy: not a URL"},
		{"push to a digest", func(s *Source) {
			s.Push, s.Digest = true, "sha256:"+strings.Repeat("a", 64)
		}, "push: an image that is pinned"},
		{"push what others refuse", func(s *Source) {
			s.Push, s.Keys = true, []string{"/k"}
		}, "push: a host has no key"},
		{"type", func(s *Source) { s.Type = "ftp" }, `type: "ftp" is not one of oci, build, bundle`},
		{"needless", func(s *Source) { s.Type = SourceStore }, `type: "store" always comes first`},
		{"image of a build", func(s *Source) {
			s.Type, s.Path, s.Digest = SourceBuild, "/src", "sha256:"+strings.Repeat("a", 64)
			s.Mirrors, s.Keys, s.CA = []string{"mirror.example"}, []string{"/k"}, "/ca.pem"
		}, ""},
		{"image of a bundle", func(s *Source) {
			s.Type, s.Path = SourceBundle, "/b.tar"
		}, "image: means nothing for a source of type bundle"},
		{"image of a build without a registry", func(s *Source) {
			*s = Source{Type: SourceBuild, Path: "/src", Image: "gcc:12"}
		}, `image: "gcc:12" names no registry`},
		{"registry of a build without an image", func(s *Source) {
			*s = Source{Type: SourceBuild, Path: "/src", PlainHTTP: true}
		}, "plainHTTP: is for the registry of a builder image, and no image is set"},
		{"needs of a build", func(s *Source) { *s = needing(func(*PackageSet) {}) }, ""},
		{"needs in a directory", func(s *Source) {
			*s = needing(func(p *PackageSet) { *p = PackageSet{Format: "deb", Path: "/media", Packages: p.Packages} })
		}, ""},
		{"needs without an image", func(s *Source) {
			*s = needing(func(*PackageSet) {})
			s.Image = ""
		}, "needs: are for a build in an image, and no image is set"},
		{"needs from nowhere", func(s *Source) {
			*s = needing(func(p *PackageSet) { p.URL = "" })
		}, `needs[0].path: "" is not an absolute path, and there is no url`},
		{"needs that nobody signed", func(s *Source) {
			*s = needing(func(p *PackageSet) { p.Keys = nil })
		}, "needs[0].keys: a repository needs a file"},
		{"key of needs", func(s *Source) {
			*s = needing(func(p *PackageSet) { p.Keys = []string{"k.gpg"} })
		}, `needs[0].keys[0]: "k.gpg" is not an absolute path`},
		{"needs of another format", func(s *Source) {
			*s = needing(func(p *PackageSet) { p.Format = "zip" })
		}, `needs[0].format: "zip" is not one of deb, rpm`},
		{"template of needs", func(s *Source) {
			*s = needing(func(p *PackageSet) { p.Packages = []string{"linux-headers-{{"} })
		}, "needs[0].packages[0]: not a template"},
		{"push of a build", func(s *Source) {
			s.Type, s.Path, s.Push = SourceBuild, "/src", true
		}, "push: means nothing for a source of type build"},
		{"build without a path", func(s *Source) {
			*s = Source{Type: SourceBuild}
		}, `path: "" is not an absolute path`},
		{"system", func(s *Source) {
			*s = Source{Type: SourceBuild, Path: "/src", System: "bazel"}
		}, `system: "bazel" is not one of`},
		{"system of a bundle", func(s *Source) {
			*s = Source{Type: SourceBundle, Path: "/b.tar", System: BuildMake}
		}, "system: means nothing"},
		{"make", func(s *Source) {
			*s = Source{Type: SourceBuild, Path: "/src", Make: []string{"A={{"}}
		}, "make[0]: not a template"},
		{"bundle", func(s *Source) { *s = Source{Type: SourceBundle, Path: "/media/b.tar", Keys: []string{"/k"}} }, ""},
		{"bundle with a registry", func(s *Source) {
			*s = Source{Type: SourceBundle, Path: "/b.tar", Push: true}
		}, "push: means nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good
			c.change(&s)
			got := strings.Join(s.Problems(), "; ")
			if (c.says == "") != (got == "") || !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
			if strings.Contains(got, "secret") {
				t.Errorf("a password is in %q", got)
			}
		})
	}
}

// needing is a build in an image that needs a set of packages.
func needing(change func(*PackageSet)) Source {
	set := PackageSet{
		Format: "deb", URL: "https://deb.example.org/debian", Suite: "bookworm", Components: []string{"main"},
		Packages: []string{"linux-headers-{{.KernelVersion}}"}, Keys: []string{"/k.gpg"},
	}
	change(&set)
	return Source{Type: SourceBuild, Path: "/src", Image: "registry.example/gcc:12", Needs: []PackageSet{set}}
}

func TestKernelBase(t *testing.T) {
	for release, want := range map[string]string{
		"6.1.0-47-amd64": "6.1.0-47", "5.15.0-100-generic": "5.15.0-100", "6.4.0-150600.23-default": "6.4.0-150600.23",
		"5.14.0-427.el9.x86_64": "5.14.0-427.el9", "6.1.0": "6.1.0", "5.15.0-100": "5.15.0-100", "": "", "-amd64": "-amd64",
		"6.1.0-": "6.1.0-",
	} {
		if got := (Kernel{Release: release, Arch: "x86_64"}).Base(); got != want {
			t.Errorf("%q: %q, want %q", release, got, want)
		}
	}
}
