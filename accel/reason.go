package accel

import "slices"

// Reason is a stable code for why something is not as configured. Labels, metrics, events, the node condition and
// `acceld status` use the same text.
type Reason string

// Actor is who must act on a reason.
type Actor string

// The actors.
const (
	ActorAgent    Actor = "acceld"        // acceld recovers by itself, given time
	ActorOperator Actor = "node operator" // somebody with root on the node
	ActorCluster  Actor = "cluster admin" // somebody with rights in the cluster
	ActorVendor   Actor = "driver vendor"
	ActorHardware Actor = "hardware" // someone has to work on the machine
)

// ReasonDoc documents one reason.
type ReasonDoc struct {
	Reason Reason
	// Sentence says what happened.
	Sentence string
	// Actor is who must act.
	Actor Actor
	// Remedy says what to do.
	Remedy string
	// Permanent is true if a retry cannot help unless the machine or the configuration changes.
	Permanent bool
}

// The reasons. [Reasons] documents each of them.
const (
	InternalError        Reason = "InternalError"
	ConfigInvalid        Reason = "ConfigInvalid"
	ConfigPending        Reason = "ConfigPending"
	DefinitionInvalid    Reason = "DefinitionInvalid"
	PermissionDenied     Reason = "PermissionDenied"
	ReadOnly             Reason = "ReadOnly"
	ViewOutdated         Reason = "ViewOutdated"
	NoSpace              Reason = "NoSpace"
	AlreadyRunning       Reason = "AlreadyRunning"
	ProbeUnanswered      Reason = "ProbeUnanswered"
	NoDriverSource       Reason = "NoDriverSource"
	SourceMissing        Reason = "SourceMissing"
	SourceInvalid        Reason = "SourceInvalid"
	HeadersMissing       Reason = "HeadersMissing"
	CompilerMissing      Reason = "CompilerMissing"
	BuildFailed          Reason = "BuildFailed"
	BuildTimeout         Reason = "BuildTimeout"
	ModuleInvalid        Reason = "ModuleInvalid"
	ArchMismatch         Reason = "ArchMismatch"
	KernelMismatch       Reason = "KernelMismatch"
	KernelUnknown        Reason = "KernelUnknown"
	DigestMismatch       Reason = "DigestMismatch"
	SymbolMismatch       Reason = "SymbolMismatch"
	SymbolMissing        Reason = "SymbolMissing"
	ParameterUnknown     Reason = "ParameterUnknown"
	ParameterInvalid     Reason = "ParameterInvalid"
	ParametersDiffer     Reason = "ParametersDiffer"
	DependencyMissing    Reason = "DependencyMissing"
	FirmwareMissing      Reason = "FirmwareMissing"
	Unsigned             Reason = "Unsigned"
	KeyUnknown           Reason = "KeyUnknown"
	LockedDown           Reason = "LockedDown"
	ModulesDisabled      Reason = "ModulesDisabled"
	OtherModuleLoaded    Reason = "OtherModuleLoaded"
	InUse                Reason = "InUse"
	ConflictDriver       Reason = "ConflictDriver"
	ProbeFailed          Reason = "ProbeFailed"
	NodeMissing          Reason = "NodeMissing"
	LoadTimeout          Reason = "LoadTimeout"
	LoadFailed           Reason = "LoadFailed"
	RebootRequired       Reason = "RebootRequired"
	Quarantined          Reason = "Quarantined"
	CheckFailed          Reason = "CheckFailed"
	RuntimeMissingCDI    Reason = "RuntimeWithoutCDI"
	SpecConflict         Reason = "SpecConflict"
	SpecInvalid          Reason = "SpecInvalid"
	HookMissing          Reason = "HookMissing"
	KubeletAbsent        Reason = "KubeletAbsent"
	RegistrationFailed   Reason = "RegistrationFailed"
	AllocatableDiffers   Reason = "AllocatableDiffers"
	APIUnreachable       Reason = "APIUnreachable"
	APIForbidden         Reason = "APIForbidden"
	NodeNotFound         Reason = "NodeNotFound"
	CollectFailed        Reason = "CollectFailed"
	DeviceGone           Reason = "DeviceGone"
	DeviceUnhealthy      Reason = "DeviceUnhealthy"
	DeviceFault          Reason = "DeviceFault"
	DeviceUnreachable    Reason = "DeviceUnreachable"
	BusErrors            Reason = "BusErrors"
	LinkDegraded         Reason = "LinkDegraded"
	LimitExceeded        Reason = "LimitExceeded"
	Unstable             Reason = "Unstable"
	CannotReset          Reason = "CannotReset"
	ResetShared          Reason = "ResetShared"
	ResetFailed          Reason = "ResetFailed"
	BeingReset           Reason = "BeingReset"
	ArtifactNotFound     Reason = "ArtifactNotFound"
	ArtifactInvalid      Reason = "ArtifactInvalid"
	RegistryUnreachable  Reason = "RegistryUnreachable"
	RegistryDenied       Reason = "RegistryDenied"
	SignatureInvalid     Reason = "SignatureInvalid"
	BuildElsewhere       Reason = "BuildElsewhere"
	BuildOutOfMemory     Reason = "BuildOutOfMemory"
	CompilerMismatch     Reason = "CompilerMismatch"
	SigningFailed        Reason = "SigningFailed"
	Blacklisted          Reason = "Blacklisted"
	FirmwareConflict     Reason = "FirmwareConflict"
	RolledBack           Reason = "RolledBack"
	RollbackFailed       Reason = "RollbackFailed"
	EvictionRefused      Reason = "EvictionRefused"
	RuntimeConfigInvalid Reason = "RuntimeConfigInvalid"
	RuntimeRestartNeeded Reason = "RuntimeRestartNeeded"
	RuntimeDown          Reason = "RuntimeDown"
	HooksUnread          Reason = "HooksUnread"
	FileChanged          Reason = "FileChanged"
	StepFailed           Reason = "StepFailed"
	PrerequisitePending  Reason = "PrerequisitePending"
	LibraryMismatch      Reason = "LibraryMismatch"
	LedgerDamaged        Reason = "LedgerDamaged"
	ClaimUnusable        Reason = "ClaimUnusable"
	CheckpointDamaged    Reason = "CheckpointDamaged"
	ClaimsUnsupported    Reason = "ClaimsUnsupported"
	DeviceHeld           Reason = "DeviceHeld"
	DevicePartitioned    Reason = "DevicePartitioned"
	PartitionAbsent      Reason = "PartitionAbsent"
	WaitingForSlot       Reason = "WaitingForSlot"
	NotProven            Reason = "NotProven"
	DriverChanging       Reason = "DriverChanging"
	SpecPending          Reason = "SpecPending"
	PolicyInvalid        Reason = "PolicyInvalid"
)

