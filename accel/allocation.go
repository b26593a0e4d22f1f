package accel

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Allocation is a way in which the kubelet gives devices to pods.
type Allocation string

// The ways to allocate. A kind uses one at a time.
const (
	AllocateByPlugin Allocation = "devicePlugin" // an extended resource that the device plugin counts; the default
	AllocateByDRA    Allocation = "dra"          // resource claims of resource.k8s.io (dynamic resource allocation)
)

// AllocatedBy returns the allocation in effect.
func (def *Definition) AllocatedBy() Allocation {
	if def.Allocation == "" {
		return AllocateByPlugin
	}
	return def.Allocation
}

// Capacity is an amount that every device of a kind has. Exactly one of Value and File is set.
type Capacity struct {
	// Name is what claims call the capacity, such as "memory".
	Name string `json:"name"`
	// Value is the amount, such as "8Gi".
	Value string `json:"value,omitempty"`
	// File is an attribute (see HealthSource.File) that holds the amount as a number.
	File string `json:"file,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Scale multiplies the number in File to get whole units, such as bytes; 0 means 1.
	Scale float64 `json:"scale,omitempty"`
	// Share lets several claims share the device, each with a part of the amount. Nothing enforces the parts on the
	// device: the scheduler does the accounting, and each container learns the size of its part.
	Share *Share `json:"share,omitempty"`
}

// Share says which parts of a capacity claims may ask for. Empty fields set no limit.
type Share struct {
	// Default is the part for a claim that does not ask for one, such as "1Gi"; the whole amount when empty.
	Default string `json:"default,omitempty"`
	// Min is the least that a claim gets.
	Min string `json:"min,omitempty"`
	// Max is the most that a claim gets.
	Max string `json:"max,omitempty"`
	// Step is the granularity: parts are rounded up to Min plus a multiple of it.
	Step string `json:"step,omitempty"`
}

// memoryAmount is what definitions call the memory of a device.
const memoryAmount = "memory"

// maxAmounts is how many capacities a kind may have.
const maxAmounts = 16

// amountForm is the form of an amount in a definition or an override. Its length is bounded, because the amounts of a
// policy's author are parsed again whenever something is published: 18 digits are as many as an int64 always holds.
const amountForm = `[0-9]{1,18}(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?`

// Patterns for the name of a capacity and for an amount.
var (
	amountName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,31}$`)
	amountText = regexp.MustCompile(`^` + amountForm + `$`)
)

// AmountForm is the form of an amount.
func AmountForm() Form { return Form{amountText, "an amount such as 8Gi, 500m or 4"} }

// amounts returns the errors in the capacities of k.
func (k KindConfig) amounts() []string {
	var out []string
	if len(k.Capacity) > maxAmounts {
		out = append(out, fmt.Sprintf("capacity: there are more than %d", maxAmounts))
	}
	for _, name := range slices.Sorted(maps.Keys(k.Capacity)) {
		switch {
		case !amountName.MatchString(name):
			out = append(out, fmt.Sprintf("capacity: the name %.64q is not up to 32 letters, digits and underscores, such "+
				"as memory", name))
		case !amountText.MatchString(k.Capacity[name]):
			out = append(out, "capacity."+name+": "+AmountForm().Problem(k.Capacity[name]))
		}
	}
	return out
}

// capacity returns the capacities of a kind after the amounts of k are applied. How claims may share a capacity stays
// as the definition says.
func (k KindConfig) capacity(all []Capacity) []Capacity {
	if len(k.Capacity) == 0 {
		return all
	}
	out := slices.Clone(all)
	for _, name := range slices.Sorted(maps.Keys(k.Capacity)) {
		i := slices.IndexFunc(out, func(c Capacity) bool { return c.Name == name })
		if i < 0 {
			out = append(out, Capacity{Name: name, Value: k.Capacity[name]})
			continue
		}
		out[i] = Capacity{Name: name, Value: k.Capacity[name], Share: out[i].Share}
	}
	return out
}
