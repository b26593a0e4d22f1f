package dra

import "github.com/acceld/acceld/accel"

// perDevice is how many attributes and capacities a device may have (ResourceSliceMaxAttributesAndCapacitiesPerDevice
// of k8s.io/api/resource/v1).
const perDevice = 32

// nicPrefix begins the names of the attributes about the network function near a device. They have no domain: an
// attribute of another domain would have to mean the same on the devices of all drivers, and to find a device and a
// network function of another driver that belong together, claims have the standard attribute pcieRoot.
const nicPrefix = "nic"

// named is an attribute with its name.
type named struct {
	name string
	Attribute
}

// beside renders the nearest network function with an RDMA device: what does not change while a host runs. States of
// links are left to metrics. While the kernel has not answered, what was published stays. The most useful come first.
func (v View) beside(a accel.Accelerator) (out []named) {
	f, way := accel.NearestRDMA(a, v.Devices, v.Network)
	if way == "" {
		return nil
	}
	var last map[string]Attribute
	if f.Unknown != "" && v.Last != nil {
		last = v.Last(DeviceName(a.ID))
		if id := last[nicPrefix+"BusID"].String; id == nil || *id != f.Address {
			last = nil // it is about another function
		}
	}
	text := func(name, value string) {
		if old := last[nicPrefix+name].String; value == "" && old != nil {
			value = *old
		}
		if value != "" {
			value = shorten(value, maxText)
			out = append(out, named{nicPrefix + name, Attribute{String: &value}})
		}
	}
	d := f.RDMA[0]
	text("BusID", f.Address)
	text("Path", way)
	text("RDMA", d.Name)
	text("NodeGUID", d.NodeGUID)
	text("SystemGUID", d.SystemGUID)
	var p accel.RDMAPort
	if len(d.Ports) > 0 {
		p = d.Ports[0]
	}
	text("Layer", p.Layer)
	text("Interface", p.Interface)
	text("Subnet", p.Subnet)
	return out
}

// hasLists reports whether a slice has an attribute that is a list.
func hasLists(s Slice) bool {
	for _, d := range s.Spec.Devices {
		for _, a := range d.Attributes {
			if len(a.Ints) > 0 {
				return true
			}
		}
	}
	return false
}
