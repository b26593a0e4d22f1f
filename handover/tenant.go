package handover

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// tenant is who has a device.
type tenant struct {
	// Claim is the UID of the claim by which the device was given out; empty for the device plugin and outside
	// Kubernetes.
	Claim string     `json:"claim,omitempty"`
	Group host.Group `json:"group"`
	// Others are the groups of the other pods of a claim.
	Others []host.Group `json:"others,omitempty"`
	// Mounts are the mount namespaces of its containers: a process that has left the group is known by it.
	Mounts []string  `json:"mounts,omitempty"`
	Since  time.Time `json:"since"`
}

// maxMounts is how many containers of a tenant are remembered, and maxOthers how many pods of a claim; the oldest are
// forgotten.
const (
	maxMounts = 32
	maxOthers = 256
)

// is reports whether both are the same tenant.
func (t tenant) is(o tenant) bool {
	if t.Claim != "" || o.Claim != "" {
		return t.Claim == o.Claim
	}
	return t.Group == o.Group
}

// String is for people: "pod 0b8…".
func (t tenant) String() string {
	switch {
	case t.Claim != "":
		return "claim " + t.Claim
	case t.Group.Pod != "":
		return "pod " + t.Group.Pod
	}
	return "container in " + t.Group.Dir
}

// groups are the tenant's control groups.
func (t tenant) groups() []host.Group { return append([]host.Group{t.Group}, t.Others...) }

// add remembers another container of the tenant.
func (t *tenant) add(o tenant) {
	if !slices.Contains(t.groups(), o.Group) {
		t.Others = append(t.Others, o.Group)
	}
	if over := len(t.Others) - maxOthers; over > 0 {
		t.Others = slices.Delete(t.Others, 0, over)
	}
	for _, m := range o.Mounts {
		if m != "" && !slices.Contains(t.Mounts, m) {
			t.Mounts = append(t.Mounts, m)
		}
	}
	if over := len(t.Mounts) - maxMounts; over > 0 {
		t.Mounts = slices.Delete(t.Mounts, 0, over)
	}
}

// tenancy is what is written down of a device.
type tenancy struct {
	// Tenants have had the device since it was cleaned. Without any it is clean.
	Tenants []tenant `json:"tenants,omitempty"`
	// Cleaned, Took, Last and Killed are those of accel.HandoverHave.
	Cleaned int           `json:"cleaned,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Last    time.Duration `json:"last,omitempty"`
	Killed  int           `json:"killed,omitempty"`
}

// find returns the tenant that is the same as t; nil if there is none.
func (y *tenancy) find(t tenant) *tenant {
	i := slices.IndexFunc(y.Tenants, t.is)
	if i < 0 {
		return nil
	}
	return &y.Tenants[i]
}

// names are the tenants for people.
func (y *tenancy) names() (out []string) {
	for _, t := range y.Tenants {
		out = append(out, t.String())
	}
	return out
}

// file is the content of [Options.File]. A device that is not in it is one of which it is not known who had it.
type file struct {
	Schema  int                 `json:"schema"`
	Devices map[string]*tenancy `json:"devices"`
}

const (
	schema   = 1
	maxFile  = 4 << 20
	maxOwned = 4096 // devices
)

// decode reads a file.
func decode(text []byte) (map[string]*tenancy, error) {
	var f file
	if len(text) > maxFile {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(text), maxFile)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Schema != schema || len(f.Devices) > maxOwned {
		return nil, fmt.Errorf("it has schema %d and %d devices", f.Schema, len(f.Devices))
	}
	for id, y := range f.Devices {
		if y == nil {
			return nil, fmt.Errorf("device %.40q has no content", id)
		}
	}
	return f.Devices, nil
}

// have is what is known about a device, for people and metrics.
func (d *device) have() accel.HandoverHave {
	h := accel.HandoverHave{State: accel.HandoverUnknown}
	if d.tenancy != nil {
		h = accel.HandoverHave{
			State: accel.HandoverClean, Tenants: d.tenancy.names(), Cleaned: d.tenancy.Cleaned,
			Seconds: d.tenancy.Took.Seconds(), Last: d.tenancy.Last.Seconds(), Killed: d.tenancy.Killed,
		}
		if len(h.Tenants) > 0 {
			h.State = accel.HandoverUsed
		}
	}
	switch {
	case d.cleaning != nil:
		h.State = accel.HandoverCleaning
	case d.problem != nil:
		h.State = accel.HandoverFailed
	}
	return h
}
