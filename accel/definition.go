package accel

import (
	"slices"
	"strings"
	"time"
)

// Definition describes one kind of accelerator as data. The built-in definitions are YAML files under vendors/; a
// user adds one as a file in /etc/acceld/definitions.d. Fields with the tag `template:"runtime"` are Go templates
// over [Runtime]. In fields with `template:"device"` only `{{.Address}}` and `{{.Number}}` are replaced, by the
// device's own values; in fields with `template:"partition"` only `{{.Address}}`, `{{.Name}}` and `{{.Profile}}`; in
// fields with `template:"node"` only `{{.Address}}` and `{{.IOMMUGroup}}`.
type Definition struct {
	// Kind is "<vendor>-<hardware>", such as "qemu-edu": lower-case letters, digits and one or more dashes.
	Kind string `json:"kind"`
	// Title is the name for people, such as "QEMU educational device".
	Title string `json:"title,omitempty"`
	// Enabled is false for a kind that is off unless the configuration says `kinds.<kind>.enabled: true`.
	Enabled *bool `json:"enabled,omitempty"`
	// Vendor is the vendor's domain, such as "qemu.org"; it is prepended to a resource without a domain.
	Vendor string `json:"vendor,omitempty"`
	// Resource is the extended resource and the CDI kind, such as "qemu.org/edu", or "edu" if Vendor is set.
	Resource string `json:"resource"`
	// Rename is the extended resource if it differs from Resource. The CDI kind stays Resource, so that existing
	// containers can restart after the name changes.
	Rename string `json:"rename,omitempty"`
	// After names kinds whose driver must work on this host before acceld touches the driver of this kind.
	After []string `json:"after,omitempty"`
	// Match recognises devices; one matching row suffices. All rows name the same subsystem.
	Match []Match `json:"match"`
	// Except excludes functions that Match recognises, such as those assigned to virtual machines.
	Except []Match `json:"except,omitempty"`
	// Confined keeps acceld to the functions that the kind recognises: it reads attributes and gives out device nodes
	// only of these functions and their virtual functions, no raw disks, and it recognises no storage, no network card,
	// no bridge and nothing else that a host needs for itself. It has no privileged field. Definitions from the cluster
	// are always confined, unless the host takes everything from them.
	Confined bool `json:"confined,omitempty"`
	// Driver says which modules the kind needs and where they come from.
	Driver DriverDefinition `json:"driver"`
	// Nodes say which device nodes belong to an accelerator.
	Nodes []NodeSource `json:"nodes,omitempty"`
	// Container is what a container gets in addition to the device nodes.
	Container Edits `json:"container,omitzero"`
	// Check proves that the device works by letting it compute something.
	Check *Check `json:"check,omitempty" privileged:"writes to the device or loads a library"`
	// Steps are the definition's own steps, keyed by the published state that they belong to.
	Steps map[Published]StateSteps `json:"steps,omitempty"`
	// States are states of the definition's own, which the cluster sees like the published ones.
	States []OwnState `json:"states,omitempty"`
	// Allocation is how the kubelet gives the devices to pods; devicePlugin when empty.
	Allocation Allocation `json:"allocation,omitempty"`
	// Capacity lists the amounts that a device has, such as its memory. Claims use them if Allocation is dra;
	// otherwise the scheduler extender uses them.
	Capacity []Capacity `json:"capacity,omitempty"`
	// Partitions says how to find the partitions of a device; nil if devices of the kind are not divided.
	Partitions *Partitions `json:"partitions,omitempty"`
	// Sharing gives a device to several containers at a time, by time slicing; nil gives it to one.
	Sharing *Sharing `json:"sharing,omitempty"`
	// Serial is an attribute (see HealthSource.File) that holds the serial number.
	Serial string `json:"serial,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// UUID is an attribute (see HealthSource.File) that holds the name by which the vendor's own tools identify the
	// device.
	UUID string `json:"uuid,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Model is an attribute (see HealthSource.File) that holds the product name, if the device reports it itself.
	Model string `json:"model,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Fabric is an attribute (see HealthSource.File) that is the same on devices that have direct links to each
	// other, apart from the bus, and differs between others. Containers that ask for several devices get devices of
	// one fabric if possible.
	Fabric string `json:"fabric,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Handover says how a device passes from one tenant to the next; nil if nothing is done in between.
	Handover *Handover `json:"handover,omitempty"`
	// Repair says what acceld does by itself about a device that needs a reset; nil if nothing.
	Repair *Repair `json:"repair,omitempty"`
	// Settings are what can be set on a device, in the order in which it is set.
	Settings []Setting `json:"settings,omitempty"`
	// Functions says which virtual functions acceld makes of each device; nil if it makes none.
	Functions *Functions `json:"functions,omitempty" privileged:"makes virtual functions"`
	// VFIO lets claims have whole devices with VFIO; nil if devices are only given out with the kind's driver.
	VFIO *VFIO `json:"vfio,omitempty" privileged:"gives whole PCI functions away"`
	// Unrequested says which processes are reported that use a device although nobody gave it to them; nil reports all.
	Unrequested *Unrequested `json:"unrequested,omitempty"`
	// Usage says where the driver tells what each user uses of a device; nil reads it of nodes below /dev/dri and
	// /dev/accel.
	Usage *Usage `json:"usage,omitempty"`
	// IgnoreConditions are conditions of a node that keep no upgrade and no repair from beginning, although they say
	// that somebody else works on the node.
	IgnoreConditions []MaintenanceCondition `json:"ignoreConditions,omitempty"`
	// Health lists attributes that show the health of a device.
	Health []HealthSource `json:"health,omitempty"`
	// Log lists rules for the kernel log: which lines say something about a device.
	Log []LogRule `json:"log,omitempty"`
	// Limits are bounds of metrics, in addition to the [DefaultLimits].
	Limits []Limit `json:"limits,omitempty"`
	// FixedLinkSpeed says that devices of the kind do not slow down their PCI Express link when idle, so that a link
	// below its maximum speed is a fault. A link with fewer lanes than possible always is.
	FixedLinkSpeed bool `json:"fixedLinkSpeed,omitempty"`
	// Metrics lists attributes that hold numbers, in addition to the [DefaultMetrics]; one with the name of a default
	// replaces it.
	Metrics []MetricSource `json:"metrics,omitempty"`
	// Probe is a program that reports what files do not show; nil if there is none.
	Probe *Probe `json:"probe,omitempty" privileged:"runs a program"`
	// Hotplug is "safe" if the driver copes with the removal of a device in use; informational.
	Hotplug string `json:"hotplug,omitempty"`
	// Reset is what `acceld reset` may do with a device; "function" when empty, and outside PCI "rebind", or "never"
	// for a class.
	Reset ResetWay `json:"reset,omitempty"`
}

