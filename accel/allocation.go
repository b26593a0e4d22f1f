package accel

// Allocation is a way in which the kubelet gives devices to pods.
type Allocation string

// The ways. A kind has one at a time.
const (
	AllocateByPlugin Allocation = "devicePlugin" // an extended resource that the device plugin counts; the default
	AllocateByDRA    Allocation = "dra"          // resource claims of resource.k8s.io (dynamic resource allocation)
)

// AllocatedBy is the way in force.
func (def *Definition) AllocatedBy() Allocation {
	if def.Allocation == "" {
		return AllocateByPlugin
	}
	return def.Allocation
}

// Capacity is an amount that every device of a kind has. Exactly one of Value and File is set.
type Capacity struct {
	// Name is what claims call it, such as "memory".
	Name string `json:"name"`
	// Value is the amount, such as "8Gi".
	Value string `json:"value,omitempty"`
	// File is an attribute (see HealthSource.File) that holds the amount as a number.
	File string `json:"file,omitempty" template:"device"`
	// Scale makes whole units, such as bytes, of the number in File by multiplication; 0 means 1.
	Scale float64 `json:"scale,omitempty"`
	// Share allows several claims to have a part of the amount each, and of the device. Nothing enforces the parts on the
	// device: the scheduler counts, and containers are told theirs.
	Share *Share `json:"share,omitempty"`
}

// Share says which parts of a capacity claims may ask for. Empty fields set no limit.
type Share struct {
	// Default is the part of a claim that asks for none, such as "1Gi"; the whole amount when empty.
	Default string `json:"default,omitempty"`
	Min     string `json:"min,omitempty"`
	Max     string `json:"max,omitempty"`
	// Step is what parts are rounded up to a multiple of, beginning at Min.
	Step string `json:"step,omitempty"`
}
