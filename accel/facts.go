package accel

import (
	"slices"
	"strings"
	"time"
)

// Facts are what is on the host, as package detect read it. Every field may be empty on an incomplete host; Problems
// then says what could not be read.
type Facts struct {
	Kernel Kernel      `json:"kernel"`
	OS     OS          `json:"os"`
	PCI    []PCIDevice `json:"pci,omitempty"`
	// Devices are those of the other [Subsystems] that somebody asked for, by address.
	Devices []Device        `json:"devices,omitempty"`
	Modules []LoadedModule  `json:"modules,omitempty"`
	Runtime ContainerEngine `json:"runtime"`
	Kubelet Kubelet         `json:"kubelet"`
	// Cluster is the Kubernetes cluster; zero on a host without one. It and Maintenance do not come from the host.
	Cluster Cluster `json:"cluster,omitzero"`
	// Inventory is the host's hardware; zero before it has been read, and in a copy of a machine.
	Inventory Inventory `json:"inventory,omitzero"`
	// Network are the PCI functions of network controllers, ordered by address.
	Network []NetworkFunction `json:"network,omitempty"`
	// Maintenance says who else works on the node, from the node's conditions. MaintenanceUnknown is true until the API
	// server has been asked for the first time.
	Maintenance        []Maintenance `json:"maintenance,omitempty"`
	MaintenanceUnknown bool          `json:"maintenanceUnknown,omitempty"`
	// Problems are sentences about what could not be read, each naming the file.
	Problems []string `json:"problems,omitempty"`
	// Notes are sentences about what was seen and is ignored because it is not the host's own, such as a process in a
	// pod that is named like the kubelet.
	Notes []string `json:"notes,omitempty"`
}

// Kernel is the running kernel. Release is not unique (distributions rebuild a release); BuildID and Version are.
type Kernel struct {
	Release string `json:"release"`           // uname -r
	Version string `json:"version"`           // uname -v
	Arch    string `json:"arch"`              // uname -m, such as "x86_64"
	BuildID string `json:"buildID,omitempty"` // hex, from /sys/kernel/notes
	BootID  string `json:"bootID,omitempty"`  // /proc/sys/kernel/random/boot_id
	Taint   uint64 `json:"taint"`             // /proc/sys/kernel/tainted, a bit set
	// Lockdown is "none", "integrity" or "confidentiality"; empty when the kernel has no lockdown.
	Lockdown string `json:"lockdown,omitempty"`
	// LockdownUnknown is true when it cannot be told whether the kernel is locked down.
	LockdownUnknown bool `json:"lockdownUnknown,omitempty"`
	// SecureBoot is true when the firmware's SecureBoot variable is set.
	SecureBoot bool `json:"secureBoot"`
	// SecureBootUnknown is true when it cannot be told whether it is set.
	SecureBootUnknown bool `json:"secureBootUnknown,omitempty"`
	// SigEnforce is /sys/module/module/parameters/sig_enforce: unsigned modules are refused.
	SigEnforce bool `json:"sigEnforce"`
	// ModulesDisabled is /proc/sys/kernel/modules_disabled: no module can be loaded until the next boot.
	ModulesDisabled bool `json:"modulesDisabled"`
	// NotRunning is true for a kernel that is installed but not running: no fact of the live machine applies to it.
	NotRunning bool `json:"notRunning,omitempty"`
	// Headers is the directory of the build headers for Release, as the host sees it; empty if they are not
	// installed.
	Headers string `json:"headers,omitempty"`
}

// Base is the release without the flavour or the architecture at its end, as names of packages have it: "6.1.0-47" for
// "6.1.0-47-amd64", "5.14.0-427.el9" for "5.14.0-427.el9.x86_64".
func (k Kernel) Base() string {
	if base, ok := strings.CutSuffix(k.Release, "."+k.Arch); ok {
		return base
	}
	i := strings.LastIndexByte(k.Release, '-')
	if i > 0 && i+1 < len(k.Release) && 'a' <= k.Release[i+1] && k.Release[i+1] <= 'z' {
		return k.Release[:i]
	}
	return k.Release
}

// OS is the distribution, from os-release(5).
type OS struct {
	ID        string `json:"id"`
	VersionID string `json:"versionID,omitempty"`
	Pretty    string `json:"pretty,omitempty"`
	// RHEL is RHEL_VERSION, such as "9.2". Red Hat Enterprise Linux CoreOS has it, because its VERSION_ID is the
	// version of OpenShift, not of the RHEL release that its kernel and packages come from. From version 10 on,
	// CoreOS uses RHEL's own names.
	RHEL string `json:"rhel,omitempty"`
}

// Base returns the distribution that the kernel and the packages come from, as its ID and VERSION_ID name it.
func (o OS) Base() (id, version string) {
	if o.ID == "rhcos" && o.RHEL != "" {
		return "rhel", o.RHEL
	}
	return o.ID, o.VersionID
}

// Major returns the base with the first part of its version, such as "debian12".
func (o OS) Major() string {
	id, version := o.Base()
	major, _, _ := strings.Cut(version, ".")
	return id + major
}

// Cluster is what the API server reports about itself.
type Cluster struct {
	// Version is its major and minor version, such as "1.37".
	Version string `json:"version,omitempty"`
	// Unknown is true while there is a cluster but its API server has not reported its version. A definition that
	// needs the version waits.
	Unknown bool `json:"unknown,omitempty"`
}

// PCIDevice is a [Device] that is a PCI function.
type PCIDevice = Device

