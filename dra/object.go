package dra

import (
	"encoding/json"
	"time"

	"github.com/acceld/acceld/kube"
)

// These types have the fields of resource.k8s.io/v1 that this package reads or writes. The test of this file
// compares them with the types of k8s.io/api, which would add 1 MB of protobuf code to the program. Quantities are
// kept as text in the form that the API server returns (k8s.io/apimachinery/pkg/api/resource).

const (
	apiVersion = "resource.k8s.io/v1"
	apiRoot    = "/apis/resource.k8s.io/v1/"
)

// Slice is a ResourceSlice: some of the devices of one pool.
type Slice struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   kube.Meta `json:"metadata"`
	Spec       SliceSpec `json:"spec"`
}

// Identify returns what tells the slice, and this version of it, from others.
func (s *Slice) Identify() kube.Identity { return s.Metadata.Identity }

// Adopt takes over the metadata of another version.
func (s *Slice) Adopt(m *kube.Meta) { s.Metadata = *m }

// SliceSpec is the content of a ResourceSlice.
type SliceSpec struct {
	Driver   string   `json:"driver"`
	NodeName string   `json:"nodeName"`
	Pool     Pool     `json:"pool"`
	Devices  []Device `json:"devices,omitempty"`
	// SharedCounters are the counters that devices of the pool consume.
	SharedCounters []CounterSet `json:"sharedCounters,omitempty"`
}

// CounterSet are the counters of one physical device.
type CounterSet struct {
	Name     string             `json:"name"`
	Counters map[string]Counter `json:"counters"`
}

// Counter is an amount.
type Counter struct {
	Value string `json:"value"`
}

// Consumption is what a device takes from a counter set while it is allocated.
type Consumption struct {
	CounterSet string             `json:"counterSet"`
	Counters   map[string]Counter `json:"counters"`
}

// Pool says which slices belong together. Consumers use the highest generation, and only once they see Count slices
// of it.
type Pool struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	Count      int64  `json:"resourceSliceCount"`
}

// Device is one device as the scheduler sees it.
type Device struct {
	Name       string               `json:"name"`
	Attributes map[string]Attribute `json:"attributes,omitempty"`
	Capacity   map[string]Amount    `json:"capacity,omitempty"`
	Consumes   []Consumption        `json:"consumesCounters,omitempty"`
	Taints     []Taint              `json:"taints,omitempty"`
	// BindsToNode, BindingConditions and FailureConditions let a pod be bound only once the conditions of the device in
	// the claim's status are true, and let the scheduler choose again if one of the last is (KEP-5007).
	BindsToNode       bool     `json:"bindsToNode,omitempty"`
	BindingConditions []string `json:"bindingConditions,omitempty"`
	FailureConditions []string `json:"bindingFailureConditions,omitempty"`
	// Shared allows several claims to get the device, each with a part of its capacity.
	Shared bool `json:"allowMultipleAllocations,omitempty"`
}

// Attribute is a typed value. Exactly one field is set.
type Attribute struct {
	Int     *int64  `json:"int,omitempty"`
	Ints    []int64 `json:"ints,omitempty"` // with the feature gate DRAListTypeAttributes
	String  *string `json:"string,omitempty"`
	Version *string `json:"version,omitempty"`
}

// Amount is a capacity.
type Amount struct {
	Value  string  `json:"value"`
	Policy *Policy `json:"requestPolicy,omitempty"`
}

// Policy says which parts of a shared capacity claims may request.
type Policy struct {
	Default string `json:"default"`
	Range   *Range `json:"validRange,omitempty"`
}

// Range allows amounts from Min to Max in steps of Step.
type Range struct {
	Min  string `json:"min,omitempty"`
	Max  string `json:"max,omitempty"`
	Step string `json:"step,omitempty"`
}

// Taint keeps claims that do not tolerate it off a device. With the effect NoExecute it also ends their pods.
type Taint struct {
	Key       string    `json:"key"`
	Value     string    `json:"value,omitempty"`
	Effect    string    `json:"effect"`
	TimeAdded time.Time `json:"timeAdded,omitzero"`
}

// claim is a ResourceClaim.
type claim struct {
	Metadata kube.Meta `json:"metadata"`
	Status   struct {
		Allocation *struct {
			Devices struct {
				Results []result        `json:"results"`
				Config  []configuration `json:"config"`
			} `json:"devices"`
		} `json:"allocation"`
		ReservedFor []consumer     `json:"reservedFor"`
		Devices     []deviceStatus `json:"devices,omitempty"`
	} `json:"status"`
}

// Identify returns what tells the claim, and this version of it, from others.
func (c *claim) Identify() kube.Identity { return c.Metadata.Identity }

// Adopt takes over the metadata of another version.
func (c *claim) Adopt(m *kube.Meta) { c.Metadata = *m }

// deviceStatus is what a driver says about a device of a claim.
type deviceStatus struct {
	Driver     string            `json:"driver"`
	Pool       string            `json:"pool"`
	Device     string            `json:"device"`
	Conditions []statusCondition `json:"conditions,omitempty"`
}

// statusCondition is a condition of a device (k8s.io/apimachinery, meta/v1).
type statusCondition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// result is one device that was allocated to a claim.
type result struct {
	Request     string            `json:"request"`
	Driver      string            `json:"driver"`
	Pool        string            `json:"pool"`
	Device      string            `json:"device"`
	AdminAccess bool              `json:"adminAccess,omitempty"`
	ShareID     string            `json:"shareID,omitempty"`
	Consumed    map[string]string `json:"consumedCapacity,omitempty"`
	// BindingConditions are the conditions that a pod waits for.
	BindingConditions []string `json:"bindingConditions,omitempty"`
}

// configuration is what a class or a claim configures for a driver.
type configuration struct {
	Source   string   `json:"source"`
	Requests []string `json:"requests,omitempty"`
	Opaque   *opaque  `json:"opaque,omitempty"`
}

type opaque struct {
	Driver     string          `json:"driver"`
	Parameters json.RawMessage `json:"parameters"`
}

// consumer is an object that may use a claim, usually a pod.
type consumer struct {
	Resource string `json:"resource"`
	Name     string `json:"name"`
	UID      string `json:"uid"`
}
