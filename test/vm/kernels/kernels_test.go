package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/acceld/acceld/test/unproven"
	"github.com/acceld/acceld/test/vm/cache"
)

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		releases []string
		want     Pair
		both     bool
	}{
		"the first": {
			[]string{"6.1.0-50-amd64", "6.1.0-56-amd64", "6.1.0-47-amd64"},
			Pair{Older: "6.1.0-47-amd64", Newer: "6.1.0-56-amd64"},
			true,
		},
		"others": {
			[]string{"6.1.0-54-amd64", "6.1.0-50-amd64"},
			Pair{Older: "6.1.0-50-amd64", Newer: "6.1.0-54-amd64"},
			true,
		},
		"one":           {[]string{"6.1.0-56-amd64"}, Pair{Newer: "6.1.0-56-amd64"}, false},
		"two that work": {[]string{"6.1.0-47-amd64", "6.1.0-50-amd64"}, Pair{Older: "6.1.0-47-amd64"}, false},
		"unknown":       {[]string{"6.1.0-57-amd64", "6.12.0-1-amd64"}, Pair{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.releases)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(Pair{})); diff != "" || got.Both() != tc.both {
				t.Errorf("both %v\n%s", got.Both(), diff)
			}
		})
	}
	if got := (Pair{Newer: "6.1.0-56-amd64"}).Lost(); got !=
		"neither the cache nor the distribution's archive has kernel 6.1.0-47-amd64 or 6.1.0-50-amd64" {
		t.Errorf("lost: %s", got)
	}
}

// archive stands for mmdebstrap: its hook runs with an apt that has the packages of these releases.
func archive(t *testing.T, releases ...string) {
	t.Helper()
	bin := t.TempDir()
	has := "case \"$3$2\" in "
	for _, k := range releases {
		has += "*linux-image-" + k + "*|*linux-headers-" + k + "*|*linux-headers-" + strings.TrimSuffix(k, "-amd64") +
			"-common*) exit 0;; "
	}
	for name, script := range map[string]string{
		"mmdebstrap": `test -z "$DOWN" || exit 1
for a; do case "$a" in --extract-hook=*) MMDEBSTRAP_APT_CONFIG=/dev/null sh -c "${a#*=}" sh "$4";; esac; done`,
		"unshare": `shift; exec "$@"`,
		"apt-cache": `if [ "$1" = depends ]; then printf '%s\n  Depends: linux-image-6.12.9+deb13-amd64\n' "$2"; exit; fi
` + has + "esac; exit 100",
		"apt-get": `shift 2; for p; do
mkdir -p package/DEBIAN; printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: m <m@example.com>\nDescription: d\n' "$p" >package/DEBIAN/control
dpkg-deb -b package "${p}_1_all.deb" >/dev/null; done; rm -r package`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// TestLater: the package that the newest kernel's name stands for is fetched.
func TestLater(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	archive(t)
	t.Setenv("DOWN", "")
	dir := t.TempDir()
	file, err := Later(t.Context(), dir)
	if want := filepath.Join(dir, "linux-image-6.12.9+deb13-amd64_1_all.deb"); err != nil || file != want {
		t.Errorf("%q %v, want %q", file, err, want)
	}
	t.Setenv("DOWN", "1")
	if file, err := Later(t.Context(), t.TempDir()); err == nil {
		t.Errorf("an archive that does not answer gave %q", file)
	}
}

// TestGet: what was fetched once is there when the archive has forgotten it; what cannot be had is said.
func TestGet(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	t.Setenv("ACCELD_CACHE", t.TempDir())
	t.Setenv("DOWN", "")
	c, err := cache.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	get := func() Pair {
		t.Helper()
		p, err := Get(t.Context(), tree, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	list := func() string {
		text, _ := os.ReadFile(filepath.Join(tree, unproven.File))
		return string(text)
	}
	archive(t, "6.1.0-57-amd64", "6.1.0-50-amd64")
	if p := get(); p.Both() || p.Older != "6.1.0-50-amd64" ||
		!cmp.Equal(p.Packages(), []string{"linux-image-amd64", "linux-headers-amd64"}) || p.Bootstrap() != nil {
		t.Errorf("a pair where there is none: %+v", p)
	}
	if want := What +
		": neither the cache nor the distribution's archive has kernel 6.1.0-56-amd64 or 6.1.0-55-amd64 or 6.1.0-54-amd64 or 6.1.0-53-amd64\n"; list() != want {
		t.Errorf("not checked: %q, want %q", list(), want)
	}
	archive(t, "6.1.0-47-amd64", "6.1.0-55-amd64", "6.1.0-53-amd64")
	if p := get(); p.Older != "6.1.0-50-amd64" || p.Newer != "6.1.0-55-amd64" || list() != "" {
		t.Errorf("%+v, not checked: %q", p, list())
	}
	t.Setenv("DOWN", "1")
	p := get()
	if want := []string{
		"linux-image-6.1.0-50-amd64", "linux-headers-6.1.0-50-amd64", "linux-image-6.1.0-55-amd64",
		"linux-headers-6.1.0-55-amd64",
	}; !cmp.Equal(want, p.Packages()) {
		t.Errorf("packages %q", p.Packages())
	}
	index, err := os.ReadFile(c.Path("kernels", "Packages"))
	if err != nil || strings.Count(string(index), "Package: ") != 6 ||
		!strings.Contains(string(index), "Filename: ./6.1.0-55-amd64/linux-headers-6.1.0-55-common_1_all.deb\n") {
		t.Errorf("%v\n%s", err, index)
	}
	t.Setenv("ACCELD_CACHE", t.TempDir())
	if c, err = cache.Open(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Get(t.Context(), tree, c, nil); err == nil {
		t.Error("an archive that does not answer is taken for one that has forgotten")
	}
}
