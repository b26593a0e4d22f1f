package accel

import (
	"fmt"
	"strings"
	"time"
)

// Upgrade is the replacement of the driver in use by another one. While it is pending, the old driver keeps serving
// the kind.
type Upgrade struct {
	From DriverRef `json:"from"`
	To   DriverRef `json:"to"`
	// Why says how the configured driver differs from the loaded one, such as `module "edu" is loaded in version
	// "1.0.0", wanted is "2.0.0"`.
	Why string `json:"why,omitempty"`
	// Wish identifies what is configured: version, parameters, sources and the time of the request. A different wish
	// is a different upgrade.
	Wish  string       `json:"wish"`
	Phase UpgradePhase `json:"phase"`
	// Since is when acceld first saw that the upgrade is needed.
	Since time.Time `json:"since"`
	// Holders are the users of the old driver when acceld last looked.
	Holders []Holder `json:"holders,omitempty"`
	// Failure says why the upgrade does not make progress; nil if it does.
	Failure *Failure `json:"failure,omitempty"`
}

// DriverRef names one driver.
type DriverRef struct {
	Version string `json:"version,omitempty"`
	// Key is its key in the store; empty while it is unknown, or if the driver is not in the store.
	Key string `json:"key,omitempty"`
}

// String is for people: `version 2.0.0`, or the key if there is no version.
func (r DriverRef) String() string {
	switch {
	case r.Version != "":
		return "version " + r.Version
	case r.Key != "":
		return "driver " + r.Key[:min(12, len(r.Key))]
	}
	return "what the sources have"
}

// UpgradePhase is the progress of an upgrade.
type UpgradePhase string

// The phases, in order. Before the replacing phase nothing changes: the old driver keeps serving.
const (
	UpgradePending   UpgradePhase = "pending"   // wanted, but not begun, or the last attempt was abandoned
	UpgradePreparing UpgradePhase = "preparing" // the new driver is fetched or built, and checked
	UpgradeWaiting   UpgradePhase = "waiting"   // the new driver is ready in the store; the old one is in use
	UpgradeDraining  UpgradePhase = "draining"  // like waiting, but no device is given to anybody any more
	UpgradeReplacing UpgradePhase = "replacing" // the old driver is unloaded, the new one loaded and tested
)

// Holder is a process or a pod that uses a driver.
type Holder struct {
	// PID is the process ID on the host; 0 for a pod that was given a device but has no process on it.
	PID  int    `json:"pid,omitempty"`
	Comm string `json:"comm,omitempty"`
	// PodUID, Namespace and Pod identify the pod. They are empty outside pods; the names are also empty if they are
	// unknown.
	PodUID    string `json:"podUID,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Device is the device node or the id of the device.
	Device string `json:"device,omitempty"`
	// Other is a user that is neither process nor pod, such as "module edu_net".
	Other string `json:"other,omitempty"`
}

// String is for people: `python3 (pid 4242, pod team/train-7)`.
func (o Holder) String() string {
	pod := o.PodUID
	if o.Pod != "" {
		pod = o.Namespace + "/" + o.Pod
	}
	switch {
	case o.Other != "":
		return o.Other
	case o.PID == 0:
		return fmt.Sprintf("pod %s (given %s)", pod, o.Device)
	case pod == "":
		return fmt.Sprintf("%s (pid %d)", o.Comm, o.PID)
	}
	return fmt.Sprintf("%s (pid %d, pod %s)", o.Comm, o.PID, pod)
}

// HoldersProblem says that a driver is in use and by whom; nil if nobody uses it.
func HoldersProblem(kind string, holders []Holder) *Problem {
	return InUseProblem(fmt.Sprintf("the driver of %q", kind), holders)
}

// InUseProblem says that what is in use and by whom; nil if nobody uses it.
func InUseProblem(what string, holders []Holder) *Problem {
	if len(holders) == 0 {
		return nil
	}
	var who []string
	for _, h := range holders {
		who = append(who, h.String())
	}
	return Problemf(InUse, "%s is in use by %s", what, strings.Join(who, ", "))
}
