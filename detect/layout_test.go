package detect

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

func TestLayouts(t *testing.T) {
	const process = "4242 (con) tainer d) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 12345 0 0\n"
	plugins := "/var/lib/kubelet/device-plugins/x"
	for name, test := range map[string]struct {
		files map[string]string
		want  accel.ContainerEngine
	}{
		"the daemon's own arguments, unit and start": {
			map[string]string{
				"/run/containerd/containerd.sock": "", "/proc/4242/comm": "containerd\n", "/proc/4242/stat": process,
				"/proc/4242/cmdline": "/usr/bin/containerd\x00--config\x00/etc/other/../containerd.toml\x00",
				"/proc/4242/cgroup":  "0::/system.slice/containerd.service\n",
				"/proc/4242/status":  status("0", "4242"),
				"/proc/stat":         "cpu 1 2 3\nbtime 1700000000\n",
			},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/containerd/containerd.sock", From: "socket",
				Config: "/etc/containerd.toml",
				Unit:   "containerd.service", PID: 4242, Started: time.Unix(1700000123, 450e6).UTC(),
			},
		},
		"a control group of version 1 below a unit": {
			map[string]string{
				"/run/k0s/containerd.sock": "", "/proc/7/comm": "containerd\n", "/proc/7/status": status("0", "7"),
				"/proc/7/cgroup": "12:pids:/system.slice/k0sworker.service/sub\n1:name=systemd:/system.slice/k0sworker.service/sub\n",
			},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/k0s/containerd.sock", From: "socket", Layout: "k0s",
				Config: "/etc/k0s/containerd.toml",
				Unit:   "k0sworker.service", PID: 7,
			},
		},
		"RKE2 has the socket of k3s": {
			map[string]string{"/run/k3s/containerd/containerd.sock": "", "/var/lib/rancher/rke2/agent/x": ""},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/k3s/containerd/containerd.sock", From: "socket",
				Layout: "rke2",
				Config: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
			},
		},
		"k3s with another runtime": {
			map[string]string{
				plugins:                        "",
				"/etc/rancher/k3s/config.yaml": "container-runtime-endpoint: /run/containerd/containerd.sock\n",
			},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/containerd/containerd.sock",
				From: "kubelet", Config: "/etc/containerd/config.toml",
			},
		},
		"a containerd of docker's own": {
			map[string]string{
				plugins: "", kubeletConfig: "containerRuntimeEndpoint: unix:///run/docker/containerd/containerd.sock\n",
			},
			accel.ContainerEngine{
				Name: "docker", Endpoint: "unix:///run/docker/containerd/containerd.sock", From: "kubelet",
				Config: "/etc/containerd/config.toml",
			},
		},
		"docker behind cri-dockerd": {
			map[string]string{
				plugins: "", kubeletConfig: "containerRuntimeEndpoint: unix:///var/run/cri-dockerd.sock\n",
			},
			accel.ContainerEngine{
				Name: "docker", Endpoint: "unix:///var/run/cri-dockerd.sock", From: "kubelet",
				Config: "/etc/docker/daemon.json", Through: "cri-dockerd",
			},
		},
		"what its command line and its environment say": {
			map[string]string{
				"/var/run/crio/crio.sock": "", "/proc/5/comm": "crio\n", "/proc/5/status": status("0", "5"),
				"/proc/5/cgroup": "0::/system.slice/crio.service\n",
				"/proc/5/cmdline": "crio\x00-c\x00/opt/crio.conf\x00--cdi-spec-dirs=/opt/a,/opt/b\x00" +
					"--cdi-spec-dirs\x00/opt/c/\x00--cdi-spec-dirs=relative\x00",
				"/proc/5/environ": "CONTAINER_CONFIG_DIR=/opt/crio.conf.d\x00CONTAINER_HOOKS_DIR=/opt/hooks\x00" +
					"CONTAINER_CDI_SPEC_DIRS=/no\x00",
			},
			accel.ContainerEngine{
				Name: "cri-o", Endpoint: "unix:///var/run/crio/crio.sock", From: "socket", Config: "/opt/crio.conf",
				ConfigDir: "/opt/crio.conf.d", SpecDirs: []string{"/opt/a", "/opt/b", "/opt/c"},
				HookDirs: []string{"/opt/hooks"}, Unit: "crio.service", PID: 5,
			},
		},
		"docker's command line": {
			map[string]string{
				"/var/run/docker.sock": "", "/proc/5/comm": "dockerd\n", "/proc/5/status": status("0", "5"),
				"/proc/5/cgroup": "0::/system.slice/docker.service\n",
				"/proc/5/cmdline": "dockerd\x00--cdi-spec-dir=/a,b\x00--cdi-spec-dir\x00/c\x00--feature=x\x00" +
					"--feature=cdi=false\x00",
			},
			accel.ContainerEngine{
				Name: "docker", Endpoint: "unix:///var/run/docker.sock", From: "socket", Config: "/etc/docker/daemon.json",
				SpecDirs: []string{"/a", "/c"}, CDI: "off", Unit: "docker.service", PID: 5,
			},
		},
		"the unit that would start it": {
			map[string]string{
				"/var/run/crio/crio.sock":                    "",
				"/usr/lib/systemd/system/crio.service":       "[Service]\nExecStart=/usr/bin/crio $OPTIONS\n",
				"/etc/systemd/system/crio.service.d/10.conf": "[Service]\nEnvironment='OPTIONS=--config /opt/crio.conf'\n",
			},
			accel.ContainerEngine{
				Name: "cri-o", Endpoint: "unix:///var/run/crio/crio.sock", From: "socket", Config: "/opt/crio.conf",
			},
		},
		"a decoy in a pod": {
			map[string]string{
				"/run/containerd/containerd.sock": "", "/proc/7/comm": "containerd\n", "/proc/7/status": status("0", "7"),
				"/proc/7/cgroup":  "0::/kubepods.slice/kubepods-besteffort.slice/x.scope\n",
				"/proc/7/cmdline": "containerd\x00--config=/tmp/evil.toml\x00",
			},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///run/containerd/containerd.sock", From: "socket",
				Config: "/etc/containerd/config.toml",
			},
		},
		"microk8s keeps arguments in a file": {
			map[string]string{
				plugins: "", "/proc/9/comm": "kubelite\n", "/proc/9/cmdline": "/snap/microk8s/1/kubelite\x00",
				"/proc/9/status": status("0", "9"), "/proc/9/cgroup": "0::/system.slice/snap.microk8s.daemon-kubelite.service\n",
				"/var/snap/microk8s/current/args/kubelet": "--container-runtime-endpoint=${SNAP_COMMON}/run/containerd.sock\n",
			},
			accel.ContainerEngine{
				Name: "containerd", Endpoint: "unix:///var/snap/microk8s/common/run/containerd.sock", From: "kubelet",
				Layout: "microk8s",
				Config: "/var/snap/microk8s/current/args/containerd.toml",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := Engine(machine(t, test.files))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", problems, diff)
			}
		})
	}
}