// Reasons returns the documentation of every reason, in the order of docs/reasons.md.
func Reasons() []ReasonDoc {
	return slices.Concat(hostReasons(), driverReasons(), nodeReasons(), claimReasons(), changeReasons())
}

// hostReasons returns the reasons that concern the host and acceld itself.
func hostReasons() []ReasonDoc {
	return []ReasonDoc{
		{InternalError, "Something happened that acceld has no name for.", ActorAgent, "Report it with the output of `acceld doctor -o json`.", false},
		{ConfigInvalid, "The configuration file or a flag cannot be used.", ActorOperator, "Correct what is named and restart the agent; `acceld doctor` checks it without starting.", true},
		{ConfigPending, "The configuration has a change that takes effect with the next start of the agent.", ActorOperator, "Restart the agent: `systemctl restart acceld`, or delete its pod.", false},
		{DefinitionInvalid, "A definition file cannot be used.", ActorOperator, "Correct the named field; the other definitions stay in force.", true},
		{PermissionDenied, "The agent lacks a right on the named file or system call.", ActorOperator, "Run it as root with CAP_SYS_MODULE, or as the privileged DaemonSet.", false},
		{ReadOnly, "The named directory is on a read-only file system.", ActorOperator, "Make /var/lib/acceld (or the named directory) writable; nothing was changed.", false},
		{ViewOutdated, "The agent cannot write a directory that came into being after it started, because its service is confined to what was there before.", ActorAgent, "None under systemd: the agent ends and is started again, which touches neither drivers nor containers. Otherwise restart it.", false},
		{NoSpace, "The file system of the named directory is full.", ActorOperator, "Free space; the step is tried again by itself.", false},
		{AlreadyRunning, "Another acceld works on this host.", ActorOperator, "Stop one of the two: the DaemonSet or the systemd unit.", false},
		{ProbeUnanswered, "A probe could not answer; the last answer is kept.", ActorAgent, "None while it is short; see the sentence for what did not answer.", false},
	}
}

