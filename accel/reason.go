package accel

import (
	"slices"
	"strings"
)

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
	PartFailed           Reason = "PartFailed"
	EndpointUnavailable  Reason = "EndpointUnavailable"
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
	CheckNotRun          Reason = "CheckNotRun"
	RuntimeMissingCDI    Reason = "RuntimeWithoutCDI"
	SpecConflict         Reason = "SpecConflict"
	SpecInvalid          Reason = "SpecInvalid"
	HookMissing          Reason = "HookMissing"
	FileConflict         Reason = "FileConflict"
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
	DeviceContested      Reason = "DeviceContested"
	GroupShared          Reason = "GroupShared"
	NodeShared           Reason = "NodeShared"
	NoIOMMUGroup         Reason = "NoIOMMUGroup"
	LinkDegraded         Reason = "LinkDegraded"
	LimitExceeded        Reason = "LimitExceeded"
	Unstable             Reason = "Unstable"
	CannotReset          Reason = "CannotReset"
	ResetShared          Reason = "ResetShared"
	ResetFailed          Reason = "ResetFailed"
	BeingReset           Reason = "BeingReset"
	UnderObservation     Reason = "UnderObservation"
	HandoverRefused      Reason = "HandoverRefused"
	LeftoverProcess      Reason = "LeftoverProcess"
	ScrubFailed          Reason = "ScrubFailed"
	SettingPending       Reason = "SettingPending"
	SettingFailed        Reason = "SettingFailed"
	SettingContested     Reason = "SettingContested"
	FunctionsUnsupported Reason = "FunctionsUnsupported"
	FunctionsRefused     Reason = "FunctionsRefused"
	FunctionsFewer       Reason = "FunctionsFewer"
	FunctionsInUse       Reason = "FunctionsInUse"
	UnrequestedUse       Reason = "UnrequestedUse"
	OtherUse             Reason = "OtherUse"
	SwitchRefused        Reason = "SwitchRefused"
	SwitchFailed         Reason = "SwitchFailed"
	NotGivenBack         Reason = "NotGivenBack"
	DivisionRefused      Reason = "DivisionRefused"
	DivisionFailed       Reason = "DivisionFailed"
	NotUndivided         Reason = "NotUndivided"
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
	LibraryMissing       Reason = "LibraryMissing"
	UserSpaceMissing     Reason = "UserSpaceMissing"
	CompanionDown        Reason = "CompanionDown"
	LedgerDamaged        Reason = "LedgerDamaged"
	ClaimUnusable        Reason = "ClaimUnusable"
	CheckpointDamaged    Reason = "CheckpointDamaged"
	ClaimsUnsupported    Reason = "ClaimsUnsupported"
	DeviceHeld           Reason = "DeviceHeld"
	DevicePartitioned    Reason = "DevicePartitioned"
	PartitionAbsent      Reason = "PartitionAbsent"
	WaitingForSlot       Reason = "WaitingForSlot"
	UnderMaintenance     Reason = "UnderMaintenance"
	NotProven            Reason = "NotProven"
	DriverChanging       Reason = "DriverChanging"
	SpecPending          Reason = "SpecPending"
	PolicyInvalid        Reason = "PolicyInvalid"
	PolicyRefused        Reason = "PolicyRefused"
)

// Reasons returns the documentation of every reason, in the order of docs/reasons.md.
func Reasons() []ReasonDoc {
	return slices.Concat(hostReasons(), driverReasons(), nodeReasons(), claimReasons(), changeReasons())
}

