package kube

import (
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// What other people depend on.
const (
	// Prefix of every label of acceld.
	Prefix = "acceld.dev/"
	// ConditionType is the node condition.
	ConditionType = "AcceleratorsReady"
	// TaintKey is the startup taint, with effect NoSchedule: nodes join with it, the agent takes it away.
	TaintKey = "acceld.dev/not-ready"
	// OriginAnnotation tells how the agent of a node is run: [OriginPod] is an agent that has gone when its pod has.
	OriginAnnotation = "acceld.dev/agent"
	OriginPod        = "pod"
	OriginUnit       = "unit"
	// FieldManager owns the fields that acceld writes.
	FieldManager = "acceld"
	// Controller is the reporting controller of events.
	Controller = "acceld.dev/agent"
)

// Labels that workloads select on and that Node Feature Discovery writes too (its documentation, v0.19, features).
const (
	featurePrefix = "feature.node.kubernetes.io/"
	kernelLabel   = featurePrefix + "kernel-version.full"
)

// maxValue is the length of a label value (k8s.io/apimachinery/pkg/util/validation).
const maxValue = 63

// pciLabel is the label that says that a PCI vendor's device is there.
func pciLabel(vendor string) string { return featurePrefix + "pci-" + vendor + ".present" }

// shared reports whether a label is one that others may write too.
func shared(key string) bool { return !strings.HasPrefix(key, Prefix) }

// ours reports whether key has the shape of a label that this package writes for some kind, so that one left over by
// an earlier version or a removed kind is recognised. Other labels with the prefix are people's and are left alone.
func ours(key string) bool {
	name, ok := strings.CutPrefix(key, Prefix)
	return ok && (isPhase(key) || slices.ContainsFunc(features(), func(f string) bool {
		return strings.HasSuffix(name, "."+f)
	}))
}

// Ours reports whether key has the shape of a label that agents write.
func Ours(key string) bool { return ours(key) }

// published returns the published states, in order.
func published() []accel.Published {
	return []accel.Published{
		accel.DriverContainer, accel.RuntimeEnablement, accel.DevicePlugin, accel.DeviceMonitoring,
		accel.FeatureDiscovery,
	}
}

// hostPart is in the place of a kind in the labels of the host itself. No kind has this name: each has a dash.
const hostPart = "host"

// features returns the last parts of the labels "acceld.dev/<kind>.<feature>" and "acceld.dev/host.<feature>".
func features() []string {
	return []string{"count", "driver-version", "memory", "numa-nodes", "product", "vendor"}
}

// isPhase reports whether key is the label of a published state.
func isPhase(key string) bool {
	name, ok := strings.CutPrefix(key, Prefix)
	return ok && slices.ContainsFunc(published(), func(p accel.Published) bool {
		return strings.HasPrefix(name, string(p)+"-")
	})
}