// driverReasons returns the reasons that concern kernel modules.
func driverReasons() []ReasonDoc {
	return []ReasonDoc{
		{NoDriverSource, "No configured source has the driver for this kernel.", ActorOperator, "Install the driver or its source, or add a source to the definition; the sentence lists what was tried.", false},
		{SourceMissing, "The source tree of a build is not there.", ActorOperator, "Put the source at the named path.", false},
		{SourceInvalid, "The source tree of a build says how to build it in a way that acceld does not read.", ActorVendor, "Correct the named line, or set `system: make` or `system: kbuild` for the source in the definition.", true},
		{HeadersMissing, "The headers of the running kernel are not installed.", ActorOperator, "Install the named package.", false},
		{CompilerMissing, "A program that a build needs is not installed.", ActorOperator, "Install the named package.", false},
		{BuildFailed, "The kernel module did not compile.", ActorVendor, "The sentence is the compiler's first error; the log is in the store. Use a driver version that supports this kernel.", true},
		{BuildTimeout, "The build did not end within its time.", ActorOperator, "Look at the build log for what hangs.", false},
		{ModuleInvalid, "A module file is truncated or is not an ELF relocatable.", ActorOperator, "Replace the named file. It was not given to the kernel.", true},
		{ArchMismatch, "A module file is for another processor architecture.", ActorOperator, "Use the driver for this architecture.", true},
		{KernelMismatch, "A module file was built for another kernel.", ActorOperator, "Use the driver for the running kernel. The kernel might have loaded it all the same; acceld does not.", true},
		{KernelUnknown, "A kernel that is installed and not running does not tell which one it is.", ActorOperator, "Install its whole package; the sentence says what was looked for.", false},
		{DigestMismatch, "A file in the store is not the one that was put there.", ActorOperator, "Find out who changed it; the entry is not used.", true},
		{SymbolMismatch, "The module needs another version of a kernel symbol.", ActorVendor, "Build the driver against the headers of exactly this kernel.", true},
		{SymbolMissing, "The module needs a symbol that neither the kernel nor a loaded module has.", ActorVendor, "Load the named prerequisite first, or use a driver for this kernel.", true},
		{ParameterUnknown, "The module has no parameter of this name.", ActorOperator, "Correct the name; the kernel would have ignored it silently.", true},
		{ParameterInvalid, "The module refused the value of a parameter.", ActorOperator, "Correct the value.", true},
		{ParametersDiffer, "The module is loaded with other parameters than wanted.", ActorOperator, "Unload it when it is not in use (`acceld driver unload`); it is loaded again as wanted.", true},
		{DependencyMissing, "A module that must be loaded first is not on the host.", ActorOperator, "Install the package that holds the named module.", false},
		{FirmwareMissing, "A firmware file that the driver needs is not on the host.", ActorOperator, "Install the package that holds the named file.", false},
		{Unsigned, "The kernel takes signed modules only, and the module is unsigned.", ActorOperator, "Sign the module with an enrolled key.", true},
		{KeyUnknown, "The module is signed with a key that this kernel does not know.", ActorOperator, "Enrol the named key (mokutil --import) or sign with one that is enrolled.", true},
		{LockedDown, "The kernel is locked down and refuses this load.", ActorOperator, "Sign the module, or boot without lockdown.", true},
		{ModulesDisabled, "Loading modules is switched off until the next boot.", ActorOperator, "Remove kernel.modules_disabled=1 from sysctl and reboot.", true},
		{OtherModuleLoaded, "A module of the right name but of other content is loaded.", ActorOperator, "Unload it when it is not in use (`acceld driver unload`); acceld does not touch a driver it did not choose.", true},
		{InUse, "The driver, or the device, is in use by the named processes.", ActorOperator, "End the named processes or pods, then try again.", false},
		{ConflictDriver, "Another driver owns the device.", ActorOperator, "Do what the sentence says: allow `driver.takeover`, unbind the named driver or blacklist it.", true},
		{ProbeFailed, "The module was loaded and refused a device.", ActorVendor, "The sentence has the kernel's own words; look at the device.", true},
		{NodeMissing, "The driver is bound and a device node is missing.", ActorOperator, "Look at devtmpfs and udev on the host.", false},
		{LoadTimeout, "The module's initialisation did not end within its time.", ActorVendor, "The load goes on in the kernel; a reboot may be needed.", true},
		{LoadFailed, "The kernel refused the module for a reason that has no name here.", ActorVendor, "The sentence has the error number and the kernel's own words.", true},
		{RebootRequired, "The kernel is in a state that only a reboot clears.", ActorOperator, "Reboot the node.", true},
		{Quarantined, "Two loads of this driver ended uncleanly; it is not tried a third time.", ActorOperator, "Use another driver version, or clear it with `acceld driver ensure --retry`.", true},
		{CheckFailed, "The driver is there and the device does not compute.", ActorHardware, "Look at the device; the sentence says what was asked and what came back.", false},
	}
}