func TestEngineByFiles(t *testing.T) {
	for file, want := range map[string]string{
		"/etc/crio/crio.conf.d/10": "cri-o", "/etc/containerd/config.toml": "containerd",
		"/etc/docker/daemon.json":         "docker",
		"/etc/containers/containers.conf": "podman", "/var/lib/rancher/k3s/x": "containerd k3s",
		"/var/lib/rancher/rke2/x": "containerd rke2",
		"/etc/k0s/x":              "containerd k0s", "/var/snap/microk8s/current/args/x": "containerd microk8s",
		"/etc/hosts": "",
	} {
		e := EngineByFiles(machine(t, map[string]string{file: ""}))
		got := e.Name
		if e.Layout != "" {
			got += " " + e.Layout
		}
		if got != want || want != "" && (e.Config == "" || e.Endpoint == "" && want != "podman") {
			t.Errorf("with %s: %+v, want %q", file, e, want)
		}
	}
	const endpoint = "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"
	for file, text := range map[string]string{
		kubeletConfig:            "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
		kubeadmFlags:             "KUBELET_KUBEADM_ARGS=\"" + endpoint + " --x=y\"\n",
		"/etc/default/kubelet":   "KUBELET_EXTRA_ARGS=" + endpoint + "\n",
		"/etc/sysconfig/kubelet": "# x\nKUBELET_EXTRA_ARGS='" + endpoint + "'\n",
		"/etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet \\\n  # no\n  " + endpoint +
			"\n",
	} {
		if e := EngineByFiles(machine(t, map[string]string{"/etc/crio/crio.conf": "", file: text})); e.Name !=
			"containerd" {
			t.Errorf("with %s: %+v", file, e)
		}
	}
	// Arguments win over the file.
	if e := EngineByFiles(machine(t, map[string]string{
		kubeletConfig: "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n", "/etc/crio/crio.conf": "",
		"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=" + endpoint + "\n",
	})); e.Name != "containerd" {
		t.Errorf("with both: %+v", e)
	}
	if _, ok := EngineNamed(machine(t, nil), "rocket"); ok {
		t.Error("an unknown name is known")
	}
}

// TestEngineOrder: which socket is preferred, and how people name the container runtimes.
func TestEngineOrder(t *testing.T) {
	want := []string{
		"/var/run/crio/crio.sock", "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock",
		"/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock", "/run/cri-dockerd.sock",
		"/run/podman/podman.sock", "/var/run/docker.sock",
	}
	if diff := cmp.Diff(want, EngineSockets()); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
	want = []string{"cri-o", "containerd", "docker", "podman", "k3s", "rke2", "k0s", "microk8s"}
	if diff := cmp.Diff(want, EngineNames()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// The listener of the socket is known, whatever its name. This test program contains no containerd, so it has no
// version.
func TestDaemonByPeer(t *testing.T) {
	dir, err := os.MkdirTemp("", "peer") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	if pid := peer(h, filepath.Join(dir, "s")); pid != os.Getpid() {
		t.Errorf("daemon is %d, want %d", pid, os.Getpid())
	}
	// In a directory that everybody may write to, its socket may be anybody's.
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l1 := &look{Host: h}
	if p := l1.listener("unix://" + filepath.Join(dir, "s")); p.pid != 0 || len(l1.notes) != 1 ||
		!strings.Contains(l1.notes[0], "is not root's alone") {
		t.Errorf("a socket that anybody could have put there: %+v, %q", p, l1.notes)
	}
	if at := started(h, os.Getpid()); time.Since(at) > time.Hour || time.Since(at) < -time.Second {
		t.Errorf("this process started at %s", at)
	}
	if v := programVersion(h, exe(os.Getpid()), true); v != "" {
		t.Errorf("version of this test is %q", v)
	}
}