// ResetWay is what `acceld reset` does with a device that is not in use.
type ResetWay string

// The ways to reset a device.
const (
	// unbind its driver, let the kernel reset the PCI function, bind the driver again
	ResetFunction ResetWay = "function"
	ResetRebind   ResetWay = "rebind" // unbind its driver and bind it again: the driver itself resets the device
	ResetNever    ResetWay = "never"  // refuse: the device needs the tools of its vendor, or a reboot
)

// Match is one recognition rule: every field that is set must be equal. Ids are lower-case hexadecimal.
type Match struct {
	// Subsystem is the bus or the class of the kernel that has the devices; pci when empty. docs/subsystems.md says
	// which of the other fields each has.
	Subsystem string `json:"subsystem,omitempty" privileged:"finds devices elsewhere than on PCI"`
	// Vendor is the four-digit id. Of PCI functions, only a rule of Except may leave it empty.
	Vendor string `json:"vendor,omitempty"`
	// Device is a device id; empty matches every device of the vendor with the class. Of USB it is the product, of
	// virtio the type.
	Device string `json:"device,omitempty"`
	// Class is a prefix of the six-digit class, such as "0302". Of USB it is the device's own, not that of its
	// interfaces.
	Class string `json:"class,omitempty"`
	// Name is one of the names by which drivers find the device, such as "vendor,npu" of a device tree, the id of ACPI,
	// or the kernel's name without its number. PCI, USB and virtio have ids instead.
	Name string `json:"name,omitempty"`
	// Driver is the driver that is bound to the device now, such as "vfio-pci"; of a class, to the device above it.
	Driver string `json:"driver,omitempty"`
}

