package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// divide divides the GPU into the given number of instances of each profile, or makes it whole if parts is empty. The
// caller has made sure that the GPU is not in use; NVML refuses otherwise. If it fails half-way, the result is left as
// it is and shows in the next answer.
func (d *device) divide(parts map[string]int) error {
	c := d.calls
	for _, symbol := range []string{
		"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfoV",
		"nvmlDeviceCreateGpuInstance", "nvmlDeviceGetGpuInstances",
	} {
		if !c.has(symbol) {
			return fmt.Errorf("NVML of this driver has no %s", symbol)
		}
	}
	now, _, ret := d.handle.GetMigMode()
	if !c.ok(ret) {
		return fmt.Errorf("it cannot be divided (MIG): %v", ret)
	}
	there := d.profiles()
	var names []string
	for _, p := range there {
		names = append(names, p.name)
	}
	for name := range parts {
		if !slices.Contains(names, name) {
			return fmt.Errorf("it has no profile %s; there are %s", name, strings.Join(names, ", "))
		}
	}
	mode := nvml.DEVICE_MIG_DISABLE
	if len(parts) > 0 {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	if now == nvml.DEVICE_MIG_ENABLE {
		if err := d.empty(there); err != nil {
			return err
		}
	}
	if now != mode {
		ret, activation := d.handle.SetMigMode(mode)
		if !c.ok(ret) {
			return fmt.Errorf("cannot set the mode: %v", ret)
		}
		if activation != nvml.SUCCESS {
			return fmt.Errorf("the mode waits for a reset of the GPU: %v", activation)
		}
	}
	return d.fill(there, parts)
}

// profile is a kind of instance that the GPU can have.
type profile struct {
	name string
	info nvml.GpuInstanceProfileInfo
}

// profiles returns the profiles of this GPU.
func (d *device) profiles() []profile {
	var all []profile
	for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		v3, ret := d.handle.GetGpuInstanceProfileInfoV(i).V3()
		if ret != nvml.SUCCESS {
			continue // not supported by this model
		}
		var name []byte
		for _, b := range v3.Name {
			if b == 0 {
				break
			}
			name = append(name, byte(b))
		}
		text := strings.ReplaceAll(strings.TrimPrefix(string(name), "MIG "), "+", ".")
		info := nvml.GpuInstanceProfileInfo{
			Id: v3.Id, SliceCount: v3.SliceCount, InstanceCount: v3.InstanceCount,
			MemorySizeMB: v3.MemorySizeMB,
		}
		all = append(all, profile{text, info})
	}
	return all
}

// empty destroys all instances.
func (d *device) empty(there []profile) error {
	for _, p := range there {
		if p.info.InstanceCount == 0 {
			continue
		}
		instances, ret := d.handle.GetGpuInstances(&p.info)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("cannot list the instances of profile %s: %v", p.name, ret)
		}
		for _, gpu := range instances {
			for i := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
				info, ret := gpu.GetComputeInstanceProfileInfo(i, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
				if ret != nvml.SUCCESS || info.InstanceCount == 0 {
					continue
				}
				computes, ret := gpu.GetComputeInstances(&info)
				if ret != nvml.SUCCESS {
					return fmt.Errorf("cannot list the compute instances of profile %s: %v", p.name, ret)
				}
				for _, compute := range computes {
					if ret := compute.Destroy(); ret != nvml.SUCCESS {
						return fmt.Errorf("cannot destroy a compute instance of profile %s: %v", p.name, ret)
					}
				}
			}
			if ret := gpu.Destroy(); ret != nvml.SUCCESS {
				return fmt.Errorf("cannot destroy an instance of profile %s: %v", p.name, ret)
			}
		}
	}
	return nil
}

// fill creates the instances, large ones first, because small ones could take their place.
func (d *device) fill(there []profile, parts map[string]int) error {
	slices.SortFunc(there, func(a, b profile) int {
		return cmp.Or(cmp.Compare(b.info.SliceCount, a.info.SliceCount), strings.Compare(a.name, b.name))
	})
	left := maps.Clone(parts)
	for _, p := range there {
		count := left[p.name]
		delete(left, p.name) // another profile of the same name gets none
		for n := range count {
			gpu, ret := d.handle.CreateGpuInstance(&p.info)
			if ret != nvml.SUCCESS {
				return fmt.Errorf("cannot create instance %d of profile %s: %v", n+1, p.name, ret)
			}
			if err := whole(gpu, p.info.SliceCount); err != nil {
				return fmt.Errorf("cannot use instance %d of profile %s: %w", n+1, p.name, err)
			}
		}
	}
	return nil
}

// whole creates one compute instance from all slices of a GPU instance.
func whole(gpu nvml.GpuInstance, count uint32) error {
	for i := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gpu.GetComputeInstanceProfileInfo(i, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS || info.SliceCount != count {
			continue
		}
		if _, ret := gpu.CreateComputeInstance(&info); ret != nvml.SUCCESS {
			return fmt.Errorf("no compute instance: %v", ret)
		}
		return nil
	}
	return fmt.Errorf("it has no compute instance of %d slices", count)
}
