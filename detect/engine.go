package detect

import (
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
	_, e, problems := kubeletAndEngine(h)
	return e, problems
}

// kubeletAndEngine answers both from one look at the processes. As in the kubelet, arguments override the
// configuration file's drop-ins, and drop-ins override the file.
func kubeletAndEngine(h *host.Host) (accel.Kubelet, accel.ContainerEngine, []string) {
	if st, err := h.Stat(kubeletPlugins); err != nil || !st.IsDir() {
		var problems []string
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Sprintf("cannot look for the kubelet: %v", err))
		}
		return accel.Kubelet{}, complete(h, engineBySocket(h, dockerSocket)), problems
	}
	k := accel.Kubelet{Present: true, Root: kubeletRoot}
	args, problems := kubeletArguments(h)
	if root := argument(args, "root-dir"); path.IsAbs(root) {
		k.Root = path.Clean(root)
	}
	endpoint := argument(args, "container-runtime-endpoint")
	if endpoint == "" {
		files := []string{argument(args, "config")}
		if files[0] == "" {
			files[0] = kubeletConfig
		}
		if dir := argument(args, "config-dir"); path.IsAbs(dir) {
			files = append(files, h.Glob(dir, "*.conf")...)
		}
		for _, name := range files {
			e, err := configuredEndpoint(h, name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				problems = append(problems, fmt.Sprintf("cannot read the kubelet's configuration: %v", err))
			}
			if e != "" {
				endpoint = e
			}
		}
	}
	for _, name := range rancherConfigs() {
		if endpoint == "" {
			endpoint = rancherEndpoint(h, name)
		}
	}
	if endpoint == "" || !printable(endpoint) {
		return k, complete(h, engineBySocket(h, "")), problems
	}
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	return k, complete(h, accel.ContainerEngine{Name: nameAt(endpoint), Endpoint: endpoint, From: "kubelet"}),
		problems
}

// kubeletArguments returns the arguments of the kubelet with the lowest PID. A nested kubelet (a cluster in
// containers) has a higher one, or does not count.
func kubeletArguments(h *host.Host) ([]string, []string) {
	pid, err := lowestPID(h, "kubelet", "kubelite")
	if err != nil {
		return nil, []string{fmt.Sprintf("cannot look for the kubelet's arguments: %v", err)}
	}
	if pid == 0 {
		return nil, nil
	}
	args, err := arguments(h, pid)
	if err != nil {
		return nil, []string{fmt.Sprintf("cannot read the kubelet's arguments: %v", err)}
	}
	if len(args) == 1 { // microk8s runs one program for all of Kubernetes; it reads its arguments from a file
		if text, err := h.ReadAttribute(microk8sArgs + "/kubelet"); err == nil {
			text = strings.ReplaceAll(text, "${SNAP_COMMON}", "/var/snap/microk8s/common")
			args = append(args, strings.Fields(text)...)
		}
	}
	return args, nil
}

// argument returns the last value of a flag, given as "--name=value" or "--name value", with two dashes or one.
func argument(args []string, name string) string {
	var value string
	for i, a := range args {
		a, dashed := strings.CutPrefix(a, "-")
		a = strings.TrimPrefix(a, "-")
		if !dashed {
			continue
		}
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			value = v
		} else if a == name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// configuredEndpoint reads containerRuntimeEndpoint from a KubeletConfiguration in YAML or JSON.
func configuredEndpoint(h *host.Host, name string) (string, error) {
	b, err := h.ReadBinary(name)
	if err != nil {
		return "", err
	}
	var c struct {
		Endpoint string `json:"containerRuntimeEndpoint"`
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		return "", fmt.Errorf("read %s: %s", name, clip(err.Error()))
	}
	return c.Endpoint, nil
}

// engineBySocket returns the first known container runtime whose socket exists. If the socket owner is given and
// exists, it takes the place of containerd's, because docker starts a containerd of its own that nobody else uses.
func engineBySocket(h *host.Host, owner string) accel.ContainerEngine {
	there := func(name string) bool {
		st, err := h.Stat(name)
		return err == nil && !st.IsDir() // a copy of a machine has a plain file
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
