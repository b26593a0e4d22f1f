package accel

import (
	"strings"
	"time"
)

// Facts are what is on the host, as package detect read it. Every field may be empty on an incomplete host; Problems
// then says what could not be read.
type Facts struct {
	Kernel  Kernel          `json:"kernel"`
	OS      OS              `json:"os"`
	PCI     []PCIDevice     `json:"pci,omitempty"`
	Modules []LoadedModule  `json:"modules,omitempty"`
	Runtime ContainerEngine `json:"runtime"`
	Kubelet Kubelet         `json:"kubelet"`
	// Cluster is the Kubernetes cluster; zero on a host without one. It is all that does not come from the host itself.
	Cluster Cluster `json:"cluster,omitzero"`
	// Inventory is what the host is made of; zero while nobody has read it, and of a copy of a machine.
	Inventory Inventory `json:"inventory,omitzero"`
	// Network are the PCI functions of network controllers, ordered by address.
	Network []NetworkFunction `json:"network,omitempty"`
	// Problems are sentences about what could not be read, each naming the file.
	Problems []string `json:"problems,omitempty"`
}

// Kernel is the running kernel. Release is not unique (a distribution rebuilds a release), BuildID and Version are.
type Kernel struct {
	Release string `json:"release"`           // uname -r
	Version string `json:"version"`           // uname -v
	Arch    string `json:"arch"`              // uname -m, such as "x86_64"
	BuildID string `json:"buildID,omitempty"` // hex, from /sys/kernel/notes
	BootID  string `json:"bootID,omitempty"`  // /proc/sys/kernel/random/boot_id
	Taint   uint64 `json:"taint"`             // /proc/sys/kernel/tainted, a bit set
	// Lockdown is "none", "integrity" or "confidentiality"; empty when the kernel has no lockdown.
	Lockdown string `json:"lockdown,omitempty"`
	// SecureBoot is true when the firmware's SecureBoot variable is set.
	SecureBoot bool `json:"secureBoot"`
	// SigEnforce is /sys/module/module/parameters/sig_enforce: unsigned modules are refused.
	SigEnforce bool `json:"sigEnforce"`
	// ModulesDisabled is /proc/sys/kernel/modules_disabled: no module can be loaded until the next boot.
	ModulesDisabled bool `json:"modulesDisabled"`
	// NotRunning is true for a kernel that is installed and not running: nothing of the live machine speaks for it.
	NotRunning bool `json:"notRunning,omitempty"`
	// Headers is the directory of the build headers for Release, as the host sees it; empty when not installed.
	Headers string `json:"headers,omitempty"`
}

// OS is the distribution, from os-release(5).
type OS struct {
	ID        string `json:"id"`
	VersionID string `json:"versionID,omitempty"`
	Pretty    string `json:"pretty,omitempty"`
	// RHEL is RHEL_VERSION, such as "9.2": of Red Hat Enterprise Linux CoreOS, whose VERSION_ID is that of OpenShift,
	// the release that its kernel and its packages are of. From 10 on it has the names of RHEL itself.
	RHEL string `json:"rhel,omitempty"`
}

// Base is the distribution that the kernel and the packages are of, as ID and VERSION_ID name it.
func (o OS) Base() (id, version string) {
	if o.ID == "rhcos" && o.RHEL != "" {
		return "rhel", o.RHEL
	}
	return o.ID, o.VersionID
}

// Major is the base with the first part of its version, such as "debian12".
func (o OS) Major() string {
	id, version := o.Base()
	major, _, _ := strings.Cut(version, ".")
	return id + major
}

// Cluster is what the API server says of itself.
type Cluster struct {
	// Version is its major and minor version, such as "1.37".
	Version string `json:"version,omitempty"`
	// Unknown is true while there is a cluster and its API server has not said its version. A definition that needs it
	// waits.
	Unknown bool `json:"unknown,omitempty"`
}

