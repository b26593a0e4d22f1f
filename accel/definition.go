package accel

import (
	"slices"
	"strings"
	"time"
)

// Definition describes one kind of accelerator as data. The built-in ones are YAML under vendors/; a user adds one as a
// file in /etc/acceld/definitions.d. Fields with the tag `template:"runtime"` are Go templates over [Runtime]; in those
// with `template:"device"` the words `{{.Address}}` and `{{.Number}}` stand for the device's own, and nothing else
// does; in those with `template:"partition"` `{{.Address}}`, `{{.Name}}` and `{{.Profile}}`.
type Definition struct {
	// Kind is "<vendor>-<hardware>", such as "qemu-edu": lower-case letters, digits and one or more dashes.
	Kind string `json:"kind"`
	// Title is the name for people, such as "QEMU educational device".
	Title string `json:"title,omitempty"`
	// Enabled is false for a kind that is off until the configuration says `kinds.<kind>.enabled: true`.
	Enabled *bool `json:"enabled,omitempty"`
	// Vendor is the domain that names belong to, such as "qemu.org": a resource without a domain gets it.
	Vendor string `json:"vendor,omitempty"`
	// Resource is the extended resource and the CDI kind, such as "qemu.org/edu", or "edu" where vendor is given.
	Resource string `json:"resource"`
	// Rename is the extended resource where it is not Resource. The CDI kind stays Resource, so that containers which
	// exist can start again when the name changes.
	Rename string `json:"rename,omitempty"`
	// After names kinds whose driver must work on this host before this kind's is touched.
	After []string `json:"after,omitempty"`
	// Match recognises PCI functions; one matching row suffices.
	Match []Match `json:"match"`
	// Except takes functions out again that Match recognises, such as those given to virtual machines.
	Except []Match `json:"except,omitempty"`
	// Driver says which modules the kind needs and where they come from.
	Driver DriverDefinition `json:"driver"`
	// Nodes say which device nodes belong to an accelerator.
	Nodes []NodeSource `json:"nodes,omitempty"`
	// Container is what a container gets besides the device nodes.
	Container Edits `json:"container,omitzero"`
	// Check proves that the device works, by computing on it.
	Check *Check `json:"check,omitempty"`
	// Steps are the definition's own steps, by the published state that they belong to.
	Steps map[Published]StateSteps `json:"steps,omitempty"`
	// Allocation is the way in which the kubelet gives the devices out; devicePlugin when empty.
	Allocation Allocation `json:"allocation,omitempty"`
	// Capacity are the amounts that a device has, such as its memory: for claims where Allocation is dra, for the
	// scheduler's extender where it is not.
	Capacity []Capacity `json:"capacity,omitempty"`
	// Partitions says how the parts into which a device is divided are found; nil: devices are not divided.
	Partitions *Partitions `json:"partitions,omitempty"`
	// Sharing gives a device to several containers at a time, by time slicing; nil: to one.
	Sharing *Sharing `json:"sharing,omitempty"`
	// Serial is an attribute (see HealthSource.File) that holds the serial number.
	Serial string `json:"serial,omitempty" template:"device"`
	// UUID is an attribute (see HealthSource.File) that holds the name by which the vendor's own programs know the
	// device.
	UUID string `json:"uuid,omitempty" template:"device"`
	// Model is an attribute (see HealthSource.File) that holds the name of the product, where the device says it
	// itself.
	Model string `json:"model,omitempty" template:"device"`
	// Fabric is an attribute (see HealthSource.File) that is the same on devices which have links of their own to each
	// other, beside the bus, and differs on others. Containers that ask for several devices are given such ones where
	// they can be.
	Fabric string `json:"fabric,omitempty" template:"device"`
	// Health are attribute files that tell health.
	Health []HealthSource `json:"health,omitempty"`
	// Log are rules for the kernel log: which lines tell something about a device.
	Log []LogRule `json:"log,omitempty"`
	// Limits are bounds of metrics, besides the [DefaultLimits].
	Limits []Limit `json:"limits,omitempty"`
	// FixedLinkSpeed says that devices of the kind do not slow their PCI Express link down when they are idle, so that
	// a link which is slower than it could be is a fault. One with fewer lanes always is.
	FixedLinkSpeed bool `json:"fixedLinkSpeed,omitempty"`
	// Metrics are attribute files that hold numbers, besides the [DefaultMetrics]; one of the same name takes the place
	// of a default.
	Metrics []MetricSource `json:"metrics,omitempty"`
	// Probe is a program that tells what files do not; nil: none.
	Probe *Probe `json:"probe,omitempty"`
	// Hotplug is "safe" when the driver's removal of a device in use is clean; informational.
	Hotplug string `json:"hotplug,omitempty"`
	// Reset is what `acceld reset` may do with a device; "function" when empty.
	Reset ResetWay `json:"reset,omitempty"`
}