// DriverDefinition says which kernel modules a kind needs and where they come from.
type DriverDefinition struct {
	// Version is the configured driver version; empty accepts whatever version the source has.
	Version string `json:"version,omitempty"`
	// Branch is the beginning of a version, such as "535", and is set instead of Version. It selects a version of the
	// branch that is loaded or in the store, or else the newest one that a source has. The choice is kept until `acceld
	// driver upgrade`.
	Branch string `json:"branch,omitempty"`
	// Modules are in load order.
	Modules []Module `json:"modules"`
	// Binds is the name of the driver that must be bound to every device, such as "edu"; "usb" for USB when empty. Of a
	// class it is the driver of the device above, and may be empty for devices of software alone.
	Binds string `json:"binds"`
	// Conflicts are modules or PCI drivers that must not own a device of this kind, such as "nouveau".
	Conflicts []string `json:"conflicts,omitempty" privileged:"takes devices from other drivers"`
	// MakeNodes are device nodes that the devices share and that neither the driver nor udev creates.
	MakeNodes []MadeNode `json:"makeNodes,omitempty" privileged:"makes device nodes"`
	// Takeover allows acceld to take devices from the drivers in Conflicts: it unbinds them and sets driver_override.
	// Without it acceld only reports them.
	Takeover bool `json:"takeover,omitempty" privileged:"takes devices from other drivers"`
	// Override has acceld bind every device to Binds by the function's driver_override, for a driver that knows no
	// device by its ids, such as vfio-pci, uio_pci_generic or pci-stub. What was there before is restored when the kind
	// is no longer in force, and by a purge. A device that another driver has is taken only as Conflicts and Takeover
	// allow.
	Override bool `json:"override,omitempty" privileged:"binds devices to a driver that does not know them"`
	// KABI is "weak" to accept installed modules of another kernel release if the version of every symbol that they
	// need is the running kernel's (RHEL's weak-updates). Empty: the release must be the running one.
	KABI string `json:"kabi,omitempty"`
	// Upgrade says what happens to users of the driver when another one is configured.
	Upgrade UpgradePolicy `json:"upgrade,omitzero"`
	// Sign signs modules that are built on this host.
	Sign *Signer `json:"sign,omitempty" privileged:"signs with a key of the host"`
	// FirmwarePackages are the packages with the driver's firmware, for the message about a missing file. A key is an
	// operating system with its major version ("debian12"), without it ("debian"), or "*" for all others.
	FirmwarePackages map[string]string `json:"firmwarePackages,omitempty"`
	// Sources are in order of preference. "Already loaded", "store" and "installed" always come before them.
	Sources []Source `json:"sources,omitempty" privileged:"brings kernel modules"`
	// Distributions say in which repositories of a distribution the driver is. They are used only by a source of type
	// distribution.
	Distributions []Distribution `json:"distributions,omitempty" privileged:"brings kernel modules"`
	// UserSpace says where the libraries and programs of the driver come from; nil if they are those of the host.
	UserSpace *UserSpace `json:"userSpace,omitempty" privileged:"brings libraries and programs"`
	// Companions are the daemons of the driver. They run only with a user space of its own (UserSpace): one that is
	// installed on the host brings its services itself. They start in this order.
	Companions []Companion `json:"companions,omitempty" privileged:"runs programs"`
}

// Module is one kernel module.
type Module struct {
	// Name is the name of the module, as lsmod has it.
	Name string `json:"name"`
	// Files are other names, without ".ko", that distributions give the module's file, such as "nvidia-current".
	Files []string `json:"files,omitempty"`
	// Parameters are keyed by name.
	Parameters map[string]string `json:"parameters,omitempty" template:"runtime"`
	// After names modules outside the definition that must be loaded first, such as "i2c_core"; modules of the kernel
	// itself are loaded from /lib/modules.
	After []string `json:"after,omitempty"`
	// Firmware lists files, relative to the firmware directory, that must exist before the load. A template that
	// yields an empty name is skipped.
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
	BuildDKMS   BuildSystem = "dkms"   // as dkms.conf says
)

