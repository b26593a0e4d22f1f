package accel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Divided is the journal of a device that acceld has divided, or was about to divide, for claims that ask for a part of
// it. It is written before anything is changed and removed after the device is whole again. It is valid until the next
// boot. Who still needs the parts, the records of claims say.
type Divided struct {
	Kind string `json:"kind"`
	// Profile is the profile of the parts.
	Profile string `json:"profile"`
	// File is the attribute that divides the device; empty if the probe program of its kind does. Value is what divides
	// it, and Before what it had before; see [Making].
	File   string `json:"file,omitempty"`
	Value  string `json:"value"`
	Before string `json:"before"`
	// Claim is the UID of the claim that the device was divided for, and Name its namespace and name. Other claims may
	// have got parts since.
	Claim string    `json:"claim"`
	Name  string    `json:"name,omitempty"`
	Since time.Time `json:"since"`
	// Proven is when the device passed its self-test with the parts; zero if it has not.
	Proven time.Time `json:"proven,omitzero"`
}

// MaxDivided bounds the journal of a divided device, in bytes.
const MaxDivided = 4 << 10

// ReadDivided decodes a journal.
func ReadDivided(text []byte) (d Divided, err error) {
	if len(text) > MaxDivided {
		return d, fmt.Errorf("it has %d bytes, at most %d are read", len(text), MaxDivided)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return Divided{}, err
	}
	switch {
	case !switchedKind.MatchString(d.Kind), !switchedClaim.MatchString(d.Claim), len(d.Name) > 512:
		err = errors.New("it names no kind or no claim")
	case d.Profile == "", PartitionWord(d.Profile) != d.Profile:
		err = errors.New("it names no profile")
	case d.File != "" && !inDevice(d.File):
		err = fmt.Errorf("%.80q is no attribute of the device", d.File)
	case !makingForm.MatchString(d.Value), d.Before != "" && !makingForm.MatchString(d.Before), d.Value == d.Before:
		err = errors.New("it does not say how the device is divided")
	}
	if err != nil {
		return Divided{}, err
	}
	return d, nil
}

// For says for whom the device was divided, for people.
func (d Divided) For() string { return "claim " + cmp.Or(d.Name, d.Claim) }

// String is for people: "divided for claim team/a into parts of profile half".
func (d Divided) String() string {
	return fmt.Sprintf("divided for %s into parts of profile %s", d.For(), d.Profile)
}