// nodeReasons returns the reasons that concern the container runtime, kubelet, API server and devices.
func nodeReasons() []ReasonDoc {
	return []ReasonDoc{
		{RuntimeMissingCDI, "The container runtime does not read CDI specs.", ActorOperator, "Allow the change with `runtime.edit: full`, use a runtime with CDI, or set `cdi: false` for device specs.", true},
		{SpecConflict, "Another CDI spec defines the same device.", ActorOperator, "Remove the named file: with both, the runtime gives out neither.", false},
		{SpecInvalid, "The CDI spec would not be accepted by the runtime.", ActorVendor, "Correct the definition's container edits.", true},
		{HookMissing, "The hook's program is not on the host.", ActorOperator, "Install acceld-hook beside acceld, or set `hook: false`.", false},
		{KubeletAbsent, "No kubelet listens on the host.", ActorOperator, "Start the kubelet; registration follows by itself.", false},
		{RegistrationFailed, "The kubelet refused the registration.", ActorAgent, "It is tried again with a new socket; the sentence has the kubelet's own words.", false},
		{AllocatableDiffers, "The kubelet's allocatable is not the number of healthy devices.", ActorAgent, "Registration is renewed by itself when it lasts.", false},
		{APIUnreachable, "The API server does not answer; labels, condition and events wait, and definitions that need the version of the cluster.", ActorCluster, "None on the node: devices stay usable and everything is written when it answers.", false},
		{APIForbidden, "The API server refuses a write to the own node.", ActorCluster, "Apply the RBAC manifest of this version.", false},
		{NodeNotFound, "The cluster has no node of this name.", ActorOperator, "Set `node` in the configuration to the kubelet's node name.", false},
		{CollectFailed, "An attribute that metrics or health are read from did not answer.", ActorVendor, "The sentence names the file; look at the kernel log.", false},
		{DeviceGone, "The device is no longer on the PCI bus.", ActorHardware, "Look at the slot; when the device comes back it is used again by itself.", false},
		{DeviceUnhealthy, "The device reports an error.", ActorHardware, "The sentence is the driver's own; when it clears, the device is used again by itself.", false},
		{DeviceFault, "The driver has reported an error of the device.", ActorHardware, "Do what the sentence says; the device is used again when its driver was bound again, or the error is old enough.", false},
		{DeviceUnreachable, "The device answers nothing any more: every byte of its configuration space reads as ff, or its driver has lost it.", ActorHardware, "Reboot the node; when it comes back so, look at slot and power.", false},
		{BusErrors, "PCI Express has counted errors of the device or of the port above it.", ActorHardware, "Look at slot, riser and cables; fatal ones need a reset (`acceld reset`).", false},
		{LinkDegraded, "The PCI Express link has fewer lanes, or is slower, than device and port can do.", ActorHardware, "Seat the card again; look at the slot's wiring in the machine's manual.", false},
		{LimitExceeded, "A reading of the device is above its limit.", ActorHardware, "Look at cooling and power; it clears by itself.", false},
		{Unstable, "The device has become unhealthy and well again too often in short time.", ActorHardware, "Look at the device; it is used again when it was well for a while.", false},
		{CannotReset, "The device cannot be reset on its own.", ActorOperator, "Do what the sentence says, or reboot the node; nothing was changed.", true},
		{ResetShared, "A reset of the device would reset others too.", ActorOperator, "When nobody uses the others either, name all of them in one command; nothing was changed.", true},
		{ResetFailed, "The reset of a device failed.", ActorHardware, "The sentence has the kernel's own words; try again, or reboot the node.", false},
		{BeingReset, "Somebody resets the device (`acceld reset`).", ActorAgent, "None: it is offered again when its driver is bound again and it has computed.", false},
	}
}

