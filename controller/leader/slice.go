package leader

import (
	"reflect"

	"github.com/acceld/acceld/kube"
)

// Labels of an EndpointSlice (k8s.io/api/discovery/v1): its Service, and its manager, so that no other controller
// touches it.
const (
	serviceLabel = "kubernetes.io/service-name"
	managerLabel = "endpointslice.kubernetes.io/managed-by"
)

// slice holds the fields that are read and written of an EndpointSlice of discovery.k8s.io/v1.
type slice struct {
	APIVersion  string `json:"apiVersion,omitempty"`
	Kind        string `json:"kind,omitempty"`
	kube.Meta   `json:"metadata"`
	AddressType string     `json:"addressType,omitempty"`
	Endpoints   []endpoint `json:"endpoints"`
	Ports       []Port     `json:"ports,omitempty"`
}

type endpoint struct {
	Addresses  []string   `json:"addresses"`
	Conditions conditions `json:"conditions,omitzero"`
	NodeName   string     `json:"nodeName,omitempty"`
	TargetRef  *target    `json:"targetRef,omitempty"`
}

type conditions struct {
	Ready bool `json:"ready"`
}

type target struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Port is a port of the Service, with its name there.
type Port struct {
	Name     string `json:"name"`
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

// says reports whether a slice points to the same place as another.
func (s *slice) says(other *slice) bool {
	return s.AddressType == other.AddressType && reflect.DeepEqual(s.Endpoints, other.Endpoints) &&
		reflect.DeepEqual(s.Ports, other.Ports) &&
		reflect.DeepEqual(s.OwnerReferences, other.OwnerReferences) &&
		s.Labels[serviceLabel] == other.Labels[serviceLabel] &&
		s.Labels[managerLabel] == other.Labels[managerLabel]
}

// applied is a slice as the body of a patch. Server-side apply creates a missing slice under its name, so the
// permission to create it can be limited to this name.
type applied struct{ *slice }

// PatchType is the content type. JSON is YAML too.
func (applied) PatchType() string { return "application/apply-patch+yaml" }

// service holds the fields that are read of a Service.
type service struct {
	kube.Meta `json:"metadata"`
}

// Same says that only a new object of the same name is a change.
func (s *service) Same(old *service) bool { return s.UID == old.UID }