// Source is one configured place that kernel modules come from. The type decides which fields apply. Paths are as the
// host sees them.
type Source struct {
	// Type says which kind of source it is.
	Type SourceType `json:"type"`
	// Path is the source tree of a build, such as "/usr/src/edu-{{.DriverVersion}}", or the file or directory
	// of a bundle.
	Path string `json:"path,omitempty" template:"runtime"`
	// Make are extra arguments for make, "NAME=value" each.
	Make []string `json:"make,omitempty" template:"runtime"`
	// System is how the source tree is built. Empty means dkms if the tree has a dkms.conf, else kbuild.
	System BuildSystem `json:"system,omitempty"`
	// AnyCompiler allows a compiler whose major version differs from that of the kernel's compiler. A kernel with
	// compiler plugins still needs its own.
	AnyCompiler bool `json:"anyCompiler,omitempty"`
	// Image is the reference of a prebuilt artifact, such as
	// "registry.example/driver:v{{.DriverVersion}}-{{.KernelVersion}}". For a build it is an image with make, a
	// compiler and binutils, such as "registry.example/builder:gcc12": the build runs in it, and the host needs none.
	Image string `json:"image,omitempty" template:"runtime"`
	// Needs are packages with what a build in Image may lack on the host: the headers of the kernel, the source tree at
	// Path, firmware. They are unpacked, not installed, once for each kernel, and no script of them runs.
	Needs []PackageSet `json:"needs,omitempty"`
	// Mirrors are registries, or registries with a path, that are tried for Image before its own registry, in order.
	Mirrors []string `json:"mirrors,omitempty"`
	// Digest pins the artifact or the builder image, "sha256:" and 64 hexadecimal digits; the tag is then only a name.
	Digest string `json:"digest,omitempty"`
	// Keys are PEM files with public keys, one of which must have signed the artifact or the builder image. Empty:
	// signatures are not checked. Those of packages are files with OpenPGP keys, and a repository needs one.
	Keys []string `json:"keys,omitempty"`
	// CA is a PEM file with the certificate authority of the registry.
	CA string `json:"ca,omitempty"`
	// Credentials is a file with the registry's credentials, in the format of `docker login` (config.json).
	Credentials string `json:"credentials,omitempty"`
	// Proxy is the HTTP proxy for the registry; empty means the proxy from the environment.
	Proxy string `json:"proxy,omitempty"`
	// PlainHTTP allows a registry without TLS. A registry on loopback never needs TLS.
	PlainHTTP bool `json:"plainHTTP,omitempty"`
	// Format, URL, Suite, Components and Packages name packages of a repository. Format is "deb" or "rpm".
	Format string `json:"format,omitempty"`
	// URL is the repository's, such as "https://deb.example.org/debian"; Path is a directory with packages instead.
	URL string `json:"url,omitempty"`
	// Suite is that of a deb repository, such as "bookworm"; "./" if it has none.
	Suite string `json:"suite,omitempty" template:"runtime"`
	// Components are those of a deb repository, such as "main".
	Components []string `json:"components,omitempty"`
	// Packages are names, each with a version or the beginning of one: "libcuda1={{.DriverVersion}}". Without a version
	// it is the newest.
	Packages []string `json:"packages,omitempty" template:"runtime"`
	// OptionalPackages are taken as well, in the version of the others, if the repository has them.
	OptionalPackages []string `json:"optionalPackages,omitempty" template:"runtime"`
	// Also are further repositories. Each is asked if the ones before it do not have the packages.
	Also []Pocket `json:"also,omitempty"`
	// Devices is the range of device ids that the driver from this source supports, such as "1e00-ffff". The source is
	// skipped on a host that has a device of the kind outside it.
	Devices string `json:"devices,omitempty"`
	// Push publishes what this host built to Image, so that hosts with the same kernel build only once.
	Push bool `json:"push,omitempty"`
}

