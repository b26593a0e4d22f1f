package accel

import "fmt"

// Sharing offers each device of a kind several times to the kubelet. The containers that have one device take turns on it as
// its driver lets them: each can use up its memory, a fault of one is a fault of all, and nobody gets a fair part of the time.
// It is for the device plugin alone; claims share by Capacity.
type Sharing struct {
	// Replicas is how many times each device is offered, from 1, which is not shared, to 256.
	Replicas int `json:"replicas"`
	// Rename offers shared devices as "<resource>.shared", so that only those who ask for a part get one.
	Rename bool `json:"rename,omitempty"`
	// FailRequestsGreaterThanOne refuses containers that ask for more than one replica, who may believe that they get more
	// of the device's time or memory for it.
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

// Offered is the extended resource that the kubelet knows the devices as.
func (def *Definition) Offered() string {
	if def.Replicas() > 1 && def.Sharing.Rename {
		return def.Resource + sharedSuffix
	}
	return def.Resource
}

// FormerlyOffered are the other names that the kubelet may know devices of the kind as, because another configuration was in
// force before.
func (def *Definition) FormerlyOffered() []string {
	var names []string
	for _, name := range []string{def.Resource, def.Resource + sharedSuffix} {
		if name != def.Offered() {
			names = append(names, name)
		}
	}
	return names
}