// claimReasons returns the reasons that concern resource claims, and why a device is not offered.
func claimReasons() []ReasonDoc {
	return []ReasonDoc{
		{ClaimUnusable, "A resource claim cannot be prepared as it is.", ActorCluster, "Correct what the sentence names in the claim, its template or the device class; the pod is tried again by itself.", false},
		{CheckpointDamaged, "The record of a prepared claim cannot be read.", ActorAgent, "None: the claim is read again from the API server when its pod needs it.", false},
		{ClaimsUnsupported, "The API server does not serve resource.k8s.io/v1.", ActorCluster, "Use Kubernetes 1.34 or later, or set `allocation: devicePlugin` for the kind.", false},
		{NotProven, "A device has not passed its self-test with the driver that is live.", ActorAgent, "None: it is offered as soon as it has passed. If it does not, the kind's state says why.", false},
		{DriverChanging, "The driver of a device is being replaced, or is to be as soon as nobody uses it.", ActorAgent, "None: the device is offered again when the other driver works. `acceld status` says what the upgrade waits for.", false},
		{SpecPending, "The files by which containers get a device are not written yet.", ActorAgent, "None: it is offered as soon as they are. If that fails, the kind's state says why.", false},
		{DeviceHeld, "A pod holds a device as it was offered before: by another way of allocation, under another name, or as a part.", ActorAgent, "None: the device is offered as soon as the pod has ended.", false},
		{DevicePartitioned, "A device is divided into partitions and not given out whole.", ActorAgent, "None: its partitions are offered. It is offered whole as soon as it is not divided any more.", false},
		{PartitionAbsent, "A device is not divided into the partition, though it could be.", ActorOperator, "Divide the device with the tools of its vendor if the partition is wanted.", false},
	}
}