// PCIDevice is one PCI function. Ids are lower-case hexadecimal without "0x", as in the PCI id database.
type PCIDevice struct {
	Address   string `json:"address"` // domain:bus:device.function
	Class     string `json:"class"`   // six digits: class, subclass, programming interface
	Vendor    string `json:"vendor"`
	Device    string `json:"device"`
	SubVendor string `json:"subVendor,omitempty"`
	SubDevice string `json:"subDevice,omitempty"`
	Revision  string `json:"revision,omitempty"`
	// VendorName and DeviceName come from the PCI id database; empty when it is not there or was not asked.
	VendorName string `json:"vendorName,omitempty"`
	DeviceName string `json:"deviceName,omitempty"`
	NUMANode   int    `json:"numaNode"`             // -1 when the platform names none
	IOMMUGroup int    `json:"iommuGroup"`           // -1 without an IOMMU
	Driver     string `json:"driver,omitempty"`     // the bound driver
	Override   string `json:"override,omitempty"`   // driver_override
	ParentPort string `json:"parentPort,omitempty"` // address of the PCI bridge above; empty on the root bus
	Link       Link   `json:"link"`
	SRIOV      SRIOV  `json:"sriov"`
}

// Link is a PCI Express link. Speeds are in GT/s; zero when the function has no link or it is down.
type Link struct {
	SpeedGTs    float64 `json:"speedGTs"`
	MaxSpeedGTs float64 `json:"maxSpeedGTs"`
	Width       int     `json:"width"`
	MaxWidth    int     `json:"maxWidth"`
}

// SRIOV tells a function's place in single-root I/O virtualisation.
type SRIOV struct {
	TotalVFs int `json:"totalVFs"`
	NumVFs   int `json:"numVFs"`
	// PhysFn is the address of the physical function of a virtual one; empty otherwise.
	PhysFn string `json:"physFn,omitempty"`
}

// LoadedModule is a live kernel module, from /sys/module.
type LoadedModule struct {
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"`
	SrcVersion string `json:"srcVersion,omitempty"`
	BuildID    string `json:"buildID,omitempty"` // hex, from notes/.note.gnu.build-id
	// State is "live", "coming" or "going".
	State   string   `json:"state"`
	RefCnt  int      `json:"refcnt"`
	Holders []string `json:"holders,omitempty"`
	Taint   string   `json:"taint,omitempty"`
}

// ContainerEngine is the container runtime that the kubelet uses, or that was found on a host without one.
type ContainerEngine struct {
	// Name is "cri-o", "containerd", "docker" or "podman"; empty when none was found.
	Name string `json:"name,omitempty"`
	// Endpoint is the CRI socket as the host sees it, such as "unix:///var/run/crio/crio.sock".
	Endpoint string `json:"endpoint,omitempty"`
	// From says how it was found: "kubelet" (its configuration or arguments), "socket", or "files" when nothing runs.
	From string `json:"from,omitempty"`
	// Layout is the distribution of Kubernetes that brought it and writes its configuration: "k3s", "rke2", "k0s" or
	// "microk8s"; empty for one that stands alone.
	Layout string `json:"layout,omitempty"`
	// Version is as much as is known of it without asking, such as "1.7.27" or "2"; empty when nothing is.
	Version string `json:"version,omitempty"`
	// Config is the top-level configuration file as the host sees it, whether it is there or not.
	Config string `json:"config,omitempty"`
	// Unit is the systemd unit that it runs in, such as "crio.service"; empty when it is not known.
	Unit string `json:"unit,omitempty"`
	// PID and Started are those of its process; zero when it does not run or cannot be seen.
	PID     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
}

// Kubelet tells whether a kubelet is on the host.
type Kubelet struct {
	// Present is true when the kubelet's device plugin directory exists.
	Present bool `json:"present"`
	// Root is the kubelet's --root-dir, "/var/lib/kubelet" unless its arguments say otherwise.
	Root string `json:"root,omitempty"`
}

// GoArch returns Go's name of what `uname -m` calls machine, which OCI images use too.
func GoArch(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	case "loongarch64":
		return "loong64"
	}
	return machine // ppc64le, s390x and riscv64 agree
}
