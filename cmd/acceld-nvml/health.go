package main

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
)

// health returns the worst that NVML reports about the device now; nil if it is healthy. The definition, not this
// program, says what an Xid means.
func (d *device) health(parts int) *accel.ProbeHealth {
	c := d.calls
	action, asks := field(c, d.handle, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
	pending, failed := false, false
	if c.has("nvmlDeviceGetRemappedRows") {
		var ret nvml.Return
		if _, _, pending, failed, ret = d.handle.GetRemappedRows(); !c.ok(ret) {
			pending, failed = false, false
		}
	}
	empty := parts == 0 && d.divided()
	unhealthy := func(reason accel.Reason, action accel.Action, message string) *accel.ProbeHealth {
		return &accel.ProbeHealth{State: accel.Unhealthy, Reason: reason, Action: action, Message: message}
	}
	switch recovery := nvml.DeviceGpuRecoveryAction(action); {
	case c.lost:
		return unhealthy(accel.DeviceUnreachable, accel.ActionReboot,
			"the driver has lost it: it has fallen off the bus or does not answer")
	case failed:
		return unhealthy(accel.DeviceUnhealthy, accel.ActionService,
			"a memory row could not be replaced by a spare one")
	case asks && recovery == nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		return unhealthy(accel.DeviceUnhealthy, accel.ActionReboot, "the driver asks for a reboot")
	case asks && recovery == nvml.GPU_RECOVERY_ACTION_GPU_RESET, c.reset:
		return unhealthy(accel.DeviceUnhealthy, accel.ActionResetDevice, "the driver asks for a reset")
	case empty:
		return unhealthy(accel.DevicePartitioned, "", "it is set to be divided (MIG) and has no instance")
	case asks && (recovery == nvml.GPU_RECOVERY_ACTION_DRAIN_P2P ||
		recovery == nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET):
		return &accel.ProbeHealth{
			State: accel.Degraded, Action: accel.ActionResetDevice, Reason: accel.DeviceUnhealthy,
			Message: "the driver asks for a drain",
		}
	case pending:
		return &accel.ProbeHealth{
			State: accel.Degraded, Action: accel.ActionResetDevice, Reason: accel.DeviceUnhealthy,
			Message: "a memory row will be replaced by a spare one at the next reset",
		}
	}
	return nil
}