// hostReasons returns the reasons that concern the host and acceld itself.
func hostReasons() []ReasonDoc {
	return []ReasonDoc{
		{InternalError, "acceld met an error that it has no reason code for.", ActorAgent, "Report it with the output of `acceld doctor -o json`.", false},
		{PartFailed, "A part of the agent, or its work for one kind, has failed by an error in acceld.", ActorAgent, "None to keep serving: acceld starts it again, and the other parts and kinds are not affected. Report it with the agent's log, which has the stack.", false},
		{EndpointUnavailable, "The agent cannot listen on an address of its endpoint.", ActorOperator, "Free the port (`ss -ltnp` names its owner), or set another one in `endpoint`; acceld tries again by itself. The unix socket answers meanwhile.", false},
		{ConfigInvalid, "The configuration file or a flag cannot be used.", ActorOperator, "Correct the named setting and restart the agent; `acceld doctor` checks the configuration without starting it.", true},
		{ConfigPending, "A change of the configuration takes effect when the agent restarts.", ActorOperator, "Restart the agent: `systemctl restart acceld`, or delete its pod.", false},
		{DefinitionInvalid, "A definition file cannot be used.", ActorOperator, "Correct the named field; the other definitions stay in force.", true},
		{PermissionDenied, "The agent may not use the named file or system call.", ActorOperator, "Run it as root with CAP_SYS_MODULE, or as the privileged DaemonSet.", false},
		{ReadOnly, "The named directory is on a read-only file system.", ActorOperator, "Make /var/lib/acceld (or the named directory) writable; nothing was changed.", false},
		{ViewOutdated, "The agent cannot write to a directory that was created after it started, because its service is confined to the directories that existed then.", ActorAgent, "None under systemd: the agent exits and is restarted, which affects neither drivers nor containers. Otherwise restart it.", false},
		{NoSpace, "The file system of the named directory is full.", ActorOperator, "Free some space; acceld tries the step again by itself.", false},
		{AlreadyRunning, "Another acceld is running on this host.", ActorOperator, "Stop one of the two: the DaemonSet or the systemd unit.", false},
		{ProbeUnanswered, "A probe could not answer; the last answer is kept.", ActorAgent, "None if it is brief; the message says what did not answer.", false},
	}
}

