package main

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
)

// mode returns the GPU's mode for instances (MIG); false if it cannot have any.
func (d *device) mode() (now int, ok bool) {
	if !d.calls.has("nvmlDeviceGetMigMode") {
		return 0, false
	}
	now, _, ret := d.handle.GetMigMode()
	return now, d.calls.ok(ret)
}

// divided reports whether the GPU is in the mode for instances.
func (d *device) divided() bool {
	now, ok := d.mode()
	return ok && now == nvml.DEVICE_MIG_ENABLE
}

// partitions returns the instances of the GPU, and a summary of each profile.
func (d *device) partitions() ([]accel.ProbePartition, map[string]part) {
	if !d.divided() {
		return nil, nil
	}
	c := d.calls
	most, ret := d.handle.GetMaxMigDeviceCount()
	if !c.ok(ret) {
		return nil, nil
	}
	minor, ret := d.handle.GetMinorNumber()
	if !c.ok(ret) {
		return nil, nil
	}
	var list []accel.ProbePartition
	parts := map[string]part{}
	for i := range most {
		handle, ret := d.handle.GetMigDeviceHandleByIndex(i)
		if !c.ok(ret) {
			continue // not every index is in use
		}
		p, attributes, ok := d.instance(handle, minor)
		if !ok {
			continue
		}
		list = append(list, p)
		parts[p.Profile] = part{parts[p.Profile].count + 1, attributes}
	}
	return list, parts
}

// instance reads one instance; false while it is being created or destroyed.
func (d *device) instance(handle nvml.Device, minor int) (p accel.ProbePartition, attributes nvml.DeviceAttributes,
	ok bool,
) {
	c := d.calls
	gpu, ret := handle.GetGpuInstanceId()
	if !c.ok(ret) {
		return p, attributes, false
	}
	compute, ret := handle.GetComputeInstanceId()
	if !c.ok(ret) {
		return p, attributes, false
	}
	name, ret := handle.GetName()
	if !c.ok(ret) {
		return p, attributes, false
	}
	// "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me".
	_, profile, found := strings.Cut(name, " MIG ")
	if !found {
		return p, attributes, false
	}
	attributes, ret = handle.GetAttributes()
	if c.ok(ret) {
		p.Capacity = map[string]int64{"memory": int64(attributes.MemorySizeMB) << 20}
	}
	p.Name = fmt.Sprintf("gi%d-ci%d", gpu, compute)
	p.Profile = strings.ReplaceAll(profile, "+", ".") // as in the resource names of NVIDIA's device plugin
	p.UUID = value(c, "nvmlDeviceGetUUID", handle.GetUUID)
	dir := fmt.Sprintf("gpu%d/mig/gi%d/", minor, gpu)
	for _, file := range []string{dir + "access", dir + fmt.Sprintf("ci%d/access", compute)} {
		if node := d.files.capability(file); node != "" {
			p.Nodes = append(p.Nodes, node)
		}
	}
	return p, attributes, true
}
