package dra

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
)

// domain is the suffix of driver names, which are global in a cluster.
const domain = ".acceld.dev"

// DriverName is the name of a kind's driver at the API server and the kubelet, such as "qemu-edu.acceld.dev". The
// kind's DeviceClass has the same name. A kind has at most 38 characters, a driver's name at most 63.
func DriverName(def *accel.Definition) string { return def.Kind + domain }

// DeviceName turns an accelerator's id into a DNS label of at most 63 characters: "0000:01:00.0" becomes
// "0000-01-00-0".
func DeviceName(id string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(id))
	if len(name) > 63 {
		sum := sha256.Sum256([]byte(id))
		name = name[:63-9] + "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

// ClassName is the name of the DeviceClass for a partition profile, such as "half.qemu-edu.acceld.dev". An empty
// profile means whole devices.
func ClassName(def *accel.Definition, profile string) string {
	if profile == "" {
		return DriverName(def)
	}
	return strings.ToLower(strings.ReplaceAll(profile, "_", "-")) + "." + DriverName(def)
}

// sliceName names the i-th slice of a pool. The name depends only on what the slice is for, so that a slice whose
// create request got no answer is found again. The number has a fixed width, so that names sort in the order of their
// slices: the scheduler allocates in this order. Names of objects have at most 253 characters. The first label of a
// driver has no dot, so no node can have a slice by the name of another node's.
func sliceName(node, driver string, i int) string {
	end := fmt.Sprintf(".%s-%03x", driver, i)
	if len(node)+len(end) > 253 {
		sum := sha256.Sum256([]byte(node))
		node = node[:253-len(end)-17] + "x" + hex.EncodeToString(sum[:8])
	}
	return node + end
}