// ResetWay is what `acceld reset` does with a device that nobody uses.
type ResetWay string

// The ways.
const (
	// unbind its driver, let the kernel reset the PCI function, bind the driver again
	ResetFunction ResetWay = "function"
	ResetRebind   ResetWay = "rebind" // unbind its driver and bind it again: the driver itself resets the device
	ResetNever    ResetWay = "never"  // refuse: the device needs the tools of its vendor, or a reboot
)

// Match is one row of recognition: every field that is set must be equal. Ids are lower-case hexadecimal.
type Match struct {
	// Vendor is the four-digit id; only a row of Except may leave it empty.
	Vendor string `json:"vendor,omitempty"`
	// Device is a device id; empty matches every device of the vendor with the class.
	Device string `json:"device,omitempty"`
	// Class is a prefix of the six-digit class, such as "0302".
	Class string `json:"class,omitempty"`
	// Driver is the PCI driver that is bound to the function now, such as "vfio-pci".
	Driver string `json:"driver,omitempty"`
}

// DriverDefinition says which kernel modules a kind needs and where they come from.
type DriverDefinition struct {
	// Version is the wanted driver version; empty accepts what the source says.
	Version string `json:"version,omitempty"`
	// Modules in load order.
	Modules []Module `json:"modules"`
	// Binds is the name of the PCI driver that must be bound to every device, such as "edu".
	Binds string `json:"binds"`
	// Conflicts are modules or PCI drivers that must not own a device of this kind, such as "nouveau".
	Conflicts []string `json:"conflicts,omitempty"`
	// MakeNodes are device nodes that the devices share and that neither the driver nor udev makes.
	MakeNodes []MadeNode `json:"makeNodes,omitempty"`
	// Takeover allows to take devices from the drivers in Conflicts: unbind, then driver_override. Without it they are
	// only named.
	Takeover bool `json:"takeover,omitempty"`
	// KABI is "weak" to accept installed modules of another release of the kernel whose every symbol has the version
	// that the running kernel has (RHEL's weak-updates); empty: the release must be the running one.
	KABI string `json:"kabi,omitempty"`
	// Upgrade says what happens to those who use the driver when another one is wanted.
	Upgrade UpgradePolicy `json:"upgrade,omitzero"`
	// Sign signs modules that are built here.
	Sign *Signer `json:"sign,omitempty"`
	// FirmwarePackages are the packages that have the driver's firmware, for the sentence about a file that is not
	// there. A key is an operating system with its major version ("debian12"), without ("debian"), or "*" for all
	// others.
	FirmwarePackages map[string]string `json:"firmwarePackages,omitempty"`
	// Sources in order of preference, after "already loaded", "store" and "installed", which always come first.
	Sources []Source `json:"sources,omitempty"`
}

