// Package seed renders the files that make a plain Debian disk a guest of the test bed: network, keys, unit files, the
// container runtime's and the kubelet's configuration. The initramfs lays them over the disk at the first boot. The
// package holds no state and touches nothing; the files themselves are in its folder, to be read as what they are.
package seed

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"text/template"

	"github.com/acceld/acceld/test/vm/initramfs"
)

// Kind is how much of a machine a guest is.
type Kind string

// The kinds of guest.
const (
	// Light is a busybox init over a read-only disk with a layer in memory.
	Light Kind = "light"
	// Host is systemd, with a container runtime installed but not started.
	Host Kind = "host"
	// Node is systemd with a container runtime and kubelet.
	Node Kind = "node"
)

// Engine is the container runtime of a guest; the other one is not installed.
type Engine string

// The engines, named as their unit and program.
const (
	CRIO       Engine = "crio"
	Containerd Engine = "containerd"
)

// Programs are what an engine needs in the PATH, beside runc.
func (e Engine) Programs() []string {
	if e == Containerd {
		return []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	}
	return []string{"crio", "pinns"}
}

// socket is where the engine serves the CRI by default.
func (e Engine) socket() string {
	if e == Containerd {
		return "/run/containerd/containerd.sock"
	}
	return "/var/run/crio/crio.sock"
}

// Member is the place of a node in its cluster.
type Member struct{ Hostname, IP, PodNet string }

// Owns tells whether an address is the node's or one of its pods'.
func (m Member) Owns(address string) bool {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	pods, err := netip.ParsePrefix(m.PodNet)
	return address == m.IP || (err == nil && pods.Contains(ip))
}

// Members are the nodes that a cluster has credentials for. Guests that are no node are the first. Each is alone in a
// network of QEMU, so only the API server's way to them needs different addresses.
func Members() []Member {
	return []Member{
		{Hostname: "bed-node", IP: "10.0.2.15", PodNet: "10.85.0.0/16"},
		{Hostname: "bed-node-2", IP: "10.0.2.16", PodNet: "10.86.0.0/16"},
	}
}

// The addresses in a guest. QEMU's user-mode network gives them a meaning: the first is a way in only, the second the
// way out to the host's loopback, which the guest sees as HostIP.
const (
	ManagementIP  = "10.0.9.15"
	ManagementNet = "10.0.9.0/24"
	ManagementMAC = "52:54:00:00:09:0f"
	ClusterNet    = "10.0.2.0/24"
	ClusterMAC    = "52:54:00:00:02:0f"
	HostIP        = "10.0.2.2"
	ServiceIP     = "10.96.0.1"
	GuestdPort    = 7022
	SSHPort       = 22
)

// Values is what the files need to know.
type Values struct {
	Kind      Kind
	Engine    Engine
	Member    Member
	MachineID string
	// HostKey and AuthorizedKey are in OpenSSH's formats.
	HostKey, AuthorizedKey string
	// Registry and APIServer are host:port as the guest sees them.
	Registry, APIServer string
	// Programs are linked into the PATH.
	Programs []string
	// Files are added as they are, by path: the kubelet's credentials.
	Files map[string]string
}

//go:embed init all:files
var content embed.FS

// Init is the script that is process 1 in the initramfs.
func Init() ([]byte, error) {
	script, err := content.ReadFile("init")
	if err != nil {
		return nil, fmt.Errorf("cannot read the embedded init: %w", err)
	}
	return script, nil
}

