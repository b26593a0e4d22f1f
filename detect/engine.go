package detect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Engine reports which container runtime the kubelet uses, or which one is installed if there is no kubelet, and what
// could not be read.
func Engine(h *host.Host) (accel.ContainerEngine, []string) {
	l := &look{Host: h}
	_, e := l.kubeletAndEngine()
	return e, l.problems
}

// kubeletAndEngine answers both from one look at the processes.
func (l *look) kubeletAndEngine() (accel.Kubelet, accel.ContainerEngine) {
	if st, err := l.Stat(kubeletPlugins); err != nil || !st.IsDir() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.problem("cannot look for the kubelet: %v", err)
		}
		return accel.Kubelet{}, l.complete(l.engineBySocket(dockerSocket))
	}
	if !l.trusted(kubeletPlugins) {
		l.problem("cannot use the kubelet: %q is not root's alone", kubeletPlugins)
		return accel.Kubelet{}, l.complete(l.engineBySocket(dockerSocket))
	}
	k := accel.Kubelet{Present: true, Root: kubeletRoot}
	args := l.kubeletArguments()
	if root := argument(args, "root-dir"); usable(root) && l.trusted(root) {
		k.Root = path.Clean(root)
	}
	settings := l.kubeletSettings(args)
	k.TopologyPolicy, k.TopologyScope = settings.Policy, settings.Scope
	endpoint := settings.Endpoint
	for _, name := range rancherConfigs() {
		if endpoint == "" {
			endpoint = rancherEndpoint(l.Host, name)
		}
	}
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	socket := strings.TrimPrefix(endpoint, "unix://")
	if endpoint == "" || !printable(endpoint) || len(endpoint) > maxWord || path.IsAbs(socket) && !l.trusted(socket) {
		return k, l.complete(l.engineBySocket(""))
	}
	return k, l.complete(accel.ContainerEngine{Name: nameAt(endpoint), Endpoint: endpoint, From: "kubelet"})
}

// kubeletSettings are those settings of a kubelet that matter here.
type kubeletSettings struct {
	Endpoint string `json:"containerRuntimeEndpoint"`
	Policy   string `json:"topologyManagerPolicy"`
	Scope    string `json:"topologyManagerScope"`
}

// kubeletSettings returns the settings in the kubelet's arguments and files. Those of the topology manager are the
// kubelet's defaults if there is a file, and nothing says otherwise.
func (l *look) kubeletSettings(args []string) (all kubeletSettings) {
	files := []string{cmp.Or(argument(args, "config"), kubeletConfig)}
	if dir := argument(args, "config-dir"); usable(dir) {
		files = append(files, l.Glob(dir, "*.conf")...)
	}
	for _, name := range files {
		s, err := settingsIn(l.Host, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.problem("cannot read the kubelet's configuration: %v", err)
		}
		if err == nil {
			all.Policy, all.Scope = cmp.Or(s.Policy, all.Policy, "none"), cmp.Or(s.Scope, all.Scope, "container")
		}
		all.Endpoint = cmp.Or(s.Endpoint, all.Endpoint)
	}
	all.Endpoint = cmp.Or(argument(args, "container-runtime-endpoint"), all.Endpoint)
	all.Policy = word63(cmp.Or(argument(args, "topology-manager-policy"), all.Policy))
	all.Scope = word63(cmp.Or(argument(args, "topology-manager-scope"), all.Scope))
	return all
}

// word63 returns a setting that looks like one.
func word63(text string) string {
	if len(text) > 63 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return ""
	}
	return text
}

// kubeletArguments returns the arguments of the host's kubelet. If none runs, they are those with which systemd would
// start it.
func (l *look) kubeletArguments() []string {
	p, err := l.named("kubelet", "kubelite")
	if err != nil {
		l.problem("cannot look for the kubelet's arguments: %v", err)
	}
	if p.pid == 0 {
		return kubeletOfUnit(l.Host)
	}
	c, err := commandOf(l.Host, p.pid)
	if err != nil {
		l.problem("cannot read the kubelet's arguments: %v", err)
	}
	if len(c.args) == 1 { // microk8s runs one program for all of Kubernetes; it reads its arguments from a file
		if text, err := l.ReadAttribute(microk8sArgs + "/kubelet"); err == nil {
			text = strings.ReplaceAll(text, "${SNAP_COMMON}", "/var/snap/microk8s/common")
			c.args = append(c.args, strings.Fields(text)...)
		}
	}
	return c.args
}

// kubeletOfUnit returns the arguments with which systemd would start the kubelet. Without a unit they are those in the
// files of environment that kubeadm's unit reads: kubeadm's own, and an administrator's.
func kubeletOfUnit(h *host.Host) []string {
	if c, ok := unitCommand(h, "kubelet.service"); ok {
		return c.args
	}
	var args []string
	for _, name := range []string{kubeadmFlags, "/etc/default/kubelet", "/etc/sysconfig/kubelet"} {
		if text, err := h.ReadAttribute(name); err == nil {
			env := assignments(text)
			args = append(args, fields(env["KUBELET_KUBEADM_ARGS"])...)
			args = append(args, fields(env["KUBELET_EXTRA_ARGS"])...)
		}
	}
	return args
}

// settingsIn reads one file of a kubelet's settings.
func settingsIn(h *host.Host, name string) (s kubeletSettings, err error) {
	b, err := h.ReadBinary(name)
	if err != nil {
		return s, err
	}
	if err := yaml.Unmarshal(b, &s); err != nil {
		return kubeletSettings{}, fmt.Errorf("read %s: %s", name, clip(err.Error()))
	}
	return s, nil
}

// engineBySocket returns the first known container runtime whose socket exists. If the socket owner is given and
// exists, it takes the place of containerd's, because docker starts a containerd of its own that nobody else uses.
func (l *look) engineBySocket(owner string) accel.ContainerEngine {
	there := func(name string) bool {
		st, err := l.Stat(name)
		return err == nil && !st.IsDir() && l.trusted(name) // a copy of a machine has a plain file
	}
	for _, name := range EngineSockets() {
		if name == containerdSocket && owner != "" && there(owner) {
			name = owner
		}
		if there(name) {
			return accel.ContainerEngine{Name: nameAt(name), Endpoint: "unix://" + name, From: "socket"}
		}
	}
	return accel.ContainerEngine{}
}
