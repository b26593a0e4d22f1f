package main

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
)

// health returns the worst that NVML reports about the device now; nil if it is healthy. The definition, not this
// program, says what an Xid means.
func (d *device) health(parts int) *accel.ProbeHealth {
	c := d.calls
	action, _ := field(c, d.handle, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
	pending, failed := false, false
	if c.has("nvmlDeviceGetRemappedRows") {
		var ret nvml.Return
		if _, _, pending, failed, ret = d.handle.GetRemappedRows(); !c.ok(ret) {
			pending, failed = false, false
		}
	}
	empty := parts == 0 && d.divided()
	health := func(state accel.HealthState, reason accel.Reason, action accel.Action, text string) *accel.ProbeHealth {
		return &accel.ProbeHealth{State: state, Reason: reason, Action: action, Message: text}
	}
	switch recovery := nvml.DeviceGpuRecoveryAction(action); { // GPU_RECOVERY_ACTION_NONE if it is unknown
	case c.lost:
		return health(accel.Unhealthy, accel.DeviceUnreachable, accel.ActionReboot,
			"the driver has lost it: it has fallen off the bus or does not answer")
	case failed:
		return health(accel.Unhealthy, accel.DeviceUnhealthy, accel.ActionService,
			"a memory row could not be replaced by a spare one")
	case recovery == nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		return health(accel.Unhealthy, accel.DeviceUnhealthy, accel.ActionReboot, "the driver asks for a reboot")
	case recovery == nvml.GPU_RECOVERY_ACTION_GPU_RESET, c.reset:
		return health(accel.Unhealthy, accel.DeviceUnhealthy, accel.ActionResetDevice, "the driver asks for a reset")
	case empty:
		return health(accel.Unhealthy, accel.DevicePartitioned, "", "it is set to be divided (MIG) and has no instance")
	case recovery == nvml.GPU_RECOVERY_ACTION_DRAIN_P2P, recovery == nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		return health(accel.Degraded, accel.DeviceUnhealthy, accel.ActionResetDevice, "the driver asks for a drain")
	case pending:
		return health(accel.Degraded, accel.DeviceUnhealthy, accel.ActionResetDevice,
			"a memory row will be replaced by a spare one at the next reset")
	}
	return nil
}