// driverReasons returns the reasons that concern kernel modules.
func driverReasons() []ReasonDoc {
	return []ReasonDoc{
		{NoDriverSource, "No configured source has the driver for this kernel.", ActorOperator, "Install the driver or its source, or add a source to the definition or to `kinds.<kind>.driver.sources`.", false},
		{SourceMissing, "The source tree for a build is missing.", ActorOperator, "Put the source at the named path.", false},
		{SourceInvalid, "acceld cannot read how a source tree is built.", ActorVendor, "Correct the named line, or set `system: make` or `system: kbuild` for the source in the definition.", true},
		{HeadersMissing, "The headers of the running kernel are not installed.", ActorOperator, "Install the named package.", false},
		{CompilerMissing, "A program that a build needs is not installed.", ActorOperator, "Install the named package.", false},
		{BuildFailed, "The kernel module did not compile.", ActorVendor, "The message is the compiler's first error; the log is in the store. Use a driver version that supports this kernel.", true},
		{BuildTimeout, "The build did not finish in time.", ActorOperator, "Find out from the build log what hangs.", false},
		{ModuleInvalid, "A module file is truncated or not a relocatable ELF file.", ActorOperator, "Replace the named file. It was not given to the kernel.", true},
		{ArchMismatch, "A module file is for another processor architecture.", ActorOperator, "Use the driver for this architecture.", true},
		{KernelMismatch, "A module file was built for another kernel.", ActorOperator, "Use the driver for the running kernel. acceld does not load this one, even if the kernel would.", true},
		{KernelUnknown, "acceld cannot tell which build of a kernel is installed.", ActorOperator, "Install the kernel's complete package; the message says what acceld looked for.", false},
		{DigestMismatch, "A file in the store has changed since it was put there.", ActorOperator, "Find out who changed it; acceld does not use the entry.", true},
		{SymbolMismatch, "The module needs another version of a kernel symbol.", ActorVendor, "Build the driver against the headers of exactly this kernel.", true},
		{SymbolMissing, "The module needs a symbol that neither the kernel nor a loaded module has.", ActorVendor, "Load the named prerequisite first, or use a driver for this kernel.", true},
		{ParameterUnknown, "The module has no parameter with this name.", ActorOperator, "Correct the name; the kernel would ignore it silently.", true},
		{ParameterInvalid, "The module refused the value of a parameter.", ActorOperator, "Correct the value.", true},
		{ParametersDiffer, "The module is loaded with parameters other than the configured ones.", ActorOperator, "Unload it when it is not in use (`acceld driver unload`); acceld then loads it with the configured parameters.", true},
		{DependencyMissing, "A module that must be loaded first is not on the host.", ActorOperator, "Install the package that contains the named module.", false},
		{FirmwareMissing, "A firmware file that the driver needs is not on the host.", ActorOperator, "Install the package that contains the named file.", false},
		{Unsigned, "The kernel accepts only signed modules, and this one is unsigned.", ActorOperator, "Sign the module with an enrolled key.", true},
		{KeyUnknown, "The module is signed with a key that this kernel does not know.", ActorOperator, "Enrol the named key (mokutil --import), or sign the module with an enrolled key.", true},
		{LockedDown, "The kernel is locked down and refuses this load.", ActorOperator, "Sign the module, or boot without lockdown.", true},
		{ModulesDisabled, "Loading modules is switched off until the next boot.", ActorOperator, "Remove kernel.modules_disabled=1 from sysctl and reboot.", true},
		{OtherModuleLoaded, "A module with the right name but different content is loaded.", ActorOperator, "Unload it when it is not in use (`acceld driver unload`); acceld does not touch a driver it did not choose.", true},
		{InUse, "The driver, or the device, is in use by the named processes.", ActorOperator, "End the named processes or pods, then try again.", false},
		{ConflictDriver, "Another driver owns the device.", ActorOperator, "Do what the message says: allow `driver.takeover`, unbind the named driver or blacklist it.", true},
		{ProbeFailed, "The module was loaded but refused a device.", ActorVendor, "The message quotes the kernel if it said anything; check the device. A driver that knows no devices by their ids, such as those for virtual machines, needs `driver.override` in the definition.", true},
		{NoIOMMUGroup, "A device is in no IOMMU group, and containers of its kind are to get the node of the group.", ActorOperator, "Switch the IOMMU on: in the firmware, and on the kernel's command line if it is off there. In a virtual machine, give it an IOMMU.", true},
		{NodeMissing, "The driver is bound but a device node is missing.", ActorOperator, "Check devtmpfs and udev on the host.", false},
		{LoadTimeout, "The module did not finish its initialisation in time.", ActorVendor, "The load continues in the kernel; a reboot may be needed.", true},
		{LoadFailed, "The kernel refused the module for a reason that acceld has no code for.", ActorVendor, "The message has the error number and quotes the kernel.", true},
		{RebootRequired, "The kernel is in a state that only a reboot clears.", ActorOperator, "Reboot the node.", true},
		{Quarantined, "Two loads of this driver ended uncleanly; acceld does not try a third.", ActorOperator, "Use another driver version, or clear it with `acceld driver ensure --retry`.", true},
		{CheckFailed, "The driver is loaded but the device fails its self-test.", ActorHardware, "Check the device; the message says what the test asked and what came back.", false},
		{CheckNotRun, "The self-test of a device did not get as far as a result.", ActorOperator, "Do what the message says: the driver's user space, the rights to the device nodes or a service that the device needs is at fault.", false},
	}
}

