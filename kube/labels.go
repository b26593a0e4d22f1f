package kube

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels returns the labels that the node of m should have:
//
//	acceld.dev/<published state>-<kind>            ready, pending or failed; driver-container also unchecked
//	acceld.dev/<kind>.count                        devices on the bus, healthy or not
//	acceld.dev/<kind>.driver-version, .product, .memory (MiB), if known
//	acceld.dev/<kind>.sick, .withheld              devices that are not usable, or well and offered to nobody, while
//	                                               there are any and the driver serves
//	acceld.dev/host.vendor, .product, .numa-nodes  of the host, if known
//	acceld.dev/host.fabric, .rails                 InfiniBand subnets of the ports near accelerators, if all are known
//	feature.node.kubernetes.io/pci-<vendor>.present
//	feature.node.kubernetes.io/kernel-version.full, .major, .minor, .revision
//	feature.node.kubernetes.io/system-os_release.ID, .VERSION_ID, .VERSION_ID.major, .VERSION_ID.minor
//	<vendor's domain>/…                            reported by a probe program, as the vendor's own programs write it
//
// A key that the API server would refuse is left out, and a value is made acceptable: one bad label must not cost the
// others.
func Labels(m accel.Machine) map[string]string {
	labels := map[string]string{}
	for kind, st := range m.Status {
		for p, phase := range st.Published {
			if phase == accel.PhasePending && complete(m, kind) {
				phase = accel.PhaseReady
			}
			labels[Prefix+string(p)+"-"+kind] = string(phase)
		}
		for _, a := range m.Have[kind].Accelerators {
			if v := m.Facts.Function(a.ID).Vendor; v != "" && a.Present() {
				labels[pciLabel(v)] = "true"
			}
		}
		for f, value := range kindFeatures(m, kind) {
			labels[Prefix+kind+"."+f] = value
		}
		maps.Copy(labels, vendorLabels(m, kind))
	}
	if len(labels) > 0 { // acceld does not describe a host without accelerators
		maps.Copy(labels, systemLabels(m.Facts))
		for f, value := range hostFeatures(m.Facts.Inventory) {
			labels[Prefix+hostPart+"."+f] = value
		}
		for f, value := range fabricFeatures(m) {
			labels[Prefix+hostPart+"."+f] = value
		}
	}
	acceptable := map[string]string{}
	for key, value := range labels {
		if value = LabelValue(value); value != "" && len(validation.IsQualifiedName(key)) == 0 {
			acceptable[key] = value
		}
	}
	return acceptable
}

// kindFeatures returns what is known about a kind; nothing if the kind has no device, present or remembered.
func kindFeatures(m accel.Machine, kind string) map[string]string {
	have := m.Have[kind]
	if len(have.Accelerators) == 0 {
		return nil
	}
	f := map[string]string{
		"count":          strconv.Itoa(accel.CountPresent(have.Accelerators)),
		"driver-version": have.Driver.Version,
	}
	if have.Driver.Serves { // without it, nothing is known of them
		sick, withheld := 0, 0
		for _, a := range have.Accelerators {
			switch {
			case !a.Present(): // it does not count
			case !a.Health.Usable():
				sick++
			case a.WithheldAlone() && !a.InOtherUse() && !a.AwaitsReport():
				withheld++
			}
		}
		f["sick"], f["withheld"] = some(sick), some(withheld)
	}
	for _, a := range slices.Backward(have.Accelerators) { // the first device with a value wins
		if n := cmp.Or(a.Model, m.Facts.Function(a.ID).DeviceName); n != "" {
			f["product"] = n
		}
		if b := a.Metrics["accelerator_memory_total_bytes"]; b > 0 {
			f["memory"] = strconv.FormatInt(int64(b)>>20, 10)
		}
	}
	return f
}

// some returns a number; empty, which is no label, for none.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// hostFeatures returns the features that workloads select hosts by. An unknown one is empty and gets no label.
func hostFeatures(i accel.Inventory) map[string]string {
	f := map[string]string{"vendor": i.Product.Vendor, "product": i.Product.Name}
	if n := len(i.Nodes); n > 0 {
		f["numa-nodes"] = strconv.Itoa(n)
	}
	return f
}

// fabricFeatures returns the InfiniBand fabric that the ports nearest to the host's accelerators are in. If they are
// all in one subnet, that subnet is the fabric. If they are in several, each subnet is a rail, and they are counted.
// While the subnet of one of these ports is not known, nothing is: a pod that needs all rails must not be led here by a
// guess.
func fabricFeatures(m accel.Machine) map[string]string {
	near := map[string]accel.NetworkFunction{}
	for _, have := range m.Have {
		for _, a := range have.Accelerators {
			if f, way := accel.NearestRDMA(a, m.Facts.All(), m.Facts.Network); way != "" && a.Present() {
				near[f.Address] = f
			}
		}
	}
	subnets, all := accel.Subnets(slices.Collect(maps.Values(near)))
	switch {
	case !all:
		return nil
	case len(subnets) == 1:
		return map[string]string{"fabric": strings.ReplaceAll(subnets[0], ":", "-")}
	}
	return map[string]string{"rails": strconv.Itoa(len(subnets))}
}

// systemLabels returns what Node Feature Discovery says of the kernel and the distribution, with its words.
func systemLabels(f accel.Facts) map[string]string {
	labels := map[string]string{
		kernelLabel:                 f.Kernel.Release,
		systemPrefix + "ID":         f.OS.ID,
		systemPrefix + "VERSION_ID": f.OS.VersionID,
	}
	numbers := func(prefix, version string, names ...string) {
		for _, name := range names {
			n := len(version) - len(strings.TrimLeft(version, "0123456789"))
			labels[prefix+name] = version[:n]
			var more bool
			if version, more = strings.CutPrefix(version[n:], "."); !more {
				return
			}
		}
	}
	numbers(kernelPrefix, f.Kernel.Release, "major", "minor", "revision")
	numbers(systemPrefix+"VERSION_ID.", f.OS.VersionID, "major", "minor")
	return labels
}

// vendorLabels returns the labels that the kind's probe program reports in its vendor's domain.
func vendorLabels(m accel.Machine, kind string) map[string]string {
	out := map[string]string{}
	def, have := m.Want.Kinds[kind], m.Have[kind].Probe
	if def == nil || def.Vendor == "" || have == nil {
		return out
	}
	for key, value := range have.Labels {
		if strings.HasPrefix(key, def.Vendor+"/") && shared(key) {
			out[key] = value
		}
	}
	return out
}

// complete reports whether a kind is ready except for its labels, which the next write itself adds. Each node that
// comes up so saves a second round of writes.
func complete(m accel.Machine, kind string) bool {
	st, mon := m.Status[kind], m.Have[kind].Monitoring
	return st.State == accel.Ready ||
		st.State == accel.Unwatched && st.Blocked == nil && !mon.Collected.IsZero() && !mon.Labelled &&
			mon.LabelProblem == ""
}

// LabelValue turns s into a label value: at most 63 of [A-Za-z0-9_.-], beginning and ending with a letter or digit.
func LabelValue(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		case r == ' ':
			return '-'
		}
		return '_'
	}, strings.TrimSpace(s))
	return strings.Trim(s[:min(len(s), maxValue)], "_.-")
}
