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
	// Devices says otherwise for some devices of a host. The first entry that selects a device applies.
	Devices []ShareOf `json:"devices,omitempty"`
}

// ShareOf is how often some devices of a host are offered. A device is selected if it is in each list that is not
// empty, and has at least MinMemoryMiB of memory.
type ShareOf struct {
	// Addresses are PCI addresses such as "0000:01:00.0"; a partition has its device's.
	Addresses []string `json:"addresses,omitempty"`
	// Models are product names as `acceld status` shows them, Serials serial numbers.
	Models  []string `json:"models,omitempty"`
	Serials []string `json:"serials,omitempty"`
	// MinMemoryMiB is the least memory, in MiB, of the devices: the amount "memory" that the definition reads from a
	// file of the device. A device whose memory is not known is not selected. 0 does not ask for any.
	MinMemoryMiB int64 `json:"minMemoryMiB,omitempty"`
	// Replicas is how many times each of the devices is offered, from 1 (not shared) to 256.
	Replicas int `json:"replicas"`
}

// selects reports whether the entry is for a device.
func (s ShareOf) selects(a Accelerator) bool {
	has := func(all []string, value string) bool { return len(all) == 0 || slices.Contains(all, value) }
	return has(s.Addresses, cmp.Or(a.Parent, a.ID)) && has(s.Models, a.Model) && has(s.Serials, a.Serial) &&
		s.hasMemory(a)
}

func (s ShareOf) hasMemory(a Accelerator) bool {
	if s.MinMemoryMiB == 0 {
		return true
	}
	bytes, known := a.Capacity[memoryAmount]
	return known && bytes>>20 >= s.MinMemoryMiB
}

// maxShares is how many entries of Devices there may be, and maxSelected how many values in each of their lists.
const (
	maxShares   = 64
	maxSelected = 64
)

// maxReplicas keeps the list of 64 devices below the 4 MiB that the kubelet accepts in one message (gRPC's default
// limit), at about 70 bytes for each replica.
const maxReplicas = 256

// sharedSuffix is appended to the resource name of shared devices.
const sharedSuffix = ".shared"

// Problems returns the errors in s, each as "<field>: <sentence>".
func (s Sharing) Problems() []string {
	var out []string
	if s.Replicas < 1 || s.Replicas > maxReplicas {
		out = append(out, fmt.Sprintf("replicas: %d is not from 1 to %d", s.Replicas, maxReplicas))
	}
	if len(s.Devices) > maxShares {
		out = append(out, fmt.Sprintf("devices: %d entries, at most %d", len(s.Devices), maxShares))
	}
	for i, d := range s.Devices {
		field := fmt.Sprintf("devices[%d]", i)
		lists := [][]string{d.Addresses, d.Models, d.Serials}
		switch {
		case d.Replicas < 1 || d.Replicas > maxReplicas:
			out = append(out, fmt.Sprintf("%s.replicas: %d is not from 1 to %d", field, d.Replicas, maxReplicas))
		case d.MinMemoryMiB < 0:
			out = append(out, fmt.Sprintf("%s.minMemoryMiB: %d is negative", field, d.MinMemoryMiB))
		case d.MinMemoryMiB == 0 && !slices.ContainsFunc(lists, func(l []string) bool { return len(l) > 0 }):
			out = append(out, field+": it selects no devices by addresses, models, serials or minMemoryMiB")
		case slices.ContainsFunc(lists, func(l []string) bool { return len(l) > maxSelected || slices.Contains(l, "") }):
			out = append(out, fmt.Sprintf("%s: a list has an empty value, or more than %d", field, maxSelected))
		case s.Rename && (d.Replicas == 1) != (s.Replicas == 1):
			out = append(out, fmt.Sprintf(
				"%s.replicas: with rename, either all devices are shared or none is: pods could not tell them apart", field))
		}
	}
	return out
}

// ReplicasOf returns how many times a device or a partition is offered to the kubelet, at least 1.
func (def *Definition) ReplicasOf(a Accelerator) int {
	if def.Sharing == nil || def.AllocatedBy() != AllocateByPlugin || a.Aside() {
		return 1
	}
	for _, s := range def.Sharing.Devices {
		if s.selects(a) {
			return max(1, s.Replicas)
		}
	}
	return def.Replicas()
}

// Replicas returns how many times each device is offered to the kubelet for which [Sharing.Devices] says nothing else,
// at least 1.
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
	case name == "":
		return "is missing: write a domain and a name, such as example.com/npu"
	case !strings.Contains(name, "/"):
		return fmt.Sprintf("%.80q has no domain: write it in front with a slash, such as example.com/%.80[1]s", name)
	case !resourceName.MatchString(name):
		return fmt.Sprintf("%.320q is not a domain in lower case, a slash and a name, such as example.com/npu", name)
	case len(last) > 63 || len(domain) > 253:
		return fmt.Sprintf("%q is longer than 63 characters after the domain, or 253 in it", name)
	case domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"):
		return fmt.Sprintf("%q is a name of Kubernetes itself, which the kubelet refuses", name)
	}
	return ""
}
