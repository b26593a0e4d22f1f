package detect

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// microk8sArgs is where microk8s keeps the arguments of what it starts.
const microk8sArgs = "/var/snap/microk8s/current/args"

// kubeadmFlags is where kubeadm puts the kubelet's arguments.
const kubeadmFlags = "/var/lib/kubelet/kubeadm-flags.env"

// layout says where the files of one container runtime are, by its name or by the distribution that ships it.
type layout struct {
	name, distribution string
	// socket is a substring of its endpoint; sockets are the paths at which it may listen.
	socket  string
	sockets []string
	// rank is its place in EngineSockets and EngineNames, lowest first; equal ones are in the order of the table.
	rank int
	// starts is the name of another runtime that it starts for itself, with a socket below its own directory.
	starts string
	// config is its top-level configuration file; programs are its possible paths; comm is the name of its process.
	config   string
	programs []string
	comm     string
	// there lists paths that show that it is installed even if it does not run.
	there []string
}

// layouts returns the known layouts, the more specific first. RKE2 uses the same socket as k3s.
func layouts() []layout {
	rancher := func(name string, rank int) layout {
		dir := "/var/lib/rancher/" + name
		return layout{
			name: "containerd", distribution: name, rank: rank, socket: "/run/k3s/",
			sockets: []string{"/run/k3s/containerd/containerd.sock"}, config: dir + "/agent/etc/containerd/config.toml",
			programs: []string{dir + "/data/current/bin/containerd", dir + "/bin/containerd"},
			comm:     "containerd", there: []string{dir},
		}
	}
	return []layout{
		rancher("rke2", 4),
		rancher("k3s", 3),
		{
			name: "containerd", distribution: "k0s", rank: 5, socket: "/k0s/",
			sockets: []string{"/run/k0s/containerd.sock"}, config: "/etc/k0s/containerd.toml",
			programs: []string{"/var/lib/k0s/bin/containerd"}, comm: "containerd",
			there: []string{"/etc/k0s", "/var/lib/k0s"},
		},
		{
			name: "containerd", distribution: "microk8s", rank: 6, socket: "/microk8s/",
			sockets: []string{"/var/snap/microk8s/common/run/containerd.sock"}, config: microk8sArgs + "/containerd.toml",
			programs: []string{"/snap/microk8s/current/bin/containerd"}, comm: "containerd",
			there: []string{microk8sArgs},
		},
		{
			name: "cri-o", rank: 1, socket: "crio", sockets: []string{"/var/run/crio/crio.sock"},
			config:   "/etc/crio/crio.conf",
			programs: []string{"/usr/bin/crio", "/usr/local/bin/crio"}, comm: "crio",
			there: []string{"/etc/crio"},
		},
		{
			name: "containerd", rank: 2, socket: "containerd", sockets: []string{containerdSocket},
			config:   "/etc/containerd/config.toml",
			programs: []string{"/usr/bin/containerd", "/usr/local/bin/containerd"}, comm: "containerd",
			there: []string{"/etc/containerd"},
		},
		{
			name: "docker", rank: 7, socket: "docker", sockets: []string{"/run/cri-dockerd.sock", dockerSocket},
			starts: "containerd", config: "/etc/docker/daemon.json",
			programs: []string{"/usr/bin/dockerd", "/usr/local/bin/dockerd"}, comm: "dockerd",
			there: []string{"/etc/docker"},
		},
		{
			name: "podman", rank: 8, socket: "podman", sockets: []string{"/run/podman/podman.sock"},
			config:   "/etc/containers/containers.conf",
			programs: []string{"/usr/bin/podman"}, there: []string{
				"/etc/containers/containers.conf",
				"/etc/containers/containers.conf.d",
			},
		},
	}
}

// ranked returns the layouts by rank.
func ranked() []layout {
	all := layouts()
	slices.SortStableFunc(all, func(a, b layout) int { return a.rank - b.rank })
	return all
}

// EngineSockets returns the sockets of known container runtimes, in order of preference if no kubelet names one: the
// first socket of each, then the second ones, such as docker's, which does not speak the CRI.
func EngineSockets() []string {
	var first, others []string
	for _, l := range ranked() {
		first, others = append(first, l.sockets[0]), append(others, l.sockets[1:]...)
	}
	return append(slices.Compact(first), others...) // RKE2 uses that of k3s
}

// EngineNames returns the names that EngineNamed knows: those of container runtimes, then those of distributions.
func EngineNames() []string {
	var names, distributions []string
	for _, l := range ranked() {
		if l.distribution == "" {
			names = append(names, l.name)
		} else {
			distributions = append(distributions, l.distribution)
		}
	}
	return append(names, distributions...)
}