// PackageSet names packages of one repository, or of a directory of the host.
type PackageSet struct {
	Format string `json:"format"` // "deb" or "rpm"
	// URL is the repository's, such as "https://deb.example.org/debian"; Path is a directory with packages instead.
	URL  string `json:"url,omitempty"`
	Path string `json:"path,omitempty"`
	// Mirrors are URLs with the same content that are tried first, in order.
	Mirrors []string `json:"mirrors,omitempty"`
	// Suite is that of a deb repository, such as "bookworm"; "./" if it has none.
	Suite string `json:"suite,omitempty" template:"runtime"`
	// Components are those of a deb repository, such as "main".
	Components []string `json:"components,omitempty"`
	// Packages are names, each with a version or the beginning of one: "linux-headers-{{.KernelVersion}}". Without a
	// version it is the newest.
	Packages []string `json:"packages" template:"runtime"`
	// OptionalPackages are taken as well, in the version of the others, if the repository has them.
	OptionalPackages []string `json:"optionalPackages,omitempty" template:"runtime"`
	// Also are further repositories. Each is asked if the ones before it do not have the packages.
	Also []Pocket `json:"also,omitempty"`
	// Keys are files with OpenPGP keys, one of which must have signed the repository, or each package of a directory.
	Keys []string `json:"keys,omitempty"`
	// CA is a PEM file with the certificate authority of the server, Proxy the HTTP proxy for it.
	CA    string `json:"ca,omitempty"`
	Proxy string `json:"proxy,omitempty"`
}

// Pocket is another repository of packages with the components and the keys of the first, such as that of a
// distribution's security updates.
type Pocket struct {
	// URL is that of the repository.
	URL string `json:"url"`
	// Mirrors are URLs with the same content that are tried first, in order.
	Mirrors []string `json:"mirrors,omitempty"`
	// Suite is that of a deb repository, such as "bookworm-security".
	Suite string `json:"suite,omitempty" template:"runtime"`
}

// Holders says what an upgrade does about the users of the driver.
type Holders string

// The policies.
const (
	HoldersRefuse Holders = "refuse" // nothing changes while the driver is in use; the default
	HoldersWait   Holders = "wait"   // no new allocations; the upgrade continues when the last user has ended
	HoldersEvict  Holders = "evict"  // like wait, but pods that use the driver are evicted
)

// UpgradePolicy says how another driver replaces one that is in use.
type UpgradePolicy struct {
	// Holders says what happens about those who use the old driver.
	Holders Holders `json:"holders,omitempty"`
	// Timeout is how long to wait for users to end, such as "30m". After that this attempt ends and the old driver
	// keeps serving. Empty: no limit.
	Timeout string `json:"timeout,omitempty" form:"duration"`
	// Adopt allows acceld to replace a driver that it did not load. Without it acceld only reports such a driver.
	Adopt bool `json:"adopt,omitempty"`
	// Asked is when somebody requested an upgrade (`acceld driver upgrade`). acceld then queries the sources again
	// even if version and parameters already match, and retries a driver that was rolled back. Zero if nobody did.
	Asked time.Time `json:"asked,omitzero"`
	// By names the cluster policy that orders upgrades: a driver that is ready is not used before the node has its
	// grant. The agent sets it; empty when no policy orders them.
	By string `json:"by,omitempty"`
	// Digest identifies what that policy asks of the driver. The agent sets it; empty if the policy does not fit the
	// definition.
	Digest string `json:"digest,omitempty"`
}

// Signer names the files used to sign modules, as scripts/sign-file of the kernel does.
type Signer struct {
	Key         string `json:"key"`            // PEM, readable by root only
	Certificate string `json:"certificate"`    // PEM or DER, X.509
	Hash        string `json:"hash,omitempty"` // "sha256" (the default), "sha384" or "sha512"
}

// Runtime holds the facts that templates in a definition may use.
type Runtime struct {
	KernelVersion             string // uname -r
	KernelBase                string // uname -r without flavour and architecture, such as "6.1.0-47"
	OperatingSystemMajor      string // such as "debian12"
	OperatingSystemMajorMinor string // such as "rhel9.4"
	RuntimeArchitecture       string // GOARCH
	HardwareResource          string // the kind
	NodeFeature               string // the label that marks a node with this hardware
	ClusterVersion            string // of the API server, such as "1.37"; empty without a cluster
	DriverVersion             string
	DriverBranch              string // the first part of DriverVersion, such as "535" of "535.309.01"
	// the directory of the kernel's build headers; only in the make arguments of a build
	KernelHeaders string
	// the PCI address of a device; only in validate.argv, whose program then runs for each device
	Address string
}