// Render returns the files, by absolute path in the guest.
func Render(v Values) (map[string]initramfs.File, error) {
	files := map[string]initramfs.File{}
	dirs := map[Kind][]string{Light: {"all", "light"}, Host: {"all", "full"}, Node: {"all", "full", "node"}}
	for _, dir := range append(dirs[v.Kind], string(v.Engine)) {
		sub, err := fs.Sub(content, "files/"+dir)
		if err != nil {
			return nil, fmt.Errorf("cannot open embedded files %q: %w", dir, err)
		}
		if err := render(sub, v, files); err != nil {
			return nil, err
		}
	}
	for path, text := range v.Files {
		files[path] = initramfs.File{Mode: 0o600, Content: []byte(text)}
	}
	files["/etc/bed/host_key"] = initramfs.File{Mode: 0o600, Content: []byte(v.HostKey)}
	files["/etc/bed/authorized_keys"] = initramfs.File{Mode: 0o600, Content: []byte(v.AuthorizedKey)}
	files["/root"] = initramfs.File{Mode: 0o700, Dir: true}
	files["/root/.ssh"] = initramfs.File{Mode: 0o700, Dir: true}
	files["/root/.ssh/authorized_keys"] = initramfs.File{Mode: 0o600, Content: []byte(v.AuthorizedKey)}
	for _, p := range v.Programs {
		files["/usr/local/bin/"+p] = initramfs.File{Link: "/opt/bed/bin/" + p}
	}
	for path, target := range links(v.Kind, v.Engine) {
		files[path] = initramfs.File{Link: target}
	}
	return files, nil
}

func render(dir fs.FS, v Values, into map[string]initramfs.File) error {
	data := map[string]string{
		"Hostname": v.Member.Hostname, "GuestIP": v.Member.IP, "PodNet": v.Member.PodNet, "HostIP": HostIP,
		"ServiceIP": ServiceIP, "ClusterMAC": ClusterMAC,
		"ManagementIP": ManagementIP, "ManagementMAC": ManagementMAC,
		"MachineID": v.MachineID, "Registry": v.Registry, "APIServer": v.APIServer,
		"Engine": string(v.Engine), "EngineSocket": v.Engine.socket(), "Snapshotter": "overlayfs",
		"CgroupManager": "systemd", "ConmonCgroup": "", "SystemdCgroup": "true",
	}
	if v.Kind == Light {
		data["CgroupManager"], data["ConmonCgroup"], data["SystemdCgroup"] = "cgroupfs", "pod", "false"
		data["Snapshotter"] = "native" // the root is an overlay already
	}
	return fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(dir, path)
		if err != nil {
			return fmt.Errorf("cannot read embedded file: %w", err)
		}
		t, err := template.New(path).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return fmt.Errorf("cannot parse embedded file: %w", err)
		}
		var out bytes.Buffer
		if err := t.Execute(&out, data); err != nil {
			return fmt.Errorf("cannot render embedded file: %w", err)
		}
		mode := uint32(0o644)
		if bytes.HasPrefix(text, []byte("#!")) {
			mode = 0o755
		}
		into["/"+path] = initramfs.File{Mode: mode, Content: out.Bytes()}
		return nil
	})
}

// links are the symbolic links of a kind of guest: units switched on, and units switched off that only take time at
// boot.
func links(kind Kind, engine Engine) map[string]string {
	if kind == Light {
		return map[string]string{"/usr/lib/bed/init": "/bin/busybox"}
	}
	const units = "/etc/systemd/system/"
	wants := func(target, unit string) (path string) { return units + target + ".wants/" + unit }
	all := map[string]string{
		wants("sysinit.target", "guestd.service"):              units + "guestd.service",
		wants("multi-user.target", "systemd-networkd.service"): "/lib/systemd/system/systemd-networkd.service",
		wants("sockets.target", "systemd-networkd.socket"):     "/lib/systemd/system/systemd-networkd.socket",
		units + "default.target":                               "/lib/systemd/system/multi-user.target",
	}
	off := "apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer " +
		"dpkg-db-backup.timer man-db.timer getty@tty1.service serial-getty@ttyS0.service getty-static.service " +
		"systemd-networkd-wait-online.service systemd-pcrphase.service systemd-pcrphase-sysinit.service " +
		"console-getty.service systemd-firstboot.service systemd-update-utmp.service systemd-update-utmp-runlevel.service"
	for _, unit := range strings.Fields(off) {
		all[units+unit] = "/dev/null"
	}
	if kind == Node {
		all[wants("multi-user.target", string(engine)+".service")] = units + string(engine) + ".service"
		all[wants("multi-user.target", "kubelet.service")] = units + "kubelet.service"
	}
	return all
}
