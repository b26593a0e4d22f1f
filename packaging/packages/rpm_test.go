package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// distribution has the packages of the root in which rpm and dnf run: Debian's rpm and dnf, and the shell and
// systemctl that scripts call.
const distribution = "rpm,dnf,systemd"

// rooted unpacks a Debian root from the cache of the test bed. It returns its path and a function that runs a shell
// script in it, as root, with /proc and without any other service. The function checks whether the script succeeds as
// expected.
func rooted(t *testing.T) (root string, in func(well bool, script string) string) {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") == "" {
		t.Skip("ACCELD_TESTBED=1 is not set: it installs a Debian of its own")
	}
	for _, program := range []string{"mmdebstrap", "unshare", "tar"} {
		need(t, program)
	}
	cache := os.Getenv("ACCELD_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(user, "acceld")
	}
	tar := filepath.Join(cache, "rpm-root-"+strings.ReplaceAll(distribution, ",", "-")+".tar")
	if _, err := os.Stat(tar); err != nil {
		if err := os.MkdirAll(cache, 0o755); err != nil {
			t.Fatal(err)
		}
		output(t, "nice", "unshare", "--mount", "mmdebstrap", "--variant=minbase", "--include="+distribution,
			"--dpkgopt=path-exclude=/usr/share/man/*",
			"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/doc/*", "--format=tar",
			"bookworm", tar+".tmp")
		if err := os.Rename(tar+".tmp", tar); err != nil {
			t.Fatal(err)
		}
	}
	root = t.TempDir()
	output(t, "tar", "-C", root, "-xpf", tar)
	return root, func(well bool, script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
			`mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -ec "$1"`, root, script)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
		out, err := cmd.CombinedOutput()
		if (err == nil) != well {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
}

// snapshot returns the type and content of each path of a tree, without the records and caches of the package
// managers.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	records := strings.Fields(
		"proc run/dnf root/.rpmdb var/lib/rpm var/lib/dnf var/cache/dnf var/log/dnf.log var/log/dnf.librepo.log var/log/dnf.rpm.log var/log/hawkey.log var/log/rpm usr/lib/python3")
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if slices.Contains(records, name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		said := info.Mode().String()
		if stat, is := info.Sys().(*syscall.Stat_t); is {
			said += fmt.Sprintf(" %d:%d", stat.Uid, stat.Gid)
		}
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			said += fmt.Sprintf(" %x", sha256.Sum256(content))
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			said += " -> " + target
		}
		all[name] = said
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLifeOfAnRPM has rpm and dnf install, upgrade, remove and purge the package in its own root: first a version
// with stand-ins, then one with the real programs. No systemd runs there, so units are enabled and disabled, but
// never started.
func TestLifeOfAnRPM(t *testing.T) {
	root, in := rooted(t)
	bin := t.TempDir()
	output(t, "go", "build", "-C", "../..", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", bin+"/", "./cmd/acceld",
		"./cmd/acceld-hook")
	for version, programs := range map[string]string{"1.0.0": programs(t, "amd64"), "1.1.0": bin} {
		o := Options{Root: "../..", Bin: programs, Share: share(t), Version: version, Created: time.Unix(1767225600, 0)}
		if _, err := Write("rpm", o, filepath.Join(root, "root")); err != nil {
			t.Fatal(err)
		}
	}
	const old, young = " /root/acceld-1.0.0-1.x86_64.rpm", " /root/acceld-1.1.0-1.x86_64.rpm"
	// The last two directories come from the package "filesystem" on distributions that use rpm.
	in(true, `mkdir -p /etc/containerd /run/systemd /usr/share/licenses /usr/share/man/man8
echo "version = 2" >/etc/containerd/config.toml
printf '#!/bin/sh\necho containerd github.com/containerd/containerd v1.7.2 revision\n' >/usr/bin/containerd; chmod +x /usr/bin/containerd`)
	for _, by := range []struct{ name, install, upgrade, remove string }{
		{"rpm", "rpm --force-debian -i", "rpm --force-debian -U", "rpm --force-debian -e acceld"},
		{
			"dnf", "dnf -y --disablerepo=* install", "dnf -y --disablerepo=* upgrade",
			"dnf -y --disablerepo=* remove acceld",
		},
	} {
		t.Run(by.name, func(t *testing.T) {
			before := snapshot(t, root)
			enabled := func(want string) {
				t.Helper()
				got := in(true,
					"systemctl is-enabled acceld.socket acceld.service acceld-early.service || true; cd /etc/systemd/system; find . -name 'acceld*' | sort")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("units (-want +got):\n%s", diff)
				}
			}
			const all = `enabled
enabled
enabled
./multi-user.target.wants/acceld-early.service
./multi-user.target.wants/acceld.service
./sockets.target.wants/acceld.socket
`
			t.Logf("%s", in(true, by.install+old))
			if got := in(true, "rpm -V acceld; rpm -q acceld; acceld --help >/dev/null"); got !=
				"acceld-1.0.0-1.x86_64\n" {
				t.Errorf("installed: %s", got)
			}
			enabled(all)

			in(true,
				"echo 'logLevel: debug' >>/etc/acceld/config.yaml; systemctl --no-reload disable acceld-early.service 2>/dev/null")
			t.Logf("%s", in(true, by.upgrade+young))
			if got := in(true, "rpm -q acceld; tail -n 1 /etc/acceld/config.yaml; cd /etc/acceld; echo *"); got !=
				"acceld-1.1.0-1.x86_64\nlogLevel: debug\nconfig.yaml definitions.d\n" {
				t.Errorf("upgraded: %s", got)
			}
			enabled(strings.Replace(strings.Replace(all, "enabled\n./", "disabled\n./", 1),
				"./multi-user.target.wants/acceld-early.service\n", "", 1))

			in(true,
				"acceld runtime apply; status=0; timeout 3 acceld run || status=$?; test $status = 124; test -e /var/lib/acceld")
			running := snapshot(t, root)
			if running["etc/containerd/config.toml"] == before["etc/containerd/config.toml"] {
				t.Error("nothing was changed that a purge could take back")
			}
			t.Logf("%s", in(true, by.remove))
			removed := snapshot(t, root)
			for _, name := range []string{
				"usr/bin/acceld", "etc/acceld/config.yaml", "etc/acceld/definitions.d",
				"usr/share/doc/acceld", "usr/lib/systemd/system/acceld.service",
				"etc/systemd/system/multi-user.target.wants/acceld.service",
			} {
				if removed[name] != "" {
					t.Errorf("%s is left", name)
				}
			}
			if removed["etc/acceld/config.yaml.rpmsave"] != running["etc/acceld/config.yaml"] ||
				removed["etc/containerd/config.toml"] != running["etc/containerd/config.toml"] {
				t.Error("a removal did not keep the configuration, or did a purge's work")
			}

			// Reinstall after a removal that kept files, as docs/install.md describes.
			in(true, "rm /etc/acceld/config.yaml.rpmsave")
			in(true, by.install+young)
			enabled(all)
			in(true,
				"systemctl disable --no-reload acceld.service acceld.socket acceld-early.service 2>/dev/null; acceld purge")
			in(true, by.remove)
			if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
				t.Errorf("the root is not as it was (-before +after):\n%s", diff)
			}
		})
	}
}
