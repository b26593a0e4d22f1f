package packages

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
)

// Format is a format of packages.
type Format string

// The formats.
const (
	Deb Format = "deb"
	RPM Format = "rpm"
)

// Repository is where packages are: at a URL, or in a directory of the host.
type Repository struct {
	Format Format
	// URL is the repository's, such as "https://deb.example.org/debian" or, of rpm, the directory that has repodata. A
	// server whose name ends in ".invalid" stands for the mirror that the host's apt has for the suite, or for those of
	// the repositories of dnf or zypper whose ids have the URL's last element as a word.
	URL string
	// lists are URLs of lists of more mirrors.
	lists []string
	// Mirrors are URLs with the same content that are tried first, in order.
	Mirrors []string
	// Suite is that of a deb repository, such as "bookworm". One that ends in "/" is the directory of a repository
	// without suites and components ("./" for the URL's own).
	Suite      string
	Components []string
	// Path is a package, or a directory with packages, of the host. It stands instead of a URL.
	Path string
	// Architecture is that of the packages as their format names it, such as "amd64" or "x86_64". Packages for every
	// architecture ("all", "noarch") belong to each.
	Architecture string
	// Keys are files of the host with OpenPGP public keys, armored or not; the last element of a name may be a pattern,
	// such as "/etc/pki/rpm-gpg/RPM-GPG-KEY-*". A URL needs at least one.
	Keys []string
	// CA is a PEM file of the host with the certificate authority of the server.
	CA string
	// Proxy is the URL of an HTTP proxy; empty means the one of the environment.
	Proxy string
}

// Wanted is a package to get.
type Wanted struct {
	Name string
	// Version is the version ("535.261.03-1"), or the beginning of one that ends with a part of it ("535.261.03",
	// "535"). The newest that matches is taken. Packages with the same beginning get the newest version that all of
	// them have, whatever their revisions. Empty means the newest.
	Version string
	// Optional says that the request does without the package if it is not there, or not in the version of those that
	// are wanted in the same one.
	Optional bool
}

func (w Wanted) required() bool { return !w.Optional }

// Request is what to get and where to put it.
type Request struct {
	Repository Repository
	Packages   []Wanted
	// Dir is an empty directory of the host to unpack to.
	Dir string
	// Cache is a directory of the host for what is downloaded, each file under its digest. Only one request at a time
	// may use it; its caller empties it.
	Cache string
	// Seen is the date of the repository when it was last used ([Fetched.Date]); zero if it was not.
	Seen time.Time
	// Bounds of what is unpacked; [unpack.Usual] if zero.
	Bounds unpack.Bounds
}

// Of is the request for a set of packages, with its templates filled, for machines of the architecture that
// `uname -m` prints. The caller adds Dir, Cache and Seen.
func Of(s accel.PackageSet, arch string) Request {
	r := Request{Repository: Repository{
		Format: Format(s.Format), URL: s.URL, Mirrors: s.Mirrors, Path: s.Path, Suite: s.Suite,
		Components: s.Components, Architecture: arch, Keys: s.Keys, CA: s.CA, Proxy: s.Proxy,
	}}
	if r.Repository.Format == Deb {
		r.Repository.Architecture = accel.GoArch(arch)
	}
	for i, p := range slices.Concat(s.Packages, s.OptionalPackages) {
		name, version, _ := strings.Cut(p, "=")
		r.Packages = append(r.Packages, Wanted{Name: name, Version: version, Optional: i >= len(s.Packages)})
	}
	return r
}

// Package is a package that was verified.
type Package struct {
	Name         string
	Version      string // with epoch, if it has one, and revision
	Architecture string
	// From is the URL or the file of the host that it came from, without credentials.
	From   string
	SHA256 string // of the package, in hexadecimal
	Bytes  int64  // of the package
	// Key is the fingerprint of the key that signed it or its repository, in hexadecimal; empty for a directory.
	Key string
}

