package dra

import (
	"cmp"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acceld/acceld/accel"
)

// TaintKey is the key of the taint on a device that new claims must not get. Its value is an [accel.Reason].
const TaintKey = "acceld.dev/unusable"

// Effects of a taint on a device (k8s.io/api/resource/v1).
const (
	noSchedule = "NoSchedule"
	noExecute  = "NoExecute"
)

// Attributes that all drivers share (k8s.io/dynamic-resource-allocation/deviceattribute, v0.37).
const (
	pcieRoot = "resource.kubernetes.io/pcieRoot"
	pciBusID = "resource.kubernetes.io/pciBusID"
	numaNode = "resource.kubernetes.io/numaNode"
)

// maxText is the maximum length, in bytes, of a string or version attribute.
const maxText = 64

// View is what the devices of one kind are rendered from.
type View struct {
	Node         string
	Definition   *accel.Definition
	Accelerators []accel.Accelerator
	// Devices are those of the host: PCI functions, bridges included, and what the kinds have elsewhere.
	Devices []accel.Device
	// Network are the network functions of the host, and Nodes its NUMA nodes.
	Network []accel.NetworkFunction
	Nodes   []accel.NUMANode
	// DriverVersion is the version of the live driver, or empty if it has none.
	DriverVersion string
	// Leaving are the names of sick devices for which pods wait that cannot start. They are to go elsewhere.
	Leaving map[string]bool
	// Mild says that no taint ends pods.
	Mild bool
	// Uncounted says that the API server drops counters, so that no part may be given out that has yet to be made.
	Uncounted bool
	// Followed says that somebody would notice a claim before its pod is bound.
	Followed bool
	// Refused are the names of devices that could not be divided a short time ago.
	Refused map[string]bool
	// Lists says that NUMA nodes are published as lists.
	Lists bool
	// Last returns the published attributes of a device; nil if there are none.
	Last func(device string) map[string]Attribute
}

// device renders one accelerator.
func (v View) device(a accel.Accelerator) Device {
	d := Device{Name: DeviceName(a.ID), Attributes: v.attributes(a), Consumes: v.uses(a)}
	if v.Definition.Makes() && !v.Uncounted && a.OnDemand() {
		a.Withheld = nil // it is divided for claims: the counters say so
	}
	if v.Followed && bindsLater(v.Definition) && a.Parent != "" &&
		v.Definition.Partitions.Taken(a.Profile, a.PartName()) != nil {
		d.BindsToNode = true
		d.BindingConditions, d.FailureConditions = []string{ConditionMade}, []string{ConditionFailed}
	}
	d.Taints = v.taints(a)
	d.Capacity, d.Shared = v.capacity(a)
	for _, more := range v.beside(a) {
		if len(d.Attributes)+len(d.Capacity) < perDevice {
			d.Attributes[more.name] = more.Attribute
		}
	}
	return d
}

// attributes renders what claims can select by. An unknown attribute is left out, so that an expression can test for
// it. A device has at most 14 attributes here, and 16 capacities; together they may be [perDevice].
func (v View) attributes(a accel.Accelerator) map[string]Attribute {
	out := map[string]Attribute{}
	text := func(name, value string) {
		if value != "" {
			value = shorten(value, maxText)
			out[name] = Attribute{String: &value}
		}
	}
	number := func(name string, value int64) { out[name] = Attribute{Int: &value} }
	text("kind", v.Definition.Kind)
	text("serial", a.Serial)
	text("uuid", a.UUID)
	text("profile", a.Profile)
	text("parent", DeviceName(a.Parent))
	text(pciBusID, v.function(a))
	text(pcieRoot, accel.PCIRoot(v.function(a), v.Devices))
	if version, ok := semantic(v.DriverVersion); ok {
		out["driverVersion"] = Attribute{Version: &version}
	} else {
		text("driverVersion", v.DriverVersion)
	}
	switch {
	case a.NUMANode >= 0 && v.Lists:
		var nodes []int64
		for _, n := range accel.Closest(a.NUMANode, v.Nodes) {
			nodes = append(nodes, int64(n))
		}
		out[numaNode] = Attribute{Ints: nodes}
	case a.NUMANode >= 0:
		number(numaNode, int64(a.NUMANode))
	}
	for _, d := range v.Devices {
		if d.Address != a.Address() {
			continue
		}
		text("product", cmp.Or(a.Model, d.DeviceName, v.Definition.Title, strings.Trim(d.Vendor+":"+d.Device, ":")))
		text("vendorID", d.Vendor)
		text("deviceID", d.Device)
		// The link's maximum, not its current speed: an idle link trains down, and a slice that followed it would
		// flap.
		if d.Link.MaxSpeedGTs > 0 && d.Link.MaxWidth > 0 {
			number("linkSpeedMTs", int64(d.Link.MaxSpeedGTs*1000))
			number("linkWidth", int64(d.Link.MaxWidth))
		}
	}
	return out
}