// nameAt returns the name of the container runtime at an endpoint, or "" if it is unknown. A runtime that
// another one starts for itself gets the name of that one: /run/docker/containerd/containerd.sock is docker's.
func nameAt(endpoint string) string {
	name := ""
	for _, l := range layouts() {
		if l.distribution == "" && strings.Contains(endpoint, l.socket) && (name == "" || l.starts == name) {
			name = l.name
		}
	}
	return name
}

// installed reports whether anything of the layout exists.
func (l layout) installed(h *host.Host) bool {
	return slices.ContainsFunc(slices.Concat(l.there, l.programs), h.Exists)
}

// layoutOf returns the layout of the container runtime at an endpoint.
func layoutOf(h *host.Host, endpoint string) (layout, bool) {
	for _, l := range layouts() {
		if strings.Contains(endpoint, l.socket) && (l.distribution != "rke2" || l.installed(h)) {
			return l, true
		}
	}
	return layout{}, false
}

// EngineNamed returns the container runtime with a name, or the one that a distribution ships ("k3s", "rke2", "k0s",
// "microk8s"), whether it runs or not. It returns false if the name is unknown.
func EngineNamed(h *host.Host, name string) (accel.ContainerEngine, bool) {
	for _, l := range layouts() {
		if l.distribution == name || l.distribution == "" && l.name == name {
			return l.engine(h), true
		}
	}
	return accel.ContainerEngine{}, false
}

// EngineByFiles returns the container runtime whose files are on the host, for a host on which nothing runs; it is
// empty if there is none. The runtime that the kubelet's files name comes first.
func EngineByFiles(h *host.Host) accel.ContainerEngine {
	endpoint, err := configuredEndpoint(h, kubeletConfig)
	if err != nil || endpoint == "" {
		if flags, err := h.ReadAttribute(kubeadmFlags); err == nil {
			endpoint = argument(strings.FieldsFunc(flags, func(r rune) bool { return unicode.IsSpace(r) || r == '"' }),
				"container-runtime-endpoint")
		}
	}
	if l, ok := layoutOf(h, endpoint); ok && endpoint != "" {
		return l.engine(h)
	}
	for _, l := range layouts() {
		if l.installed(h) {
			return l.engine(h)
		}
	}
	return accel.ContainerEngine{}
}

func (l layout) engine(h *host.Host) accel.ContainerEngine {
	e := accel.ContainerEngine{Name: l.name, Layout: l.distribution, From: "files"}
	for _, socket := range EngineSockets() {
		if found, ok := layoutOf(h, socket); ok && found.config == l.config {
			e.Endpoint = "unix://" + socket
			break
		}
	}
	l.fill(h, &e)
	return e
}

// complete fills in the configuration, version, unit and process of a detected container runtime.
func complete(h *host.Host, e accel.ContainerEngine) accel.ContainerEngine {
	l, ok := layoutOf(h, e.Endpoint)
	if !ok {
		return e
	}
	if e.Name == "" {
		e.Name = l.name
	}
	e.Layout = l.distribution
	l.fill(h, &e)
	return e
}

func (l layout) fill(h *host.Host, e *accel.ContainerEngine) {
	e.Config = l.config
	var program string
	if e.PID = daemon(h, e.Endpoint, l.comm); e.PID > 0 {
		e.Started, e.Unit = started(h, e.PID), unit(h, e.PID)
		program = exe(e.PID)
		if args, err := arguments(h, e.PID); err == nil {
			for _, flag := range []string{"config", "c", "config-file"} {
				if c := argument(args, flag); path.IsAbs(c) {
					e.Config = path.Clean(c)
				}
			}
		}
		e.Version = programVersion(h, program, l.name == "containerd")
	}
	for _, p := range l.programs {
		if e.Version == "" {
			e.Version = programVersion(h, p, l.name == "containerd")
		}
	}
}

// rancherConfigs returns the configuration files of k3s and RKE2, which may hold the kubelet's endpoint.
func rancherConfigs() []string {
	return []string{"/etc/rancher/k3s/config.yaml", "/etc/rancher/rke2/config.yaml"}
}

// rancherEndpoint returns the endpoint in such a file, or "" if it has none, is absent or cannot be read.
func rancherEndpoint(h *host.Host, name string) string {
	b, err := h.ReadBinary(name)
	if err != nil {
		return ""
	}
	var c struct {
		Endpoint string `json:"container-runtime-endpoint"`
	}
	if yaml.Unmarshal(b, &c) != nil {
		return ""
	}
	return c.Endpoint
}