// Fetched is what a request gave.
type Fetched struct {
	Packages []Package // in the order of the request; then the optional ones that are there
	Tree     unpack.Tree
	// Date is when the repository was signed; zero if that is unknown, and for a directory.
	Date time.Time
	// Received is how many bytes of packages came over the network; the rest was in the cache.
	Received int64
}

// The forms of what a request names.
var (
	packageName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._-]{0,127}$`)
	versionForm  = regexp.MustCompile(`^[A-Za-z0-9.+:~^_-]{1,128}$`)
	architecture = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)
	suiteForm    = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,128}$`)
)

// packagesLimit is how many packages one request may name.
const packagesLimit = 64

// problem says why a request cannot be one; nil if it can.
func (r Request) problem() *accel.Problem {
	bad := func(format string, args ...any) *accel.Problem {
		return accel.Problemf(accel.ConfigInvalid, format, args...)
	}
	switch {
	case !slices.ContainsFunc(r.Packages, Wanted.required) || len(r.Packages) > packagesLimit:
		return bad("%d packages are named, not 1 to %d, of which one is not optional", len(r.Packages), packagesLimit)
	case !path.IsAbs(r.Dir):
		return bad("the directory %q is not an absolute path", r.Dir)
	}
	seen := map[string]bool{}
	for _, w := range r.Packages {
		switch {
		case !packageName.MatchString(w.Name):
			return bad("%.64q cannot be the name of a package", w.Name)
		case w.Version != "" && !versionForm.MatchString(w.Version):
			return bad("%.64q cannot be a version of package %q", w.Version, w.Name)
		case seen[w.Name]:
			return bad("package %q is named twice", w.Name)
		}
		seen[w.Name] = true
	}
	if text := r.Repository.problem(); text != "" {
		return bad("%s", text)
	}
	if r.Repository.URL != "" && !path.IsAbs(r.Cache) {
		return bad("the cache %q is not an absolute path", r.Cache)
	}
	return nil
}

// problem says why a repository cannot be one; empty if it can.
func (r Repository) problem() string {
	switch {
	case r.Format != Deb && r.Format != RPM:
		return fmt.Sprintf("%q is no format of packages", r.Format)
	case !architecture.MatchString(r.Architecture):
		return fmt.Sprintf("%.64q cannot be an architecture", r.Architecture)
	case (r.URL == "") == (r.Path == ""):
		return "packages are at a URL or in a directory, not both and not neither"
	case r.Path != "" && !path.IsAbs(r.Path):
		return fmt.Sprintf("%q is not an absolute path", r.Path)
	case r.Path != "":
		return ""
	case len(r.Keys) == 0:
		return "a repository without keys is not trusted: name the files of its public keys"
	}
	for _, text := range r.places() {
		if _, err := base(text); err != nil {
			return err.Error()
		}
	}
	if r.Format == RPM {
		return ""
	}
	flat := strings.HasSuffix(r.Suite, "/")
	if !suiteForm.MatchString(r.Suite) || slices.Contains(strings.Split(r.Suite, "/"), "..") ||
		strings.HasPrefix(r.Suite, "/") && r.Suite != "/" {
		return fmt.Sprintf("%.64q cannot be a suite", r.Suite)
	}
	if flat == (len(r.Components) > 0) {
		return `a suite has components, and one that ends in "/" has none`
	}
	for _, c := range r.Components {
		if !suiteForm.MatchString(c) || !unpack.Local(c) {
			return fmt.Sprintf("%.64q cannot be a component", c)
		}
	}
	return ""
}

// places lists the URLs in the order to try.
func (r Repository) places() []string {
	if r.URL == "" {
		return r.Mirrors
	}
	return append(slices.Clone(r.Mirrors), r.URL)
}

// base reads the URL of a repository.
func base(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("a URL of a repository is not one of http or https") // it may contain a password
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the URL of %q has credentials, a query or a fragment", u.Host)
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), ""
	return u, nil
}

// at returns the URL of a file below a URL.
func at(u *url.URL, file string) string {
	below := *u
	below.Path = cmp.Or(u.Path, "") + path.Clean("/"+file)
	return below.String()
}
