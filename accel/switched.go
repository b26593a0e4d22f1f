package accel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Use is what a device is given out as.
type Use string

// The values of Use.
const (
	UseDevice Use = ""     // with its kind's driver, to containers
	UseVFIO   Use = "vfio" // with a VFIO driver, to virtual machines and drivers in user space
)

// Switched is the journal of a device that is, or was about to be, given out with another driver than its kind's. It is
// written before anything is changed and removed after everything is as before. It is valid until the next boot, as
// the binding of a device to a driver is.
type Switched struct {
	Use  Use    `json:"use"`
	Kind string `json:"kind"`
	// Driver is the PCI driver that the device gets, and From the one that it goes back to.
	Driver string `json:"driver"`
	From   string `json:"from,omitempty"`
	// Kept is driver_override as it was before; empty for none.
	Kept string `json:"kept,omitempty"`
	// Group is the number of the IOMMU group.
	Group int `json:"group"`
	// Claim is the UID of the claim that the device is switched for, and Name its namespace and name.
	Claim string    `json:"claim"`
	Name  string    `json:"name,omitempty"`
	Since time.Time `json:"since"`
	// Serial, UUID and Model are those of the device; the driver that tells them is gone meanwhile.
	Serial string `json:"serial,omitempty"`
	UUID   string `json:"uuid,omitempty"`
	Model  string `json:"model,omitempty"`
}

// MaxSwitched bounds the journal of a device, in bytes.
const MaxSwitched = 4 << 10

var (
	switchedKind  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
	switchedClaim = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
)

// ReadSwitched decodes a journal.
func ReadSwitched(text []byte) (s Switched, err error) {
	if len(text) > MaxSwitched {
		return s, fmt.Errorf("it has %d bytes, at most %d are read", len(text), MaxSwitched)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return Switched{}, err
	}
	word := func(text string) bool { return text == "" || vfioWord.MatchString(text) }
	switch {
	case s.Use != UseVFIO:
		err = fmt.Errorf("use %.40q is not one that this agent knows", s.Use)
	case !switchedKind.MatchString(s.Kind), !switchedClaim.MatchString(s.Claim), len(s.Name) > 512,
		len(s.Serial)+len(s.UUID)+len(s.Model) > 1024:
		err = errors.New("it names no kind or no claim")
	case s.Driver == "", !word(s.Driver), !word(s.From), !word(s.Kept), s.Group < 0:
		err = errors.New("it names no driver or no IOMMU group")
	}
	if err != nil {
		return Switched{}, err
	}
	return s, nil
}

// For says who has the device, for people.
func (s Switched) For() string {
	if s.SetAside() {
		return "the device plugin, as the configuration sets it aside"
	}
	return "claim " + cmp.Or(s.Name, s.Claim)
}

// Ordinary returns a function as it is without the switch: a kind recognises it by that.
func (d PCIDevice) Ordinary() PCIDevice {
	if d.Switched != nil && d.Switched.From != "" {
		d.Driver = d.Switched.From
	}
	return d
}

// InOtherUse reports whether the device is switched, or on the way there or back.
func (a Accelerator) InOtherUse() bool { return a.Switched != nil }

// Ready reports whether a switched device has its other driver and the nodes for it.
func (s *Switched) Ready(a Accelerator) bool {
	return s != nil && a.Bound == s.Driver && len(a.Nodes) > 0
}

// WithholdSwitched withholds a switched device for as long as its journal exists.
func (a *Accelerator) WithholdSwitched() {
	if a.Switched == nil {
		return
	}
	message := fmt.Sprintf("it is given out with %s to %s", a.Switched.Use, a.Switched.For())
	if !a.Switched.Ready(*a) {
		message = fmt.Sprintf("it is on the way to or from %s, for %s", a.Switched.Use, a.Switched.For())
	}
	a.Withheld = &Withheld{By: BySwitch, Reason: OtherUse, Message: message}
}

// ServesClaim reports whether the device is switched for a claim and can be used.
func (a Accelerator) ServesClaim(uid string) bool {
	return a.Switched.Ready(a) && a.Switched.Claim == uid && a.WithheldBy(BySwitch) && a.Health.Usable()
}

// VFIONode is the node that every user of VFIO needs in addition to that of the IOMMU group
// (Documentation/driver-api/vfio.rst, Linux 6.12).
const VFIONode = "/dev/vfio/vfio"

// VFIONodeOf returns the source of the node of an IOMMU group.
func VFIONodeOf() []NodeSource { return []NodeSource{{Glob: "/sys/class/vfio/" + GroupTemplate}} }
