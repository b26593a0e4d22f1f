package accel

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Sharing offers each device of a kind to the kubelet several times. The containers that share a device take turns on
// it as its driver allows: each can use up its memory, a fault of one affects all, and there are no fair time slices.
// It is for the device plugin only; claims share through Capacity.
type Sharing struct {
	// Replicas is how many times each device is offered, from 1 (not shared) to 256.
	Replicas int `json:"replicas"`
	// Rename offers shared devices as "<resource>.shared", so that only pods that request a share get one.
	Rename bool `json:"rename,omitempty"`
	// FailRequestsGreaterThanOne rejects containers that request more than one replica, because more replicas do not
	// give them more of the device's time or memory.
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
}

// maxReplicas keeps the list of 64 devices below the 4 MiB that the kubelet accepts in one message (gRPC's default
// limit), at about 70 bytes for each replica.
const maxReplicas = 256

// sharedSuffix is appended to the resource name of shared devices.
const sharedSuffix = ".shared"

// Problems returns the errors in s, each as "<field>: <sentence>".
func (s Sharing) Problems() []string {
	if s.Replicas < 1 || s.Replicas > maxReplicas {
		return []string{fmt.Sprintf("replicas: %d is not from 1 to %d", s.Replicas, maxReplicas)}
	}
	return nil
}

// Replicas returns how many times each device is offered to the kubelet, at least 1.
func (def *Definition) Replicas() int {
	if def.Sharing == nil || def.AllocatedBy() != AllocateByPlugin {
		return 1
	}
	return max(1, def.Sharing.Replicas)
}

// Offered returns the extended resource that pods request.
func (def *Definition) Offered() string {
	name := cmp.Or(def.Rename, def.Resource)
	if def.Replicas() > 1 && def.Sharing.Rename {
		return name + sharedSuffix
	}
	return name
}

// FormerlyOffered returns the other names under which the kubelet may know devices of the kind, from an earlier
// configuration.
func (def *Definition) FormerlyOffered() []string {
	return others(def.Offered(), def.Resource, cmp.Or(def.Rename, def.Resource))
}

// others returns the given names, shared and not, except the current one.
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

// resourceName matches a domain and a name, the form of Kubernetes qualified names.
var resourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

// ResourceProblem says what is wrong with the name of an extended resource; empty if nothing is.
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