// Module is one kernel module.
type Module struct {
	Name string `json:"name"`
	// Files are other names, without ".ko", that distributions give the module's file, such as "nvidia-current".
	Files []string `json:"files,omitempty"`
	// Parameters by name.
	Parameters map[string]string `json:"parameters,omitempty" template:"runtime"`
	// After names modules outside the definition that must be loaded first, such as "i2c_core"; those of the kernel
	// itself are loaded from /lib/modules.
	After []string `json:"after,omitempty"`
	// Firmware files, relative to the firmware directory, that must be there before the load; one that fills to nothing
	// is left out.
	Firmware []string `json:"firmware,omitempty" template:"runtime"`
	// Optional modules may fail to load without failing the kind.
	Optional bool `json:"optional,omitempty"`
}

// BuildSystem is how a source tree is built.
type BuildSystem string

// The build systems.
const (
	BuildKbuild BuildSystem = "kbuild" // the kernel's: make -C <headers> M=<tree> modules
	BuildMake   BuildSystem = "make"   // the tree's own Makefile: make modules
	BuildDKMS   BuildSystem = "dkms"   // as its dkms.conf says
)

// Source is one configured place that kernel modules come from. Which fields count depends on the type. Files are as
// the host sees them.
type Source struct {
	Type SourceType `json:"type"`
	// Path is the source tree of a build, such as "/usr/src/edu-{{.DriverVersion}}", or the file or directory
	// of a bundle.
	Path string `json:"path,omitempty" template:"runtime"`
	// Make are extra arguments for make, "NAME=value" each.
	Make []string `json:"make,omitempty" template:"runtime"`
	// System is how the source tree is built; empty for dkms where it has a dkms.conf, else kbuild.
	System BuildSystem `json:"system,omitempty"`
	// AnyCompiler allows a compiler of another major version than the kernel's. A kernel with compiler plugins needs
	// its own all the same.
	AnyCompiler bool `json:"anyCompiler,omitempty"`
	// Image is the reference of a prebuilt artifact, such as
	// "registry.example/driver:v{{.DriverVersion}}-{{.KernelVersion}}".
	Image string `json:"image,omitempty" template:"runtime"`
	// Mirrors are registries, or registries with a path, that are asked for Image before its own, in order.
	Mirrors []string `json:"mirrors,omitempty"`
	// Digest pins the artifact, "sha256:" and 64 hexadecimal digits; then the tag is only a name.
	Digest string `json:"digest,omitempty"`
	// Keys are PEM files with public keys; the artifact must be signed by one of them. Empty: signatures are not asked.
	Keys []string `json:"keys,omitempty"`
	// CA is a PEM file with the registry's own certificate authority.
	CA string `json:"ca,omitempty"`
	// Credentials is a file as `docker login` writes it (config.json) with the registry's credentials.
	Credentials string `json:"credentials,omitempty"`
	// Proxy is the HTTP proxy to the registry; the environment's when empty.
	Proxy string `json:"proxy,omitempty"`
	// PlainHTTP allows a registry without TLS. On loopback it always is.
	PlainHTTP bool `json:"plainHTTP,omitempty"`
	// Push publishes to Image what was built here, so that hosts with the same kernel build once.
	Push bool `json:"push,omitempty"`
}

// Holders says what an upgrade does about those who use the driver.
type Holders string

// The policies.
const (
	HoldersRefuse Holders = "refuse" // nothing changes while the driver is in use; the default
	HoldersWait   Holders = "wait"   // no new allocations; the upgrade goes on when the last user ends
	HoldersEvict  Holders = "evict"  // as wait, and the pods that use it are evicted
)

// UpgradePolicy says how a driver in use is replaced by another.
type UpgradePolicy struct {
	Holders Holders `json:"holders,omitempty"`
	// Timeout is how long to wait for users to end, such as "30m"; then the upgrade is given up for this time and the
	// old driver serves on. Empty: no limit.
	Timeout string `json:"timeout,omitempty"`
	// Adopt allows to replace a driver that acceld did not load. Without it such a driver is named and never touched.
	Adopt bool `json:"adopt,omitempty"`
	// Asked is when somebody asked for an upgrade (`acceld driver upgrade`): the sources are then asked again, also
	// when version and parameters are as wanted, and a driver that was rolled back is tried again. Zero when nobody
	// did.
	Asked time.Time `json:"asked,omitzero"`
	// By names the policy of the cluster that orders upgrades: a driver that is ready is not used before the node has
	// its grant. The agent sets it; empty when nobody orders them.
	By string `json:"by,omitempty"`
}

