package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

func TestDirs(t *testing.T) {
	for _, c := range []struct {
		name  string
		e     accel.ContainerEngine
		files memory
		want  []string
	}{
		{
			"nothing there yet",
			accel.ContainerEngine{Name: "cri-o"},
			nil,
			[]string{"/etc/crio", "/etc/crio/crio.conf.d"},
		},
		{
			"drop-ins",
			accel.ContainerEngine{Name: "cri-o"},
			memory{"/etc/crio/crio.conf": nil, "/etc/crio/crio.conf.d/a": nil},
			[]string{"/etc/crio", "/etc/crio/crio.conf.d"},
		},
		{
			"imports",
			accel.ContainerEngine{Name: "containerd"},
			memory{
				"/etc/containerd/config.toml": []byte(
					"version = 2\nimports = [\"/opt/c/*.toml\", \"conf.d/*.toml\"]"),
				"/etc/containerd/conf.d/a.toml": nil,
				"/opt/c/x":                      nil,
			},
			[]string{"/etc/containerd", "/etc/containerd/conf.d", "/opt/c"},
		},
		{
			"as far as it comes",
			accel.ContainerEngine{Name: "docker", Config: "/d/daemon.json"},
			memory{"/d/daemon.json": []byte("[")},
			[]string{"/d"},
		},
	} {
		if diff := cmp.Diff(c.want, Dirs(c.files, c.e)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
