package accel

// Check is a self-test of a device. It has one of two forms. Either acceld writes Write to File and then reads File,
// which must equal Want; or Program lets the device compute through its user space.
type Check struct {
	// File is an attribute relative to the PCI function's sysfs directory.
	File string `json:"file,omitempty"`
	// Write is what is written to the file before its answer is read; empty for nothing.
	Write string `json:"write,omitempty"`
	// Want is what the file must hold then.
	Want string `json:"want,omitempty"`
	// Program lets the device compute through the libraries that containers use. File, Write and Want are then empty.
	Program *CheckProgram `json:"program,omitempty"`
	// Sentence tells people what was proven, such as "10! computed by the device".
	Sentence string `json:"sentence,omitempty"`
}

// CheckProgram is a self-test by the program acceld-prove. For each device the agent starts a process of its own, which
// may crash or hang; if the device is divided and the interface can tell partitions apart, as CUDA can, one for each
// partition. It loads the library of the interface and lets exactly that device or partition compute on more than a
// million random numbers, and compares the result with the processor's.
type CheckProgram struct {
	// API is the interface: "cuda" for the driver interface of CUDA, or "opencl".
	API string `json:"api"`
	// Library is the soname of the interface's library; empty means the usual one, "libcuda.so.1" or "libOpenCL.so.1".
	// The host's loader finds it.
	Library string `json:"library,omitempty"`
	// Env are environment variables of the program, "NAME=value" each. It has none of the agent's, only a plain PATH,
	// LC_ALL=C, and what the interface needs.
	Env []string `json:"env,omitempty"`
	// Timeout is how long one device may take, such as "1m"; "30s" when empty. The program is then killed.
	Timeout string `json:"timeout,omitempty" form:"duration"`
	// Optional serves a host that does not have the library, for kinds whose user space may be in the containers'
	// images. The devices are then neither proven nor failed, and acceld says that they were not checked.
	Optional bool `json:"optional,omitempty"`
}

// ByUUID reports whether the interface can be shown a single device or partition, by its UUID.
func (c *CheckProgram) ByUUID() bool { return c.API != "opencl" }

// Proof is the outcome of self-tests of which none failed.
type Proof struct {
	// Sentence says what was proven, for people; empty if no device was checked.
	Sentence string
	// Skipped says, by device, why its self-test did not take place. Such a device is neither proven nor failed.
	Skipped map[string]string
}

// ProofItems is how many numbers a device computes at least.
const ProofItems = 1 << 20

// ProofLine is the one line that acceld-prove writes to its standard output, as JSON.
type ProofLine struct {
	// Device and Seed repeat the arguments, so that an answer cannot be another device's or an older one.
	Device string `json:"device"`
	Seed   uint64 `json:"seed"`
	// Name is what the interface calls the device, Driver the version of its driver there. They are empty if the
	// program did not get that far.
	Name   string `json:"name,omitempty"`
	Driver string `json:"driver,omitempty"`
	// Items is how many numbers the device computed.
	Items int `json:"items,omitempty"`
	// Milliseconds is the time from loading the library to the compared result.
	Milliseconds int64 `json:"milliseconds,omitempty"`
	// Fault is nil if every number was right.
	Fault *ProofFault `json:"fault,omitempty"`
}

// ProofFault says why there is no proof.
type ProofFault struct {
	Kind ProofFaultKind `json:"kind"`
	// Call is the function of the library that failed, Code what it returned and Name the interface's name for that.
	Call string `json:"call,omitempty"`
	Code int    `json:"code,omitempty"`
	Name string `json:"name,omitempty"`
	// Message says what else is known, and what to do.
	Message string `json:"message,omitempty"`
}

// ProofFaultKind is what an error of a vendor's library means.
type ProofFaultKind string

// The kinds of faults.
const (
	FaultNoLibrary ProofFaultKind = "noLibrary" // the loader does not find the library
	FaultUserSpace ProofFaultKind = "userSpace" // the library or one that it needs is incomplete or unfit
	FaultNoDevice  ProofFaultKind = "noDevice"  // the library does not see the device
	FaultBusy      ProofFaultKind = "busy"      // whoever uses the device leaves nothing for others
	FaultSkew      ProofFaultKind = "skew"      // the library is of another version than the driver
	FaultRefused   ProofFaultKind = "refused"   // the operating system refused a call: permissions, device nodes
	FaultNotReady  ProofFaultKind = "notReady"  // a service that the device needs does not run
	FaultDevice    ProofFaultKind = "device"    // the device failed
	FaultWrong     ProofFaultKind = "wrong"     // the device computed wrongly
	FaultUnknown   ProofFaultKind = "unknown"   // the interface does not say
)