// Signer are the files that modules are signed with, as scripts/sign-file of the kernel does.
type Signer struct {
	Key         string `json:"key"`            // PEM, readable by root alone
	Certificate string `json:"certificate"`    // PEM or DER, X.509
	Hash        string `json:"hash,omitempty"` // "sha256" (the default), "sha384" or "sha512"
}

// Runtime are the facts that templates in a definition may use.
type Runtime struct {
	KernelVersion             string // uname -r
	OperatingSystemMajor      string // such as "debian12"
	OperatingSystemMajorMinor string // such as "rhel9.4"
	RuntimeArchitecture       string // GOARCH
	HardwareResource          string // the kind
	NodeFeature               string // the label that marks a node with this hardware
	ClusterVersion            string // that of the API server, such as "1.37"; empty without a cluster
	DriverVersion             string
	// the directory of the kernel's build headers; only in the make arguments of a build
	KernelHeaders string
}

// NodeSource finds device nodes of an accelerator, by Glob in sysfs or by Make.
type NodeSource struct {
	// Glob is relative to the PCI function's sysfs directory, such as "accel/edu*", or begins with "/sys/". Every
	// directory that it matches and that has a "dev" file is one device node, named by DEVNAME of its uevent file.
	Glob string `json:"glob,omitempty"`
	// Siblings are directories of further nodes of the same device that sysfs does not hold below it, such as
	// "/sys/class/accel/accel_controlD{{.Number}}"; the number is the one that ends the name which Glob matched.
	Siblings []string `json:"siblings,omitempty" template:"device"`
	// Make describes a node that is not in sysfs at all.
	Make *MadeNode `json:"make,omitempty"`
	// Permissions are those of the device cgroup, "rw" when empty.
	Permissions string `json:"permissions,omitempty"`
	// Optional nodes are given to containers where they are there; their absence is no fault.
	Optional bool `json:"optional,omitempty"`
}

