package engine

import (
	"path"
	"reflect"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestReader: a Reader says at each moment what Read says, and parses only after a change.
func TestReader(t *testing.T) {
	for name, of := range map[string]struct {
		e     accel.ContainerEngine
		files memory
		more  string
	}{
		"cri-o": {
			accel.ContainerEngine{Name: "cri-o"},
			memory{
				"/etc/crio/crio.conf":           []byte("[crio.runtime]\nlog_level = \"info\"\n"),
				"/etc/crio/crio.conf.d/10.conf": []byte("[crio.runtime]\ncdi_spec_dirs = [\"/etc/cdi\"]\n"),
			},
			"/etc/crio/crio.conf.d/20.conf",
		},
		"containerd": {
			accel.ContainerEngine{Name: "containerd", Version: "2.1.0", Config: "/etc/containerd/config.toml"},
			memory{
				"/etc/containerd/config.toml": []byte("version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"),
				"/etc/containerd/conf.d/a.toml": []byte(
					"version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\n"),
			},
			"/etc/containerd/conf.d/b.toml",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := closed{memory: of.files}
			r := NewReader(&files)
			e := of.e
			check := func(what string, parsed bool) {
				t.Helper()
				var before *sight
				if len(r.seen) > 0 {
					before = &r.seen[0]
				}
				got, p := r.Read(e)
				want, wantP := Read(&files, e)
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(p, wantP) {
					t.Errorf("%s: %+v, %v; Read says %+v, %v", what, got, p, want, wantP)
				}
				if (&r.seen[0] != before) != parsed {
					t.Errorf("%s: parsed again: %t", what, !parsed)
				}
			}
			check("at first", true)
			check("nothing changed", false)
			for file, old := range of.files {
				files.memory[file] = append([]byte("# a comment\n"), old...)
				check("edited "+file, true)
				files.memory[file] = []byte("not [ TOML")
				check("broken "+file, true)
				files.name = file
				check("shut "+file, true)
				files.name = ""
				delete(files.memory, file)
				check("removed "+file, true)
				files.memory[file] = old
				check("back "+file, true)
			}
			files.memory[of.more] = []byte("")
			check("one more", true)
			files.memory[path.Join(of.more, "below")] = []byte("")
			delete(files.memory, of.more)
			check("a directory in its place", true)
			e.Started = e.Started.Add(1)
			check("another daemon", true)
			check("nothing changed", false)
		})
	}
}
