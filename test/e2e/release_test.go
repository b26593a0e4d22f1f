package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestRelease makes two releases in a clean clone, as `make release` does, and installs from their files alone: the
// package by the script, the next release and the previous one again under a process that has a device, the programs
// without a package, and both releases as rpm. What somebody has changed is not installed.
func TestRelease(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, NoKubernetes: true})
	g := n.Guest
	stage.Check(t, s.Source(t.Context(), g))
	stage.Check(t, g.Put(t.Context(), s.Program("edu-check"), "/usr/bin/edu-check", 0o755))
	clone := cloned(t, s)
	stage.Check(t, s.PutTree(t.Context(), g, makeRelease(t, clone, "0.1.0"), "/root/one"))
	stage.Check(t, s.PutTree(t.Context(), g, makeRelease(t, clone, "0.2.0"), "/root/two"))
	timed(t, "install.sh -> ready, driver built", func() {
		t.Logf("%s", sh(t, g, "sh /root/one/install.sh --from /root/one"))
		reaches(t, g, accel.Ready, 10*time.Minute)
	})
	sh(t, g, "systemd-run --unit=holder edu-check -expect 1 -hold 2h")
	driver, holder := facts(t, g), sh(t, g, "systemctl show -p MainPID --value holder")
	same := func(version string) {
		t.Helper()
		if out := sh(t, g, "acceld --version"); !strings.Contains(out, version) {
			t.Errorf("it is %q, want %s", out, version)
		}
		reaches(t, g, accel.Ready, soon)
		if now := facts(t, g); now != driver {
			t.Errorf("with %s the driver is %q, before %q", version, now, driver)
		}
		if now := sh(t, g, "systemctl show -p MainPID --value holder"); now != holder {
			t.Errorf("with %s the holder is %q, before %q", version, now, holder)
		}
	}
	same("0.1.0")
	t.Run("a release that somebody changed", func(t *testing.T) {
		sh(t, g, "cp -r /root/two /root/bad; printf x >> /root/bad/acceld_0.2.0_amd64.deb")
		for _, c := range []struct{ what, spoil string }{ // the second spoils what the first has left
			{"checksum of acceld_0.2.0_amd64.deb is wrong", "true"},
			{"signature of the release is wrong", "cd /root/bad; sed -i \"s/^.*_amd64.deb/$(sha256sum acceld_*_amd64.deb)/\" SHA256SUMS"},
		} {
			res, err := g.Sh(stage.Within(t, soon), c.spoil+"; sh /root/two/install.sh --from /root/bad 2>&1")
			stage.Check(t, err)
			if res.OK() || !strings.Contains(res.Stdout, c.what) {
				t.Errorf("want %q: status %d: %s", c.what, res.Status, res.Stdout)
			}
		}
		same("0.1.0")
	})
	t.Run("the next release", func(t *testing.T) {
		t.Logf("%s", sh(t, g, "sh /root/two/install.sh --from /root/two"))
		same("0.2.0")
	})
	t.Run("the previous release again", func(t *testing.T) {
		t.Logf("%s", sh(t, g, "sh /root/one/install.sh --from /root/one"))
		same("0.1.0")
	})
	t.Run("without a package", func(t *testing.T) {
		apt(t, g, "remove", "acceld")
		t.Logf("%s", sh(t, g, "sh /root/two/install.sh --from /root/two --format tar"))
		same("0.2.0")
	})
	t.Run("both releases as rpm", func(t *testing.T) {
		sh(t, g, "systemctl disable --now acceld.service acceld.socket; "+unpackedFiles+" | xargs rm")
		sh(t, g, rpmHost)
		for _, r := range []struct{ version, dir string }{{"0.1.0", "one"}, {"0.2.0", "two"}, {"0.1.0", "one"}} {
			t.Logf("%s", sh(t, g, "sh /root/$1/install.sh --from /root/$1 --format rpm", r.dir))
			if out := sh(t, g, "rpm -q acceld; rpm -V acceld"); !strings.HasPrefix(out, "acceld-"+r.version+"-1") ||
				strings.Contains(out, "\n") {
				t.Errorf("rpm has %q, want %s unchanged", out, r.version)
			}
			same(r.version)
		}
	})
	sh(t, g, "systemctl stop holder; systemctl disable --now acceld.service acceld.socket; acceld purge; rpm -e acceld")
	if left := sh(t, g, unpackedFiles+" | xargs -I{} find {} -maxdepth 0 2>/dev/null || true"); left != "" {
		t.Errorf("rpm left %q", left)
	}
}

// unpackedFiles lists the files that the archive of the second release has, as docs/release.md does.
const unpackedFiles = `tar -tzf /root/two/acceld-0.2.0-linux-amd64.tar.gz | sed -n 's,^[^/]*\(/.*[^/]\)$,\1,p'`

// rpmHost makes a Debian host one where rpm installs: Debian's rpm wants to be told that this is meant, and its
// database lacks the C library.
const rpmHost = `printf '#!/bin/sh\nexec /usr/bin/rpm --force-debian "$@"\n' > /usr/local/bin/rpm
chmod +x /usr/local/bin/rpm
cat > /root/glibc.spec <<'EOF'
Name: glibc
Version: 2.36
Release: 1
Summary: Stands for the C library that the host has
License: LGPL-2.1
BuildArch: noarch
%description
Nothing.
%files
EOF
rpmbuild --quiet -bb /root/glibc.spec
rpm -i /root/rpmbuild/RPMS/noarch/glibc-2.36-1.noarch.rpm`

// cloned returns a clean clone of the tree, where releases may be tagged.
func cloned(t *testing.T, s *stage.Stage) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	command(t, ".", "git", "clone", "-q", "--no-hardlinks", s.File("."), dir)
	command(t, dir, "openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "../key.pem")
	return dir
}

// makeRelease tags a release with its own section of changes, makes it for this machine's processor, and returns the
// directory of its files.
func makeRelease(t *testing.T, clone, version string) string {
	t.Helper()
	changes := filepath.Join(clone, "CHANGELOG.md")
	text, err := os.ReadFile(changes)
	stage.Check(t, err)
	stage.Check(t, os.WriteFile(changes, append(text, []byte("\n## "+version+"\n\nA test.\n")...), 0o644))
	command(t, clone, "git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-qam", version)
	command(t, clone, "git", "-c", "user.name=test", "-c", "user.email=test@localhost", "tag", "-m", version, "v"+version)
	t.Logf("%s", command(t, clone, "make", "release", "ARCHES=amd64", "PLUGINS=linux-amd64", "KEY=../key.pem"))
	dir := filepath.Join(filepath.Dir(clone), version)
	stage.Check(t, os.Rename(filepath.Join(clone, "dist/release"), dir))
	return dir
}

// command runs a program of this machine to its end and returns what it wrote.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "MAKEFLAGS=", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
