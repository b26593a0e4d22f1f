package accel

import (
	"fmt"
	"strings"
	"time"
)

// Upgrade is another driver on its way to the place of the one that serves. While it is pending the kind stays served
// by the old one.
type Upgrade struct {
	From DriverRef `json:"from"`
	To   DriverRef `json:"to"`
	// Why says how what is wanted differs from what is loaded, such as `module "edu" is loaded in version "1.0.0",
	// wanted is "2.0.0"`.
	Why string `json:"why,omitempty"`
	// Wish names what is wanted: version, parameters, sources and when it was asked for. Another wish is another
	// upgrade.
	Wish  string       `json:"wish"`
	Phase UpgradePhase `json:"phase"`
	// Since is when the upgrade was first seen to be wanted.
	Since time.Time `json:"since"`
	// Holders are those who use the old driver, as they were last looked for.
	Holders []Holder `json:"holders,omitempty"`
	// Failure says why the upgrade does not go on; nil when it does.
	Failure *Failure `json:"failure,omitempty"`
}

// DriverRef names one driver.
type DriverRef struct {
	Version string `json:"version,omitempty"`
	// Key is its key in the store; empty while not known or when it is not in the store.
	Key string `json:"key,omitempty"`
}

// String is for people: `version 2.0.0`, or the key where there is no version.
func (r DriverRef) String() string {
	switch {
	case r.Version != "":
		return "version " + r.Version
	case r.Key != "":
		return "driver " + r.Key[:min(12, len(r.Key))]
	}
	return "what the sources have"
}

// UpgradePhase is how far an upgrade is.
type UpgradePhase string

// The phases, in order. Until replacing nothing is changed: the old driver serves.
const (
	UpgradePending   UpgradePhase = "pending"   // wanted; not begun, or given up for this time
	UpgradePreparing UpgradePhase = "preparing" // the new driver is fetched or built, and judged
	UpgradeWaiting   UpgradePhase = "waiting"   // the new driver is ready in the store; the old one is in use
	UpgradeDraining  UpgradePhase = "draining"  // as waiting, and nobody is given a device any more
	UpgradeReplacing UpgradePhase = "replacing" // the old driver is taken away, the new one loaded and proven
)

// Holder is a process or a pod that uses a driver.
type Holder struct {
	// PID is the process's id on the host; 0 for a pod that was given a device and has no process on it.
	PID  int    `json:"pid,omitempty"`
	Comm string `json:"comm,omitempty"`
	// PodUID, Namespace and Pod are the pod's; empty outside pods, the names also where nobody could tell them.
	PodUID    string `json:"podUID,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Device is the device node or the id of the device.
	Device string `json:"device,omitempty"`
	// Other is somebody who is neither, such as "module edu_net".
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

// HoldersProblem says that a driver is in use and by whom; nil when nobody uses it.
func HoldersProblem(kind string, holders []Holder) *Problem {
	return InUseProblem(fmt.Sprintf("the driver of %q", kind), holders)
}

// InUseProblem says of something that it is in use and by whom; nil when nobody uses it.
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