// changeReasons returns the reasons that concern prebuilt drivers, builds, upgrades and changes to a container
// runtime.
func changeReasons() []ReasonDoc {
	return []ReasonDoc{
		{ArtifactNotFound, "No registry has a prebuilt driver for this kernel.", ActorOperator, "Push one (`acceld driver build --push`), or let it be built; the sentence names what was asked.", false},
		{ArtifactInvalid, "A prebuilt artifact is not one that acceld can use.", ActorOperator, "Push it again; nothing of it was kept.", true},
		{RegistryUnreachable, "The registry does not answer.", ActorOperator, "Look at the network, the proxy and the certificate authority; it is asked again by itself.", false},
		{RegistryDenied, "The registry refuses the credentials.", ActorOperator, "Correct the file named in `credentials`; it is read again at each request.", false},
		{SignatureInvalid, "An artifact is not signed by one of the wanted keys.", ActorOperator, "Sign it, or correct `keys`. A bad signature is never followed by a build.", true},
		{BuildElsewhere, "Another node builds this driver; this one waits for it.", ActorAgent, "None: the artifact is used as soon as it is there, and if the builder gives up this node builds.", false},
		{BuildOutOfMemory, "The build was ended because it used more memory than it may.", ActorOperator, "Raise `build.memory` or lower `build.jobs`.", true},
		{CompilerMismatch, "The compiler is not the one that the kernel was built with, and this kernel needs the same.", ActorOperator, "Install the named compiler.", true},
		{SigningFailed, "A module could not be signed with the given key.", ActorOperator, "Correct the named key or certificate.", true},
		{Blacklisted, "The module is forbidden on this host, by modprobe.d or the kernel's command line.", ActorOperator, "Remove the named line if the driver is wanted.", true},
		{FirmwareConflict, "A firmware file of another content is in the place.", ActorOperator, "Remove or update the named file; acceld does not overwrite it.", true},
		{RolledBack, "The new driver failed and the one before serves again.", ActorVendor, "The sentence says what failed; the new driver is not tried again until it, the kernel or the configuration changes.", true},
		{RollbackFailed, "The new driver failed and the one before could not be loaded back: no driver serves.", ActorOperator, "The sentence says why both failed; the one before is tried again by itself. Look at the kernel log; reboot if modules are stuck.", false},
		{WaitingForSlot, "The new driver is ready and waits for the cluster's controller to let this node go on.", ActorCluster, "None while the policy's limits hold it back; `kubectl get acceleratorpolicies` says what it waits for. Without the controller nothing goes on.", false},
		{PolicyInvalid, "A policy of the cluster cannot be used on this node.", ActorCluster, "Correct the named field of the AcceleratorPolicy; what was in force stays.", true},
		{EvictionRefused, "The API server refuses to evict a pod that uses the driver.", ActorCluster, "Look at the pod's disruption budget; eviction is tried again by itself.", false},
		{RuntimeConfigInvalid, "The container runtime's configuration cannot be read, or would not be valid with ours.", ActorOperator, "Correct the named file; nothing was changed.", true},
		{RuntimeRestartNeeded, "A change of the container runtime's configuration waits for its restart.", ActorOperator, "Restart the named service, or set `runtime.restart: idle`.", false},
		{RuntimeDown, "The container runtime did not come back after a change; the change was taken back.", ActorOperator, "Look at the journal of the named service.", true},
		{HooksUnread, "The container runtime does not read the directory that the hook is in.", ActorOperator, "Restart the runtime, or correct its hooks_dir; the sentence names the directory.", false},
		{FileChanged, "A file that acceld wrote was changed by somebody else and is left as it is.", ActorOperator, "Look at the named file and remove what is not wanted.", false},
		{StepFailed, "A step of the definition's own failed.", ActorOperator, "The sentence names the step and has its own words; it is tried again by itself.", false},
		{PrerequisitePending, "A kind that this one needs has no working driver yet.", ActorAgent, "None here; look at the named kind.", false},
		{LibraryMismatch, "A user-space library on the host is not of the loaded driver's version.", ActorOperator, "Install the library and the driver in one version, or reboot into the new driver.", false},
		{LedgerDamaged, "The record of what acceld changed on this host cannot be read.", ActorOperator, "Restore the named file, or move it away: `acceld purge` then takes back only what it recognises as its own by content.", true},
	}
}

// Doc returns the documentation of r. An unknown code gets the documentation of InternalError.
func (r Reason) Doc() ReasonDoc {
	all := Reasons()
	for _, d := range all {
		if d.Reason == r {
			return d
		}
	}
	return all[0]
}