// nodeReasons returns the reasons that concern the container runtime, kubelet, API server and devices.
func nodeReasons() []ReasonDoc {
	return []ReasonDoc{
		{RuntimeMissingCDI, "The container runtime does not read CDI specs.", ActorOperator, "Allow the change with `runtime.edit: full`, use a runtime with CDI, or set `cdi: false` to use device specs.", true},
		{SpecConflict, "Another CDI spec defines the same device.", ActorOperator, "Remove the named file: while both exist, the runtime gives out neither.", false},
		{SpecInvalid, "The runtime would not accept the CDI spec.", ActorVendor, "Correct the definition's container edits.", true},
		{FileConflict, "Another file is in the place of a link that acceld was asked to make.", ActorOperator, "Remove the named file, usually by removing the package that it belongs to, or unset `driver.userSpace.host`; acceld does not overwrite it.", true},
		{HookMissing, "The hook program is not on the host.", ActorOperator, "Install acceld-hook next to acceld, or set `hook: false`.", false},
		{KubeletAbsent, "No kubelet listens on the host.", ActorOperator, "Start the kubelet; acceld then registers by itself.", false},
		{RegistrationFailed, "The kubelet refused the registration.", ActorAgent, "None: acceld tries again with a new socket. The message quotes the kubelet.", false},
		{AllocatableDiffers, "The kubelet's allocatable count is not the number of healthy devices.", ActorAgent, "None: if it lasts, acceld registers again by itself.", false},
		{APIUnreachable, "The API server does not answer. Labels, the condition and events wait for it, and so do definitions that need the version of the cluster.", ActorCluster, "None on the node: devices stay usable, and acceld writes everything when the server answers.", false},
		{APIForbidden, "The API server does not let the agent write to its own node.", ActorCluster, "Apply the RBAC manifest of this version.", false},
		{NodeNotFound, "The cluster has no node with this name.", ActorOperator, "Set `node` in the configuration to the kubelet's node name.", false},
		{CollectFailed, "An attribute with a metric or the health of a device did not answer.", ActorVendor, "The message names the file; check the kernel log.", false},
		{DeviceGone, "The device is no longer on the PCI bus.", ActorHardware, "Check the slot; when the device comes back, acceld uses it again by itself.", false},
		{DeviceUnhealthy, "The device reports an error.", ActorHardware, "The message is from the driver; when the error clears, acceld uses the device again by itself.", false},
		{DeviceFault, "The driver reported an error of the device.", ActorHardware, "Do what the message says; acceld uses the device again once its driver has been bound again, or the error is old enough.", false},
		{DeviceUnreachable, "The device no longer answers: every byte of its configuration space reads as ff, or its driver has lost it.", ActorHardware, "Reboot the node; if that does not help, check slot and power.", false},
		{BusErrors, "PCI Express reported errors of the device or of a port above it.", ActorHardware, "Check slot, riser and cables; fatal errors need a reset (`acceld reset`).", false},
		{LinkDegraded, "The PCI Express link has fewer lanes, or is slower, than device and port support.", ActorHardware, "Reseat the card; check the slot's wiring in the machine's manual.", false},
		{LimitExceeded, "A reading of the device is above its limit.", ActorHardware, "Check cooling and power; it clears by itself.", false},
		{Unstable, "The device is flapping: it became unhealthy and healthy again too often in a short time.", ActorHardware, "Check the device; acceld uses it again when it has been healthy for a while.", false},
		{CannotReset, "The device cannot be reset on its own.", ActorOperator, "Do what the message says, or reboot the node; nothing was changed.", true},
		{ResetShared, "A reset of the device would reset others too.", ActorOperator, "If nobody uses the others either, name all of them in one command; nothing was changed.", true},
		{ResetFailed, "The reset of a device failed.", ActorHardware, "The message quotes the kernel; try again, or reboot the node.", false},
		{BeingReset, "The device is being reset (`acceld reset`).", ActorAgent, "None: acceld offers it again when its driver is bound and it has passed its self-test.", false},
		{UnderObservation, "The device was reset a short time ago (`repair.watch`).", ActorAgent, "None: acceld offers it again when it has stayed healthy for that time.", false},
		{HandoverRefused, "A container may not have its device yet: it is being cleaned, or its former tenant has not ended.", ActorAgent, "None: the kubelet, or whoever has started the container, tries again. The message says what the device waits for.", false},
		{LeftoverProcess, "A process has a device open that nobody was given to.", ActorOperator, "End the named processes, or set `handover.leftovers: kill` for the kind.", false},
		{ScrubFailed, "What a former tenant left on a device could not be removed.", ActorHardware, "Check the device and its driver; nobody gets the device until it is scrubbed. acceld tries again by itself.", false},
		{SettingPending, "What is configured about a device is not set yet.", ActorAgent, "None: the message says what it waits for. acceld offers the device as soon as it is set.", false},
		{SettingFailed, "A device does not have a setting that is configured.", ActorOperator, "Correct `settings` of the kind as the message says, or leave the setting out. The device is offered as it is.", false},
		{SettingContested, "Something else keeps changing a setting of a device, and acceld has stopped writing it.", ActorOperator, "Find what else sets it, such as a vendor's agent or a script at boot, and stop that, or leave the setting out. acceld begins again when the configuration changes.", false},
		{FunctionsUnsupported, "A device cannot have virtual functions: it has none (SR-IOV), or its driver makes none.", ActorOperator, "Leave `functions` out, or use a driver that makes them. The device may have to be told to in its firmware, with its vendor's tool.", false},
		{FunctionsRefused, "The driver of a device, or the kernel, refused to make the configured virtual functions.", ActorOperator, "The message quotes the kernel; its log says more. Often the machine's firmware lacks SR-IOV or memory for the functions (`pci=realloc`), or somebody has a function.", false},
		{FunctionsFewer, "More virtual functions are configured than a device, or its driver, allows.", ActorOperator, "Lower `functions.count` to what the message says. The device is as it was.", false},
		{FunctionsInUse, "The number of virtual functions of a device changes as soon as nobody has one of them.", ActorAgent, "None: the message says who has them. acceld gives out none of them meanwhile.", false},
		{UnrequestedUse, "A process uses a device although nobody gave it the device.", ActorCluster, "Let it request the device, or end it. If it may use every device, name its service or its namespace in `unrequested.beside` of the kind.", false},
		{OtherUse, "The device is given out with another driver than its kind's, such as VFIO, or is on the way there or back.", ActorAgent, "None: acceld offers it again when its claim is over, its own driver has it and it has passed its self-test.", false},
		{SwitchRefused, "A claim asks for a device in a use that the device cannot have now.", ActorCluster, "Do what the message says; nothing was changed. The kubelet tries again.", false},
		{SwitchFailed, "A device could not be given another driver.", ActorOperator, "The message quotes the kernel. The device went back to its own driver; the kubelet tries again.", false},
		{NotGivenBack, "A device that was given out with another driver could not go back to its own.", ActorOperator, "End whoever the message names, or check the kernel log. acceld tries again by itself and offers the device to nobody until then.", false},
		{DivisionRefused, "A claim asks for a part of a device that cannot be divided now.", ActorCluster, "Do what the message says; nothing was changed. The kubelet tries again.", false},
		{DivisionFailed, "A device could not be divided for a claim.", ActorOperator, "The message quotes the kernel or the program. The device was made whole again; acceld tries again when a claim asks.", false},
		{NotUndivided, "A device that was divided for claims could not be made whole again.", ActorOperator, "End whoever the message names, or check the kernel log. acceld tries again by itself.", false},
	}
}

