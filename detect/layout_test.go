package detect

import (
	"net"
	"os"
	"path/filepath"
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
				"/run/k0s/containerd.sock": "", "/proc/7/comm": "containerd\n",
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
		"microk8s keeps arguments in a file": {
			map[string]string{
				plugins: "", "/proc/9/comm": "kubelite\n", "/proc/9/cmdline": "/snap/microk8s/1/kubelite\x00",
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
	for file, text := range map[string]string{
		kubeletConfig: "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
		kubeadmFlags:  "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --x=y\"\n",
	} {
		if e := EngineByFiles(machine(t, map[string]string{"/etc/crio/crio.conf": "", file: text})); e.Name !=
			"containerd" {
			t.Errorf("with %s: %+v", file, e)
		}
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

// The listener of the socket is the daemon, whatever its name. This test program contains no containerd, so it has no
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
	if pid := daemon(h, "unix://"+filepath.Join(dir, "s"), "containerd"); pid != os.Getpid() {
		t.Errorf("daemon is %d, want %d", pid, os.Getpid())
	}
	if at := started(h, os.Getpid()); time.Since(at) > time.Hour || time.Since(at) < -time.Second {
		t.Errorf("this process started at %s", at)
	}
	if v := programVersion(h, exe(os.Getpid()), true); v != "" {
		t.Errorf("version of this test is %q", v)
	}
}