// function returns the address of the PCI function that a device is, or is on or below; empty if there is none.
func (v View) function(a accel.Accelerator) string {
	if accel.OnPCI(a.Address()) {
		return a.Address()
	}
	facts := accel.Facts{Devices: v.Devices}
	return facts.Function(a.Address()).ParentPort
}

// semantic turns a driver's version into a semantic version (semver.org, 2.0.0). Vendors write leading zeros, as in
// "580.65.06", which semantic versions do not allow.
func semantic(text string) (string, bool) {
	parts := strings.SplitN(text, ".", 3)
	for i, p := range parts {
		end := strings.IndexFunc(p, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(p)
		}
		if trimmed := strings.TrimLeft(p[:end], "0"); trimmed != "" {
			parts[i] = trimmed + p[end:]
		}
	}
	text = strings.Join(parts, ".")
	complete := strings.HasPrefix("v"+text, semver.Canonical("v"+text)) // the library also accepts "v1" and "v1.2"
	return text, complete && semver.IsValid("v"+text) && len(text) <= maxText
}

// taints renders why a device is not offered. New claims do not get it; claims that have it keep it, unless its
// definition says that their pods end, or those that have it only wait for it.
func (v View) taints(a accel.Accelerator) []Taint {
	reason, _ := a.Refusal()
	if reason == "" {
		return nil
	}
	effect := noSchedule
	if v.Definition.EndsPods(a) || v.Leaving[DeviceName(a.ID)] && !a.Health.Usable() {
		effect = noExecute
	}
	if v.Mild {
		effect = noSchedule
	}
	return []Taint{{
		Key: TaintKey, Value: string(reason), Effect: effect,
		TimeAdded: a.Health.Since.UTC().Truncate(time.Second),
	}}
}

// capacity renders the amounts of a device and whether claims may share it. An amount that is not known is left out,
// and does not make the device shareable. A claim that asks for a part of it then finds no device; otherwise the
// device would be given out without counting.
func (v View) capacity(a accel.Accelerator) (map[string]Amount, bool) {
	var out map[string]Amount
	shared := false
	for _, c := range v.Definition.CapacityOf(a) {
		value := canonical(c.Value)
		if c.File != "" {
			read, known := a.Capacity[c.Name]
			if !known {
				continue
			}
			value = resource.NewQuantity(read, resource.BinarySI).String()
		}
		if value == "" {
			continue // no amount: the API server would refuse the whole slice
		}
		if out == nil {
			out = map[string]Amount{}
		}
		out[c.Name] = Amount{Value: value, Policy: policy(c.Share, value)}
		shared = shared || c.Share != nil
	}
	return out, shared
}

// policy renders which parts of an amount claims may ask for.
func policy(s *accel.Share, whole string) *Policy {
	if s == nil {
		return nil
	}
	p := &Policy{Default: cmp.Or(canonical(s.Default), whole)}
	if r := (Range{Min: canonical(s.Min), Max: canonical(s.Max), Step: canonical(s.Step)}); r != (Range{}) {
		r.Min = cmp.Or(r.Min, r.Step, "0") // the API requires a minimum
		p.Range = &r
	}
	return p
}

// canonical returns a quantity in the form in which the API server returns it, and an empty text as it is. The
// definition was validated, so there is no other text.
func canonical(text string) string {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return ""
	}
	return q.String()
}

// shorten returns s as valid UTF-8 of at most n bytes.
func shorten(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