// Device is what a definition can recognise: a PCI function, or a device of another [Subsystem], which has fewer of
// these fields. Ids are lower-case hexadecimal without "0x", as in the PCI id database.
type Device struct {
	// Subsystem is empty for a PCI function. Name is the kernel's name for any other device, which may change, and
	// Names are those by which drivers find it, separated by spaces.
	Subsystem string `json:"subsystem,omitempty"`
	Name      string `json:"name,omitempty"`
	Names     string `json:"names,omitempty"`
	// Address is domain:bus:device.function, or that of [Subsystem.Address].
	Address   string `json:"address"`
	Class     string `json:"class"` // six digits: class, subclass, programming interface; of USB: protocol
	Vendor    string `json:"vendor"`
	Device    string `json:"device"`
	SubVendor string `json:"subVendor,omitempty"`
	SubDevice string `json:"subDevice,omitempty"`
	Revision  string `json:"revision,omitempty"`
	// VendorName and DeviceName come from the PCI id database; empty if it is missing or was not consulted.
	VendorName string `json:"vendorName,omitempty"`
	DeviceName string `json:"deviceName,omitempty"`
	NUMANode   int    `json:"numaNode"`           // -1 if the platform does not report one
	IOMMUGroup int    `json:"iommuGroup"`         // -1 without an IOMMU
	Driver     string `json:"driver,omitempty"`   // the bound driver
	Override   string `json:"override,omitempty"` // driver_override
	// ParentPort is the address of the PCI bridge above; empty on the root bus. For a device of another subsystem it is
	// the PCI function that it is on or below.
	ParentPort string `json:"parentPort,omitempty"`
	Link       Link   `json:"link"`
	SRIOV      SRIOV  `json:"sriov"`
	// Switched says that acceld gives the function out with another driver than its kind's; nil if not.
	Switched *Switched `json:"switched,omitempty"`
}

// All returns the PCI functions and the devices of other subsystems.
func (f *Facts) All() []Device {
	if len(f.Devices) == 0 {
		return f.PCI
	}
	return append(slices.Clip(f.PCI), f.Devices...)
}

// Function returns the PCI function, or the device of another subsystem, at an address; zero if there is none.
func (f *Facts) Function(address string) Device {
	for _, all := range [][]Device{f.PCI, f.Devices} {
		for i := range all { // by index: there may be thousands, and they are large
			if all[i].Address == address {
				return all[i]
			}
		}
	}
	return Device{}
}

// Link is a PCI Express link. Speeds are in GT/s; zero when the function has no link or it is down.
type Link struct {
	SpeedGTs    float64 `json:"speedGTs"`
	MaxSpeedGTs float64 `json:"maxSpeedGTs"`
	Width       int     `json:"width"`
	MaxWidth    int     `json:"maxWidth"`
}

// SRIOV is a function's role in single-root I/O virtualisation.
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
	// Name is one of package detect's, such as "cri-o" or "containerd"; empty when none was found.
	Name string `json:"name,omitempty"`
	// Endpoint is the CRI socket as the host sees it, such as "unix:///var/run/crio/crio.sock".
	Endpoint string `json:"endpoint,omitempty"`
	// From says how it was found: "kubelet" (its configuration or arguments), "socket", or "files" if none runs.
	From string `json:"from,omitempty"`
	// Layout is the Kubernetes distribution that installed it and writes its configuration: "k3s", "rke2", "k0s" or
	// "microk8s"; empty for a standalone one.
	Layout string `json:"layout,omitempty"`
	// Version is as precise as it can be without asking the engine, such as "1.7.27" or "2"; empty if unknown.
	Version string `json:"version,omitempty"`
	// Config is the top-level configuration file as the host sees it, whether or not it exists.
	Config string `json:"config,omitempty"`
	// ConfigDir is the directory of drop-ins that the daemon's command line names; empty for the default.
	ConfigDir string `json:"configDir,omitempty"`
	// SpecDirs and HookDirs are the directories of CDI specs and OCI hooks that the daemon's command line or
	// environment names, lowest precedence first. They win over its files; nil if there are none.
	SpecDirs []string `json:"specDirs,omitempty"`
	HookDirs []string `json:"hookDirs,omitempty"`
	// CDI is "on" or "off" if the daemon's command line says so, which wins over its files; otherwise empty.
	CDI string `json:"cdi,omitempty"`
	// Through is the program between the kubelet and the engine, such as "cri-dockerd 0.3.4"; empty if there is none.
	// ThroughStarted is when it started; zero if unknown.
	Through        string    `json:"through,omitempty"`
	ThroughStarted time.Time `json:"throughStarted,omitzero"`
	// Unit is the systemd unit that it runs in, such as "crio.service"; empty if unknown.
	Unit string `json:"unit,omitempty"`
	// PID and Started describe its process; zero if it does not run or is not visible.
	PID     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
}

// Kubelet says whether a kubelet is on the host.
type Kubelet struct {
	// Present is true when the kubelet's device plugin directory exists.
	Present bool `json:"present"`
	// Root is the kubelet's --root-dir, "/var/lib/kubelet" unless its arguments say otherwise.
	Root string `json:"root,omitempty"`
	// TopologyPolicy and TopologyScope are the settings of its topology manager, by its arguments and files; empty if
	// none of them could be read.
	TopologyPolicy string `json:"topologyPolicy,omitempty"`
	TopologyScope  string `json:"topologyScope,omitempty"`
}

// GoArch returns Go's name for an architecture that `uname -m` calls machine. OCI images use the same names.
func GoArch(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	case "loongarch64":
		return "loong64"
	}
	return machine // ppc64le, s390x and riscv64 have the same name
}