// claimReasons returns the reasons that concern resource claims, and why a device is not offered.
func claimReasons() []ReasonDoc {
	return []ReasonDoc{
		{ClaimUnusable, "A resource claim cannot be prepared as it is.", ActorCluster, "Correct what the message names in the claim, its template or the device class; the kubelet tries the pod again by itself.", false},
		{CheckpointDamaged, "The record of a prepared claim cannot be read.", ActorAgent, "None: acceld reads the claim from the API server again when its pod needs it.", false},
		{ClaimsUnsupported, "The API server does not serve resource.k8s.io/v1.", ActorCluster, "Use Kubernetes 1.34 or later, or set `allocation: devicePlugin` for the kind.", false},
		{NotProven, "A device has not passed its self-test with the current driver.", ActorAgent, "None: acceld offers it as soon as it passes. If it does not, the kind's state says why.", false},
		{DriverChanging, "The driver of a device is being replaced, or will be as soon as nobody uses it.", ActorAgent, "None: acceld offers the device again when the new driver works. `acceld status` says what the upgrade waits for.", false},
		{SpecPending, "The files that give a device to containers are not written yet.", ActorAgent, "None: acceld offers it as soon as they are. If that fails, the kind's state says why.", false},
		{DeviceHeld, "A pod holds a device as it was offered before: by another way of allocation, under another name, or as a partition.", ActorAgent, "None: acceld offers the device as soon as the pod has ended.", false},
		{DevicePartitioned, "A device is divided into partitions and is not given out whole.", ActorAgent, "None: acceld offers its partitions, and the whole device as soon as it is no longer divided.", false},
		{PartitionAbsent, "A device is not divided into this partition, although it could be.", ActorOperator, "Divide the device with its vendor's tools if you want the partition.", false},
		{DeviceContested, "Several kinds recognise the same device; only the one that the message names has it.", ActorOperator, "Add an `except` row to one of the definitions, say in `after` which kind adds to which, or disable a kind.", false},
		{GroupShared, "A device shares its IOMMU group with another one, and the kernel gives a group to one owner.", ActorOperator, "None if that is intended: whoever has the device that the message names has the whole group. Otherwise put the cards into slots with groups of their own, or unbind the driver of the host that the message names.", false},
		{NodeShared, "Several devices of a kind resolve to the same device node.", ActorOperator, "Correct `nodes` of the definition, so that each device has its own. A node that all devices share belongs into `container.nodes`.", true},
	}
}