// Permissions returns the permissions of all sources together, "rw" if they name none: the default of CDI is "rwm",
// which lets a container create nodes. A letter that is no permission stays, for validation to find.
func Permissions(sources []NodeSource) string {
	var all []byte
	for _, s := range sources {
		for _, p := range []byte(s.Permissions) {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 {
		return "rw"
	}
	slices.SortFunc(all, func(a, b byte) int { return strings.IndexByte("rwm", a) - strings.IndexByte("rwm", b) })
	return string(all)
}

// MadeNode is a device node that the driver leaves to others to make. acceld makes it where nobody has.
type MadeNode struct {
	// Path is the node, such as "/dev/gpu{{.Number}}"; the number is the minor number.
	Path string `json:"path" template:"device"`
	// Majors are names in the table of character devices, /proc/devices; the first one there has the major number.
	Majors []string `json:"majors"`
	// Minor is the minor number where it is fixed.
	Minor uint32 `json:"minor,omitempty"`
	// MinorFrom is an attribute (see HealthSource.File) that holds the minor number of the device.
	MinorFrom string `json:"minorFrom,omitempty" template:"device"`
	// Mode is octal, "0666" when empty.
	Mode string `json:"mode,omitempty"`
	// Module is the module that serves the node: without it there is none, and none is missed.
	Module string `json:"module,omitempty"`
}

// Edits are what a container gets when it is given an accelerator of a kind.
type Edits struct {
	Env []string `json:"env,omitempty"` // "NAME=value" each
	// Mounts are files and directories of the host.
	Mounts []Mount `json:"mounts,omitempty"`
	// Libraries are user space of the driver that comes from the host.
	Libraries []Libraries `json:"libraries,omitempty"`
	// Nodes are device nodes that every accelerator of the kind shares, such as "/dev/kfd".
	Nodes []string `json:"nodes,omitempty"`
	// OptionalNodes are as Nodes, where the host has them.
	OptionalNodes []string `json:"optionalNodes,omitempty"`
}

// Mount is a bind mount from the host.
type Mount struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	// Options are those of mount; "ro", "nosuid", "nodev" when empty.
	Options []string `json:"options,omitempty"`
	// Optional mounts are made where the host has the path.
	Optional bool `json:"optional,omitempty"`
}

// Libraries are shared libraries of the host that containers get in a directory of their own, because they must be
// those of the loaded driver.
type Libraries struct {
	// Path is the directory in the container; its images must have it in LD_LIBRARY_PATH or ld.so.conf.
	Path string `json:"path"`
	// Names are sonames, such as "libcuda.so.1" or "libx.so.{{.DriverVersion}}"; the version is that of the loaded
	// module. They are found as the host's loader finds them; those that the host lacks are left out.
	Names []string `json:"names"`
	// SameVersion refuses a library whose file name does not end with the version of the loaded module.
	SameVersion bool `json:"sameVersion,omitempty"`
}

// Check is a proof of work: Write is written to File, then File is read and must equal Want.
type Check struct {
	// File is an attribute relative to the PCI function's sysfs directory.
	File  string `json:"file"`
	Write string `json:"write"`
	Want  string `json:"want"`
	// Sentence says for people what was proven, such as "10! computed by the device".
	Sentence string `json:"sentence,omitempty"`
}

// LogRule says what lines of the kernel log mean. Only what the kernel itself has written counts.
type LogRule struct {
	// Match is a regular expression (RE2) for a part of the line. Its group "device" is the PCI address, in any way
	// that drivers write it (0000:01:00.0, 0000:01:00, 01:00.0); without the group the record's own field DEVICE tells
	// the device. Its group "code" chooses from Codes; without the group, or for a code that is not there, Otherwise
	// holds. Of several rules the first one that matches a line counts.
	Match string `json:"match"`
	// Code is the code of lines in which no group says it. Rules may share one: the newest line of a code counts, so
	// that a line which is only counted takes back what one before it said.
	Code string `json:"code,omitempty"`
	// Codes are what the codes mean.
	Codes map[string]Verdict `json:"codes,omitempty"`
	// Otherwise is what any other line means; empty, it is only counted.
	Otherwise Verdict `json:"otherwise,omitzero"`
}

// Verdict is what an error means for the device.
type Verdict struct {
	// Title says for people what happened, such as "memory page retired".
	Title string `json:"title,omitempty"`
	// State is "degraded", "unhealthy", or empty for what is only counted.
	State HealthState `json:"state,omitempty"`
	// Action is what to do: "RestartWorkload", "ResetDevice", "Reboot" or "Service".
	Action Action `json:"action,omitempty"`
	// For is how long one line counts at most, such as "10m". In any case it ends when the driver is bound to the
	// device again, or the host boots.
	For string `json:"for,omitempty"`
}

// Recognises reports whether the definition describes the PCI function d. Where devices are divided, a virtual function
// is at most a part of one.
func (def *Definition) Recognises(d PCIDevice) bool {
	if def.Partitions != nil && d.SRIOV.PhysFn != "" {
		return false
	}
	row := func(m Match) bool { return m.matches(d) }
	return slices.ContainsFunc(def.Match, row) && !slices.ContainsFunc(def.Except, row)
}

func (m Match) matches(d PCIDevice) bool {
	return (m.Vendor == "" || m.Vendor == d.Vendor) && (m.Device == "" || m.Device == d.Device) &&
		(m.Driver == "" || m.Driver == d.Driver) && strings.HasPrefix(d.Class, m.Class)
}
