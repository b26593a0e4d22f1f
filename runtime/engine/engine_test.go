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

// TestCommandLine: what a daemon's command line says wins over its files, and no file is changed in vain.
func TestCommandLine(t *testing.T) {
	const own, file = "/etc/crio/crio.conf.d/60-acceld.conf", "[crio.runtime]\ncdi_spec_dirs = [\"/opt/cdi\"]\n"
	for name, c := range map[string]struct {
		e       accel.ContainerEngine
		files   memory
		offers  bool
		written string // by a change; empty if there is none
		message string
	}{
		"CRI-O, a file that is overridden": {
			accel.ContainerEngine{Name: "cri-o", SpecDirs: []string{"/run/cdi"}},
			memory{"/etc/crio/crio.conf": []byte(file)},
			true, "", "",
		},
		"CRI-O, other directories": {
			accel.ContainerEngine{Name: "cri-o", SpecDirs: []string{"/opt/a", "/opt/b"}},
			nil, false, "",
			"because its command line names other directories (/opt/a /opt/b)",
		},
		"CRI-O, no directory": {
			accel.ContainerEngine{Name: "cri-o", SpecDirs: []string{}}, nil, false, "", "names other directories",
		},
		"CRI-O, another directory of drop-ins": {
			accel.ContainerEngine{Name: "cri-o", ConfigDir: "/opt/d"},
			memory{"/opt/d/1": []byte(file), "/etc/crio/crio.conf.d/1": []byte("broken [")},
			false, "/opt/d/60-acceld.conf", "",
		},
		"CRI-O, the usual one": {
			accel.ContainerEngine{Name: "cri-o"}, memory{"/etc/crio/crio.conf": []byte(file)}, false, own, "",
		},
		"docker, switched off": {
			accel.ContainerEngine{Name: "docker", Version: "28.3.0", CDI: "off"},
			nil, false, "",
			"because its command line switches that off",
		},
		"docker, switched on": {
			accel.ContainerEngine{Name: "docker", Version: "27.0.1", CDI: "on"}, nil, true, "", "",
		},
		"docker, switched on and too old": {
			accel.ContainerEngine{Name: "docker", Version: "24.0.1", CDI: "on"}, nil, false, "", "versions from 25.0 do",
		},
		"docker, other directories": {
			accel.ContainerEngine{Name: "docker", Version: "28.3.0", SpecDirs: []string{"/opt/a"}},
			nil, false, "",
			"names other directories (/opt/a)",
		},
	} {
		got, p := Read(c.files, c.e)
		if p != nil || got.Offers(specs) != c.offers {
			t.Errorf("%s: offers %t, %v", name, !c.offers, p)
		}
		change, p := Plan(c.files, c.e, specs, EditFull)
		written := ""
		if len(change.Files) == 1 {
			written = change.Files[0].Path
		}
		if written != c.written || (p != nil) != (c.message != "") ||
			p != nil && !strings.Contains(p.Message, c.message) {
			t.Errorf("%s: a change of %q, %v", name, written, p)
		}
	}
}

// TestVersionUnknown: a runtime that may be too old is not said to read specs, whatever its files say.
func TestVersionUnknown(t *testing.T) {
	table := func(version string) memory {
		name := "io.containerd.grpc.v1.cri"
		if version == "3" {
			name = "io.containerd.cri.v1.runtime"
		}
		return memory{"/etc/containerd/config.toml": []byte("version = " + version + "\n[plugins.\"" + name +
			"\"]\n  enable_cdi = true\n")}
	}
	docker := memory{"/etc/docker/daemon.json": []byte(`{"features": {"cdi": true}}`)}
	for _, c := range []struct {
		name, version string
		files         memory
		offers, known bool
	}{
		{"containerd", "", table("2"), false, false},
		{"containerd", "1", table("2"), false, false},
		{"containerd", "1.7", table("2"), false, false},
		{"containerd", "1.7.2", table("2"), true, true},
		{"containerd", "1.6.20~ds1", table("2"), false, true},
		{"containerd", "2", table("2"), true, true},
		{"containerd", "", table("3"), true, true},
		{"docker", "", docker, false, false},
		{"docker", "25.0.3", docker, true, true},
		{"docker", "", nil, false, true},
	} {
		e := accel.ContainerEngine{Name: c.name, Version: c.version}
		got, p := Read(c.files, e)
		if p != nil || got.Offers(specs) != c.offers || (got.Unknown == "") != c.known {
			t.Errorf("%s %q: offers %t, unknown %q, %v", c.name, c.version, got.Offers(specs), got.Unknown, p)
		}
		if change, _ := Plan(c.files, e, specs, EditFull); !c.known && len(change.Files) > 0 {
			t.Errorf("%s %q: a change of files that are right: %s", c.name, c.version, change.Diff())
		}
	}
}

// TestTemplateIsNamed: where k3s and RKE2 render the file, a person has to change what it is rendered from.
func TestTemplateIsNamed(t *testing.T) {
	const dir = "/var/lib/rancher/rke2/agent/etc/containerd/"
	rendered := []byte("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  enable_selinux = false\n")
	e := accel.ContainerEngine{Name: "containerd", Layout: "rke2", Version: "1.7.27"}
	for name, c := range map[string]struct {
		files memory
		edit  Edit
	}{
		"none yet, and not allowed": {memory{dir + "config.toml": rendered}, EditDropin},
		"one that includes the built-in one": {
			memory{dir + "config.toml": rendered, dir + "config.toml.tmpl": []byte("{{ template \"base\" . }}\n")}, EditFull,
		},
	} {
		if _, p := Plan(c.files, e, specs, c.edit); p == nil || !strings.Contains(p.Message, `"`+dir+`config.toml.tmpl"`) {
			t.Errorf("%s: %v", name, p)
		}
	}
}
