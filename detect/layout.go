package detect

import (
	"cmp"
	"slices"
	"strings"

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
	// unit is the systemd service that runs it, and packages are those of Debian and Ubuntu that may contain its
	// program; empty for a runtime that a distribution of Kubernetes starts itself.
	unit     string
	packages []string
	flags    flags
	// there lists paths that show that it is installed even if it does not run.
	there []string
}

// flags are the settings of a daemon's command line that win over its files.
type flags struct {
	config, dropins, specs, hooks setting
	features                      setting // named switches, as "name" or "name=false"
}

// layouts returns the known layouts, the more specific first. RKE2 uses the same socket as k3s.
func layouts() []layout {
	ofContainerd := flags{config: setting{flags: []string{"config", "c"}}}
	rancher := func(name string, rank int) layout {
		dir := "/var/lib/rancher/" + name
		return layout{
			name: "containerd", distribution: name, rank: rank, socket: "/run/k3s/",
			sockets: []string{"/run/k3s/containerd/containerd.sock"}, config: dir + "/agent/etc/containerd/config.toml",
			programs: []string{dir + "/data/current/bin/containerd", dir + "/bin/containerd"},
			comm:     "containerd", flags: ofContainerd, there: []string{dir},
		}
	}
	return []layout{
		rancher("rke2", 4),
		rancher("k3s", 3),
		{
			name: "containerd", distribution: "k0s", rank: 5, socket: "/k0s/",
			sockets: []string{"/run/k0s/containerd.sock"}, config: "/etc/k0s/containerd.toml",
			programs: []string{"/var/lib/k0s/bin/containerd"}, comm: "containerd", flags: ofContainerd,
			there: []string{"/etc/k0s", "/var/lib/k0s"},
		},
		{
			name: "containerd", distribution: "microk8s", rank: 6, socket: "/microk8s/",
			sockets: []string{"/var/snap/microk8s/common/run/containerd.sock"}, config: microk8sArgs + "/containerd.toml",
			programs: []string{"/snap/microk8s/current/bin/containerd"}, comm: "containerd", flags: ofContainerd,
			there: []string{microk8sArgs},
		},
		{
			name: "cri-o", rank: 1, socket: "crio", sockets: []string{"/var/run/crio/crio.sock"},
			config:   "/etc/crio/crio.conf",
			programs: []string{"/usr/bin/crio", "/usr/local/bin/crio"}, comm: "crio", unit: "crio.service",
			flags: flags{ // cri-o/cri-o, internal/criocli/criocli.go
				config:  setting{[]string{"config", "c"}, "CONTAINER_CONFIG"},
				dropins: setting{[]string{"config-dir", "d"}, "CONTAINER_CONFIG_DIR"},
				specs:   setting{[]string{"cdi-spec-dirs"}, "CONTAINER_CDI_SPEC_DIRS"},
				hooks:   setting{[]string{"hooks-dir"}, "CONTAINER_HOOKS_DIR"},
			},
			there: []string{"/etc/crio"},
		},
		{
			name: "containerd", rank: 2, socket: "containerd", sockets: []string{containerdSocket},
			config:   "/etc/containerd/config.toml",
			programs: []string{"/usr/bin/containerd", "/usr/local/bin/containerd"}, comm: "containerd",
			unit: "containerd.service", flags: ofContainerd,
			packages: []string{"containerd", "containerd.io", "containerd-app", "moby-containerd"},
			there:    []string{"/etc/containerd"},
		},
		{
			name: "docker", rank: 7, socket: "docker", sockets: []string{"/run/cri-dockerd.sock", dockerSocket},
			starts: "containerd", config: "/etc/docker/daemon.json",
			programs: []string{"/usr/bin/dockerd", "/usr/local/bin/dockerd"}, comm: "dockerd",
			unit: "docker.service", packages: []string{"docker.io", "docker-ce", "docker.io-app", "moby-engine"},
			flags: flags{ // moby/moby, cmd/dockerd/config.go
				config:   setting{flags: []string{"config-file"}},
				specs:    setting{flags: []string{"cdi-spec-dir"}},
				features: setting{flags: []string{"feature"}},
			},
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
	endpoint := (&look{Host: h}).kubeletSettings(kubeletOfUnit(h)).Endpoint
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
	(&look{Host: h}).fill(l, &e)
	return e
}

// complete fills in the configuration, version, unit and process of a detected container runtime. If its endpoint does
// not tell which one it is, the program that listens there does.
func (l *look) complete(e accel.ContainerEngine) accel.ContainerEngine {
	found, ok := layoutOf(l.Host, e.Endpoint)
	if !ok {
		found, ok = layoutOfProgram(l.comm(l.listener(e.Endpoint).pid))
	}
	if !ok {
		return e
	}
	if e.Name == "" {
		e.Name = found.name
	}
	e.Layout = found.distribution
	l.fill(found, &e)
	return e
}

// comm returns the name of a process; empty if it has none.
func (l *look) comm(pid int) string {
	if pid == 0 {
		return ""
	}
	text, _ := l.ReadAttribute(processDir(pid) + "/comm") // it may have ended
	return text
}

// layoutOfProgram returns the standalone container runtime of a program with a name.
func layoutOfProgram(comm string) (layout, bool) {
	for _, l := range layouts() {
		if l.distribution == "" && comm != "" && (l.comm == comm || l.name == "docker" && comm == shim) {
			return l, true
		}
	}
	return layout{}, false
}

// shim is the name of the program between a kubelet and docker.
const shim = "cri-dockerd"

// fill adds what the running daemon, or the unit that would start it, and its program tell.
func (l *look) fill(of layout, e *accel.ContainerEngine) {
	e.Config = of.config
	p := l.daemon(e.Endpoint, of.comm)
	var c command
	if p.pid > 0 {
		e.PID, e.Started, e.Unit = p.pid, started(l.Host, p.pid), p.unit
		e.Version = programVersion(l.Host, exe(p.pid), of.name == "containerd")
		var err error
		if c, err = commandOf(l.Host, p.pid); err != nil {
			l.problem("cannot read the arguments of %s: %v", of.comm, err)
		}
	} else if of.unit != "" {
		c, _ = unitCommand(l.Host, of.unit)
	}
	of.settings(c, e)
	if of.name == "docker" {
		l.through(e)
	}
	for _, file := range of.programs {
		if e.Version == "" {
			e.Version = programVersion(l.Host, file, of.name == "containerd")
		}
		if p.pid == 0 && !strings.Contains(e.Version, ".") && l.Exists(file) {
			e.Version = cmp.Or(packageVersion(l.Host, file, of.packages), e.Version)
		}
	}
}

// settings takes over what a daemon's command line and environment say.
func (l layout) settings(c command, e *accel.ContainerEngine) {
	e.Config = cmp.Or(c.file(l.flags.config), e.Config)
	e.ConfigDir = c.file(l.flags.dropins)
	e.SpecDirs, e.HookDirs = c.dirs(l.flags.specs), c.dirs(l.flags.hooks)
	features, _ := c.all(l.flags.features)
	for _, f := range features {
		switch name, value, given := strings.Cut(f, "="); {
		case name != "cdi":
		case !given || value == "true":
			e.CDI = "on"
		default:
			e.CDI = "off"
		}
	}
}

// through finds the program between the kubelet and docker, with its version if the program has one.
func (l *look) through(e *accel.ContainerEngine) {
	var p process
	switch {
	case strings.Contains(e.Endpoint, shim):
		p, _ = l.named(shim) // connecting to its socket could start it
	case strings.Contains(e.Endpoint, "docker"):
		return
	default:
		if p = l.listener(e.Endpoint); l.comm(p.pid) != shim {
			return
		}
	}
	e.Through = shim
	if p.pid > 0 {
		e.ThroughStarted = started(l.Host, p.pid)
		e.Through = strings.TrimSpace(shim + " " + programVersion(l.Host, exe(p.pid), false))
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
