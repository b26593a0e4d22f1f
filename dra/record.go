package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// recordVersion is the version of the record format. A reader ignores fields that it does not know, so that an older
// agent can unprepare what a newer one prepared. The version rises if ignoring a field would be wrong.
const recordVersion = 2

// plainVersion is the version of a record without a use: an agent that does not know uses would take the device of
// another one for broken.
const plainVersion = 1

// record is what is kept about a prepared claim: enough to prepare it again and to unprepare it without the API
// server.
type record struct {
	Version   int       `json:"version"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Prepared  time.Time `json:"prepared"`
	// Pods are the pods that the claim was reserved for when it was prepared.
	Pods    []pod   `json:"pods,omitempty"`
	Devices []given `json:"devices"`
	// PodClaim is the name that the claim has in its pod, if it was made from a template.
	PodClaim string `json:"podClaim,omitempty"`
	// Checked is when the devices passed the self-test that the claim asks for; zero if they have not.
	Checked time.Time `json:"checked,omitzero"`
	// Ahead is whether the parts were made before the pod was bound, and the kubelet has not prepared the claim yet.
	Ahead bool `json:"ahead,omitempty"`
	// saved is true if the record is on disk.
	saved bool
}

// pod is a pod in the claim's namespace.
type pod struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// given is one device that a claim gets.
type given struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	// Share names the part of a shared device.
	Share string `json:"share,omitempty"`
	// Admin is administrative access. It does not affect the claims that have the device.
	Admin bool `json:"admin,omitempty"`
	// Env is what a container gets with the device in addition to the environment of every claim.
	Env []string `json:"env,omitempty"`
	// Check is whether the device has to pass its self-test before a container gets it. A device to which somebody has
	// administrative access is not tested: another claim may be using it.
	Check bool `json:"check,omitempty"`
	// Use is as what the device is given out; empty with its kind's driver. Metadata is whether containers get the file
	// with its attributes.
	Use      accel.Use `json:"use,omitempty"`
	Metadata bool      `json:"metadata,omitempty"`
	// Parent is the device, by its name at the API server, that a part is made of for the claim, and Profile is the
	// part's profile. They are empty for whole devices and for kinds of which no parts are made.
	Parent  string `json:"parent,omitempty"`
	Profile string `json:"profile,omitempty"`
}

// String names the claim for people.
func (r record) String() string { return fmt.Sprintf("claim %s/%s (%s)", r.Namespace, r.Name, r.UID) }

// same reports whether two records give the same devices to the same claim.
func (r record) same(o record) bool {
	return r.UID == o.UID && r.Namespace == o.Namespace && r.Name == o.Name && r.Ahead == o.Ahead &&
		slices.EqualFunc(r.Devices, o.Devices, func(a, b given) bool {
			return a.Request == b.Request && a.Pool == b.Pool && a.Device == b.Device && a.Share == b.Share &&
				a.Admin == b.Admin && a.Check == b.Check && a.Use == b.Use && a.Metadata == b.Metadata &&
				a.Parent == b.Parent && a.Profile == b.Profile && slices.Equal(a.Env, b.Env)
		})
}

// excludes reports whether two claims cannot have g and o at the same time: the same device, a device and a part of it,
// or two parts of it that cannot exist together.
func (g given) excludes(o given) bool {
	switch {
	case g.Admin || o.Admin:
		return false
	case g.Parent != "" && g.Parent == o.Parent && g.Profile != o.Profile, g.Parent == o.Device, o.Parent == g.Device:
		return true
	case g.Device != o.Device:
		return false
	}
	return g.Share == "" || o.Share == "" || g.Share == o.Share
}

// uidForm is what the UID of a claim looks like; it becomes part of file names.
var uidForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// readRecord decodes the stored record of a claim.
func readRecord(uid string, data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, err
	}
	switch {
	case r.Version < 1 || r.Version > recordVersion:
		return record{}, fmt.Errorf("version %d is not one that this agent reads", r.Version)
	case r.UID != uid:
		return record{}, fmt.Errorf("it is about claim %q", r.UID)
	case r.Namespace == "" || r.Name == "":
		return record{}, errors.New("it names no claim")
	}
	return r, nil
}