// changeReasons returns the reasons that concern prebuilt drivers, builds, upgrades and changes to a container
// runtime.
func changeReasons() []ReasonDoc {
	return []ReasonDoc{
		{ArtifactNotFound, "No registry has a prebuilt driver for this kernel, or no repository has a package of it.", ActorOperator, "Push one (`acceld driver build --push`), or let acceld build it; name a version that the repository has. The message names what acceld asked for.", false},
		{ArtifactInvalid, "acceld cannot use a prebuilt artifact, a package or an archive.", ActorOperator, "Push it again, or use another version; nothing of it was kept.", true},
		{RegistryUnreachable, "The registry, or the repository of packages, does not answer.", ActorOperator, "Check the network, the proxy and the certificate authority; acceld tries again by itself.", false},
		{RegistryDenied, "The registry refuses the credentials, or the repository of packages refuses access.", ActorOperator, "Correct the file named in `credentials`; acceld reads it again at each request.", false},
		{SignatureInvalid, "A driver, the source of one, or a repository of packages is not signed by a key that this host wants, or is out of date.", ActorOperator, "Sign it, use a mirror that is up to date, or correct `keys` or `trust`. acceld never builds a driver because of a bad signature.", true},
		{BuildElsewhere, "Another node is building this driver; this one waits for it.", ActorAgent, "None: this node uses the artifact as soon as it is there, and builds the driver itself if the other node gives up.", false},
		{BuildOutOfMemory, "The build was ended because it used more memory than allowed.", ActorOperator, "Raise `build.memory` or lower `build.jobs`.", true},
		{CompilerMismatch, "This kernel needs the compiler that it was built with, and the installed one is another.", ActorOperator, "Install the named compiler.", true},
		{SigningFailed, "A module could not be signed with the given key.", ActorOperator, "Correct the named key or certificate.", true},
		{Blacklisted, "modprobe.d or the kernel's command line forbids the module on this host.", ActorOperator, "Remove the named line if you want the driver.", true},
		{FirmwareConflict, "Another firmware file with the same name is in place.", ActorOperator, "Remove or update the named file; acceld does not overwrite it.", true},
		{RolledBack, "The new driver failed, and acceld rolled back to the previous one.", ActorVendor, "The message says what failed; acceld does not try the new driver again until it, the kernel or the configuration changes.", true},
		{RollbackFailed, "The new driver failed, and the previous one could not be loaded either: no driver serves.", ActorOperator, "The message says why both failed; acceld tries the previous driver again by itself. Check the kernel log; reboot if modules are stuck.", false},
		{WaitingForSlot, "The new driver is ready, and the cluster's controller has not let this node continue yet.", ActorCluster, "None while the policy's limits withhold a slot; `kubectl get acceleratorpolicies` says what the node waits for. Without the controller the upgrade does not continue.", false},
		{UnderMaintenance, "Somebody else works on the node, or will: acceld does not begin to replace a driver that works.", ActorCluster, "None: acceld begins when the condition that the message names is no longer True. If nobody works on the node any more, set that condition to False, or name it in `ignoreConditions` of the kind.", false},
		{PolicyInvalid, "A policy of the cluster cannot be used on this node.", ActorCluster, "Correct the named field of the AcceleratorPolicy; what was in force stays in force.", true},
		{PolicyRefused, "A policy of the cluster brings what this host does not take from the cluster.", ActorOperator, "Put the named part into the host's own files, or set `policies.definitions` in the agent's configuration; the rest of the policy is in force.", true},
		{EvictionRefused, "The API server refuses to evict a pod that uses the driver.", ActorCluster, "Check the pod's disruption budget; acceld tries the eviction again by itself.", false},
		{RuntimeConfigInvalid, "The container runtime's configuration cannot be read, or would be invalid with acceld's changes.", ActorOperator, "Correct the named file; nothing was changed.", true},
		{RuntimeRestartNeeded, "A change of the container runtime's configuration takes effect when the runtime restarts.", ActorOperator, "Restart the named service, or set `runtime.restart: idle`.", false},
		{RuntimeDown, "The container runtime did not come back after a change; acceld undid the change.", ActorOperator, "Check the journal of the named service.", true},
		{HooksUnread, "The container runtime does not read the directory that the hook is in.", ActorOperator, "Restart the runtime, or correct its hooks_dir; the message names the directory.", false},
		{FileChanged, "Somebody else changed a file that acceld wrote; acceld leaves it as it is.", ActorOperator, "Check the named file and remove what you do not want.", false},
		{StepFailed, "A step of the definition failed.", ActorOperator, "The message names the step and quotes it; acceld tries it again by itself.", false},
		{PrerequisitePending, "A kind that this one needs has no working driver yet.", ActorAgent, "None here; look at the named kind.", false},
		{LibraryMismatch, "A user-space library does not have the version of the driver's modules.", ActorOperator, "Use a source with both halves of one version. If the library is installed on the host, install the same version of the driver, or reboot into it.", false},
		{LibraryMissing, "A user-space library of the driver that every container needs is not there.", ActorOperator, "Install the driver's user space on the host in the version of its modules, or let acceld bring it with `driver.userSpace`.", false},
		{UserSpaceMissing, "The driver's libraries and programs, in the version of its modules, are at no source.", ActorOperator, "Add a source that has them to `driver.userSpace.sources`, or make the ones that are named reachable; `tried` says what each of them answered.", false},
		{CompanionDown, "A daemon that belongs to the driver does not run, or is not ready; acceld starts it again by itself.", ActorOperator, "The message says where to find the output of its program.", false},
		{LedgerDamaged, "The record of what acceld changed on this host cannot be read.", ActorOperator, "Restore the named file, or move it away: `acceld purge` then undoes only what it recognises as its own by content.", true},
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

// Plain reports whether r, which somebody else has written, has the form of a reason: up to 64 letters and digits, or
// none.
func (r Reason) Plain() bool {
	return len(r) <= 64 && !strings.ContainsFunc(string(r), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
}