// NodeSource finds device nodes of an accelerator, by Glob in sysfs or by Make.
type NodeSource struct {
	// Glob is relative to the device's sysfs directory, such as "accel/edu*", or begins with "/sys/". Every directory
	// that it matches and that has a "dev" file is one device node, named by DEVNAME in its uevent file; "." is the
	// device. {{.Address}} is the function's address, and {{.IOMMUGroup}} the number of its IOMMU group, or that of the
	// partition's own function.
	Glob string `json:"glob,omitempty" template:"node" privileged:"gives out nodes of other devices" unless:"own"`
	// Siblings are the sysfs directories of further nodes of the same device that are not below the device, such as
	// "/sys/class/accel/accel_controlD{{.Number}}". The number is the trailing number of the name that Glob matched.
	Siblings []string `json:"siblings,omitempty" template:"device" privileged:"gives out nodes of other devices" unless:"numbered"`
	// Make describes a node that sysfs does not show at all.
	Make *MadeNode `json:"make,omitempty" privileged:"makes device nodes"`
	// Permissions are for the device cgroup; "rw" when empty.
	Permissions string `json:"permissions,omitempty"`
	// Optional nodes are given to containers if they exist; a missing one is not a fault.
	Optional bool `json:"optional,omitempty"`
}

// CDIName returns the fully qualified CDI name of a device or partition of the kind: "qemu.org/edu=0000:01:00.0".
func (def *Definition) CDIName(id string) string { return def.Resource + "=" + id }

// Permissions returns the combined permissions of all sources, "rw" if they name none. The default of CDI is "rwm",
// which lets a container create nodes. An invalid letter is kept, so that validation finds it.
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

// MadeNode is a device node that the driver leaves to others to create. acceld creates it if nobody has.
type MadeNode struct {
	// Path is the node, such as "/dev/gpu{{.Number}}"; the number is the minor number.
	Path string `json:"path" template:"device"`
	// Majors are names in the table of character devices, /proc/devices; the first one found there gives the major
	// number.
	Majors []string `json:"majors"`
	// Minor is the minor number if it is fixed.
	Minor uint32 `json:"minor,omitempty"`
	// MinorFrom is an attribute (see HealthSource.File) that holds the minor number of the device.
	MinorFrom string `json:"minorFrom,omitempty" template:"device"`
	// Mode is octal, "0666" when empty.
	Mode string `json:"mode,omitempty"`
	// Module is the module that serves the node. While it is not loaded, no node is expected.
	Module string `json:"module,omitempty"`
}

// LogRule says what lines of the kernel log mean. Only lines written by the kernel itself count.
type LogRule struct {
	// Match is a regular expression (RE2) for a part of the line. Its group "device" is the PCI address in any form
	// that drivers use (0000:01:00.0, 0000:01:00, 01:00.0); without the group, and always outside PCI, the record's
	// DEVICE field identifies the device. Its group "code" selects an entry of Codes; without the group, or for a code
	// that is not listed, Otherwise applies. The first rule that matches a line wins.
	Match string `json:"match"`
	// Code is the code of lines if Match has no group for it. Rules may share a code. The newest line of a code wins,
	// so a line that is only counted cancels the verdict of an earlier one.
	Code string `json:"code,omitempty"`
	// Codes says what each code means.
	Codes map[string]Verdict `json:"codes,omitempty"`
	// Otherwise is the verdict for any other line; if it is empty, the line is only counted.
	Otherwise Verdict `json:"otherwise,omitzero"`
}

// Verdict is what an error means for the device.
type Verdict struct {
	// Title tells people what happened, such as "memory page retired".
	Title string `json:"title,omitempty"`
	// State is "degraded" or "unhealthy"; empty if the error is only counted.
	State HealthState `json:"state,omitempty"`
	// Action is what to do: "RestartWorkload", "ResetDevice", "Reboot" or "Service".
	Action Action `json:"action,omitempty"`
	// For is how long one line counts at most, such as "10m". In any case it stops counting when the driver is bound
	// to the device again, or the host boots.
	For string `json:"for,omitempty" form:"duration"`
}
