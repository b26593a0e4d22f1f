package kube

import (
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Names that users depend on.
const (
	// Prefix is the prefix of every label of acceld.
	Prefix = "acceld.dev/"
	// ConditionType is the node condition.
	ConditionType = "AcceleratorsReady"
	// TaintKey is the startup taint, with effect NoSchedule: nodes join with it, the agent removes it.
	TaintKey = "acceld.dev/not-ready"
	// OriginAnnotation says how the agent of a node runs. An agent with [OriginPod] is gone when its pod is.
	OriginAnnotation = "acceld.dev/agent"
	OriginPod        = "pod"
	OriginUnit       = "unit"
	// FieldManager owns the fields that acceld writes.
	FieldManager = "acceld"
	// Controller is the reporting controller of events.
	Controller = "acceld.dev/agent"
)

// Labels that workloads select by and that Node Feature Discovery writes too (its documentation, v0.19, features).
const (
	featurePrefix = "feature.node.kubernetes.io/"
	kernelPrefix  = featurePrefix + "kernel-version."
	kernelLabel   = kernelPrefix + "full"
	systemPrefix  = featurePrefix + "system-os_release."
)

// maxValue is the maximum length of a label value (k8s.io/apimachinery/pkg/util/validation).
const maxValue = 63

// pciLabel returns the label that marks a host with a PCI device of a vendor.
func pciLabel(vendor string) string { return featurePrefix + "pci-" + vendor + ".present" }

// vendors reports whether a label is in the domain of a vendor.
func vendors(key string) bool { return shared(key) && !strings.HasPrefix(key, featurePrefix) }

// shared reports whether others may write a label too.
func shared(key string) bool { return !strings.HasPrefix(key, Prefix) }

// ours reports whether key has the shape of a label that this package writes for some kind. So labels that an earlier
// version or a removed kind left over are recognised. Other labels with the prefix belong to users and are left
// alone.
func ours(key string) bool {
	name, ok := strings.CutPrefix(key, Prefix)
	return ok && (isPhase(key) || slices.ContainsFunc(features(), func(f string) bool {
		return strings.HasSuffix(name, "."+f)
	}))
}

// Ours reports whether key has the shape of a label that agents write.
func Ours(key string) bool { return ours(key) }

// hostPart takes the place of a kind in the labels of the host itself. No kind has this name: each contains a dash.
const hostPart = "host"

// features returns the last parts of the labels "acceld.dev/<kind>.<feature>" and "acceld.dev/host.<feature>".
func features() []string {
	return []string{"count", "driver-version", "fabric", "memory", "numa-nodes", "product", "rails", "sick", "vendor", "withheld"}
}

// isPhase reports whether key is the label of a published state.
func isPhase(key string) bool {
	name, ok := strings.CutPrefix(key, Prefix)
	return ok && (accel.Published(name).Own() ||
		slices.ContainsFunc(accel.PublishedStates(), func(p accel.Published) bool {
			return strings.HasPrefix(name, string(p)+"-")
		}))
}
