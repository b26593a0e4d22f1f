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

// recordVersion is the version of the format of records. A reader passes over fields that it does not know, so that an
// older agent can take back what a newer one prepared; a version rises when that would not be right.
const recordVersion = 1

// record is what is kept about a prepared claim: enough to prepare it again and to take it back without the API server.
type record struct {
	Version   int       `json:"version"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Prepared  time.Time `json:"prepared"`
	// Pods are those that the claim was reserved for when it was prepared.
	Pods    []pod   `json:"pods,omitempty"`
	Devices []given `json:"devices"`
	// saved is true when the record is on the disk.
	saved bool
}

// pod is a pod in the claim's namespace.
type pod struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// given is one device of a claim.
type given struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	// Share names the part of a shared device.
	Share string `json:"share,omitempty"`
	// Admin is access beside those who have the device: it changes nothing for them.
	Admin bool `json:"admin,omitempty"`
	// Env is what a container gets with the device besides what every claim gives it.
	Env []string `json:"env,omitempty"`
}

// String is for people.
func (r record) String() string { return fmt.Sprintf("claim %s/%s (%s)", r.Namespace, r.Name, r.UID) }

// same reports whether two records give the same.
func (r record) same(o record) bool {
	return r.UID == o.UID && r.Namespace == o.Namespace && r.Name == o.Name && slices.EqualFunc(r.Devices, o.Devices,
		func(a, b given) bool {
			return a.Request == b.Request && a.Pool == b.Pool && a.Device == b.Device && a.Share == b.Share &&
				a.Admin == b.Admin && slices.Equal(a.Env, b.Env)
		})
}

// excludes reports whether a device of r and one of o cannot be given at the same time.
func (g given) excludes(o given) bool {
	if g.Device != o.Device || g.Admin || o.Admin {
		return false
	}
	return g.Share == "" || o.Share == "" || g.Share == o.Share
}

// uidForm is what the UID of a claim looks like; it becomes part of file names.
var uidForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// readRecord decodes a record that was kept for a claim.
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

// damaged is the problem of a record that cannot be read.
func damaged(name string, err error) *accel.Problem {
	return accel.Problemf(accel.CheckpointDamaged, "cannot read the record of a claim in %q: %v", name, err)
}
