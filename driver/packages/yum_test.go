package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestYumRepositories reads files of repositories as dnf.conf(5) describes them.
func TestYumRepositories(t *testing.T) {
	const text = `# comment
stray = 1
[baseos]
name=Base ] $releasever
baseurl=https://one.example/$releasever/BaseOS/${basearch}/os/
        https://two.example/$basearch, ftp://three.example/
	http://user:secret@four.example/
enabled=1

[appstream]
mirrorlist = https://list.example/mirrorlist?arch=$basearch&repo=AppStream-$releasever$rltype
#baseurl=http://no.example/
enabled = yes
[unknown]
baseurl=https://five.example/$nobody/
metalink=https://list.example/metalink?x=$basearch
[off]
enabled=0
[entitled]
baseurl=https://cdn.example/x
sslclientcert=/etc/pki/entitlement/1.pem
`
	got := yumRepositories(text, map[string]string{"releasever": "9", "basearch": "x86_64", "rltype": ""})
	want := []yumRepository{
		{id: "baseos", urls: []string{"https://one.example/9/BaseOS/x86_64/os/", "https://two.example/x86_64"}},
		{id: "appstream", lists: []string{"https://list.example/mirrorlist?arch=x86_64&repo=AppStream-9"}},
		{id: "unknown", lists: []string{"https://list.example/metalink?x=x86_64"}},
		{id: "off", off: true},
		{id: "entitled", urls: []string{"https://cdn.example/x"}, certified: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for id, has := range map[string]bool{
		"appstream": true, "rhel-9-for-x86_64-appstream-rpms": true, "ol9_appstream": true, "AppStream": true,
		"rhel-9-for-x86_64-appstream-source-rpms": false, "appstream-debuginfo": false, "appstreams": false,
	} {
		if (yumRepository{id: id}).has("appstream") != has {
			t.Errorf("%s: not %v", id, has)
		}
	}
}

// TestMirrorsIn reads both kinds of lists of mirrors.
func TestMirrorsIn(t *testing.T) {
	for text, want := range map[string][]string{
		"# comment\nhttps://one.example/os/\n\nhttps://one.example/os/\nrsync://two.example/\n": {"https://one.example/os/"},
		`<?xml version="1.0"?><metalink><files><file name="repomd.xml"><resources>
			<url protocol="https" preference="100">https://one.example/os/repodata/repomd.xml</url>
			<url protocol="rsync">rsync://two.example/os/repodata/repomd.xml</url>
			<url>https://three.example/other.xml</url></resources></file></files>` + "\x00": {"https://one.example/os"},
		"<never": nil, "": nil,
	} {
		if got := mirrorsIn([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
	var many strings.Builder
	for i := range 3 * mirrorsLimit {
		fmt.Fprintf(&many, "http://mirror%d.example/\n", i)
	}
	if got := mirrorsIn([]byte(many.String())); len(got) != mirrorsLimit {
		t.Errorf("%d mirrors, want %d", len(got), mirrorsLimit)
	}
}

// TestYumMirror: packages come from the repository that the host's dnf uses, by its address or by a list of mirrors.
func TestYumMirror(t *testing.T) {
	b := newBench(t)
	y := b.yum()
	y.add("libx1", "1.2", "1.el9", rpmed(t, b.key, false, "libx1", "1.2", "1.el9"))
	y.publish(nil)
	there := strings.TrimSuffix(b.rpms("libx1").Repository.URL, "/")
	repos := filepath.Join(b.root, "etc/yum.repos.d")
	b.must(os.MkdirAll(repos, 0o755))
	b.must(os.WriteFile(filepath.Join(b.root, "etc/os-release"), []byte("ID=rocky\nVERSION_ID=\"9.4\"\n"), 0o644))
	b.files["list-9"] = []byte(there + "\n")
	ask := func(repo string) (Fetched, *accel.Problem) {
		t.Helper()
		b.must(os.RemoveAll(filepath.Join(b.root, "out")))
		b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
		b.must(os.WriteFile(filepath.Join(repos, "x.repo"), []byte(repo), 0o644))
		r := b.rpms("libx1")
		r.Repository.URL = "http://rhel.invalid/AppStream"
		r.Repository.Keys = []string{"/etc/keys*.gpg"}
		return b.fetch(r)
	}
	for name, repo := range map[string]string{
		"an address": "[appstream]\nbaseurl=" + there + "\n",
		"a list":     "[rhel-appstream]\nmirrorlist=" + there + "/list-$releasever\n",
	} {
		if got, problem := ask(repo); problem != nil || len(got.Packages) != 1 ||
			!strings.HasPrefix(got.Packages[0].From, there) {
			t.Errorf("%s: %+v %v", name, got, problem)
		}
	}
	for name, c := range map[string]struct {
		repo  string
		want  accel.Reason
		words string
	}{
		"another one":      {"[baseos]\nbaseurl=" + there + "\n", accel.RegistryUnreachable, `has "appstream" in its id`},
		"one that is off":  {"[appstream]\nbaseurl=" + there + "\nenabled=0\n", accel.RegistryUnreachable, "set `mirrors`"},
		"a certificate":    {"[appstream]\nbaseurl=" + there + "\nsslclientcert=/x\n", accel.RegistryDenied, "certificate of the client"},
		"no list":          {"[appstream]\nmirrorlist=" + there + "/absent\n", accel.ArtifactNotFound, "list of mirrors"},
		"a list of nobody": {"[appstream]\nmirrorlist=" + there + "/repodata/repomd.xml\n", accel.ArtifactInvalid, "names none"},
	} {
		if _, problem := ask(c.repo); problem == nil || problem.Reason != c.want ||
			!strings.Contains(problem.Message, c.words) {
			t.Errorf("%s: %v, want %s with %q", name, problem, c.want, c.words)
		}
	}
}

// TestKeyPattern: a pattern that matches nothing is an error, which names it.
func TestKeyPattern(t *testing.T) {
	b := newBench(t)
	r := b.rpms("libx1")
	r.Repository.Keys = []string{"/etc/pki/RPM-*"}
	b.refused("no key", r, accel.ConfigInvalid, "/etc/pki/RPM-*")
}

// FuzzYum: whatever files of repositories and lists of mirrors contain, only URLs that this package reads come out.
func FuzzYum(f *testing.F) {
	f.Add("[a]\nbaseurl=http://x.example/$releasever\n http://y.example\nmetalink=https://z.example/?a=b\n", "9")
	f.Add("<metalink><url>http://x.example/repodata/repomd.xml</url>", "")
	f.Fuzz(func(t *testing.T, text, version string) {
		for _, y := range yumRepositories(text, map[string]string{"releasever": version}) {
			for _, u := range y.urls {
				if !usable(u) {
					t.Errorf("%q", u)
				}
			}
			for _, u := range y.lists {
				if !listable(u) {
					t.Errorf("%q", u)
				}
			}
		}
		for _, u := range mirrorsIn([]byte(text)) {
			if !usable(u) {
				t.Errorf("%q", u)
			}
		}
	})
}
