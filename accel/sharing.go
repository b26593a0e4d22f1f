package accel

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Sharing offers each device of a kind several times to the kubelet. The containers that have one device take turns on
// it as its driver lets them: each can use up its memory, a fault of one is a fault of all, and nobody gets a fair part
// of the time. It is for the device plugin alone; claims share by Capacity.
type Sharing struct {
	// Replicas is how many times each device is offered, from 1, which is not shared, to 256.
	Replicas int `json:"replicas"`
	// Rename offers shared devices as "<resource>.shared", so that only those who ask for a part get one.
	Rename bool `json:"rename,omitempty"`
	// FailRequestsGreaterThanOne refuses containers that ask for more than one replica, who may believe that they get
	// more of the device's time or memory for it.
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
}

// maxReplicas keeps the list of 64 devices below the 4 MiB that the kubelet takes in one message (gRPC's own limit), at
// about 70 bytes for each replica.
const maxReplicas = 256

// sharedSuffix ends the name of a resource whose devices are shared.
const sharedSuffix = ".shared"

// Problems returns what is wrong with s, each as "<field>: <sentence>".
func (s Sharing) Problems() []string {
	if s.Replicas < 1 || s.Replicas > maxReplicas {
		return []string{fmt.Sprintf("replicas: %d is not from 1 to %d", s.Replicas, maxReplicas)}
	}
	return nil
}

// Replicas is how many times each device is offered to the kubelet, at least 1.
func (def *Definition) Replicas() int {
	if def.Sharing == nil || def.AllocatedBy() != AllocateByPlugin {
		return 1
	}
	return max(1, def.Sharing.Replicas)
}

// Offered is the extended resource that pods ask for.
func (def *Definition) Offered() string {
	name := cmp.Or(def.Rename, def.Resource)
	if def.Replicas() > 1 && def.Sharing.Rename {
		return name + sharedSuffix
	}
	return name
}

// FormerlyOffered are the other names that the kubelet may know devices of the kind as, because another configuration
// was in force before.
func (def *Definition) FormerlyOffered() []string {
	return others(def.Offered(), def.Resource, cmp.Or(def.Rename, def.Resource))
}

// others are those of some names, shared and not, that are not the one in force.
func others(now string, all ...string) []string {
	var names []string
	for _, name := range all {
		for _, name := range []string{name, name + sharedSuffix} {
			if name != now && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// resourceName is a domain and a name, as qualified names of Kubernetes have them.
var resourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

// ResourceProblem says what is wrong with the name of an extended resource; empty when nothing is.
func ResourceProblem(name string) string {
	domain, last, _ := strings.Cut(name, "/")
	switch {
	case !resourceName.MatchString(name):
		return fmt.Sprintf("%q is not of the form %s", name, strings.Trim(resourceName.String(), "^$"))
	case len(last) > 63 || len(domain) > 253:
		return fmt.Sprintf("%q is longer than 63 characters after the domain, or 253 in it", name)
	case domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"):
		return fmt.Sprintf("%q is a name of Kubernetes itself, which the kubelet refuses", name)
	}
	return ""
}
