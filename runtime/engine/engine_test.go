package engine

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		version, than string
		want          bool
	}{
		{"1.7.1", "1.7.2", true},
		{"1.7.2", "1.7.2", false},
		{"1.6.20~ds1", "1.7.2", true},
		{"1.7.24-0ubuntu1", "1.7.2", false},
		{"1.10.0", "1.7.2", false},
		{"1.9", "1.10", true},
		{"10.0", "9.1", false},
		{"2", "1.7.2", false},
		{"1", "1.7.2", false}, // it may be any version
		{"", "1.7.2", false},
		{"unknown", "1.7.2", false},
	} {
		if got := older(c.version, c.than); got != c.want {
			t.Errorf("%q is older than %q: %t", c.version, c.than, got)
		}
	}
}

// TestOffers: /var/run is /run; any other two directories differ.
func TestOffers(t *testing.T) {
	for dir, want := range map[string]bool{
		"/var/run/cdi": true, "/run/cdi": true, "/run/cdi/": true,
		"/var/run/cdi/x": false, "/var/cdi": false, "/var/runcdi": false,
	} {
		for _, asked := range []string{"/var/run/cdi", "/run/cdi"} {
			if got := (&Config{CDI: true, SpecDirs: []string{"/etc/cdi", dir}}).Offers(asked); got != want {
				t.Errorf("with %q in its list %q is read: %t", dir, asked, got)
			}
		}
		if (&Config{SpecDirs: []string{dir}}).Offers(dir) {
			t.Errorf("%q is read without CDI", dir)
		}
	}
}

// closed is a file system in which one file may not be read.
type closed struct {
	memory
	name string
}

func (c closed) ReadFile(name string) ([]byte, error) {
	if name == c.name {
		return nil, fs.ErrPermission
	}
	return c.memory.ReadFile(name)
}

// TestUnreadable: a file that cannot be read does not count as missing, so nothing replaces it.
func TestUnreadable(t *testing.T) {
	for name, file := range map[string]string{
		"containerd": "/etc/containerd/config.toml",
		"cri-o":      "/etc/crio/crio.conf", "docker": "/etc/docker/daemon.json",
	} {
		c, p := Plan(closed{memory{file: nil}, file}, accel.ContainerEngine{Name: name}, specs, EditFull)
		if p == nil || p.Reason != accel.RuntimeConfigInvalid || !strings.Contains(p.Message, file) ||
			len(c.Files) > 0 {
			t.Errorf("%s: %v, %s", name, p, c.Diff())
		}
	}
}

// TestProven: a change that affects anything else is rejected.
func TestProven(t *testing.T) {
	const file, before = "/etc/containerd/config.toml",
		"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"x\"\n"
	e := accel.ContainerEngine{Name: "containerd", Version: "1.7.27"}
	files := memory{file: []byte(before)}
	now, p := Read(files, e)
	if p != nil {
		t.Fatal(p)
	}
	for after, want := range map[string]bool{
		before + "  enable_cdi = true\n": true,
		before:                           false,
		strings.Replace(before, `"x"`, `"y"`, 1) + "  enable_cdi = true\n":   false,
		strings.Replace(before, "sandbox", "#", 1) + "  enable_cdi = true\n": false,
		before + "  enable_cdi = true\n  other = 1\n":                        false,
		before + "  enable_cdi = tr":                                         false,
	} {
		if got := proven(files, e, now,
			Change{Files: []File{{Path: file, Foreign: true, Before: []byte(before), After: []byte(after)}}},
			specs); got != want {
			t.Errorf("%t:\n%s", got, after)
		}
	}
}
