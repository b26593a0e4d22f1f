package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/acceld/acceld/accel"
)

// knob is something that NVML sets. The texts are those in the definition, or numbers.
type knob struct {
	name string
	// reads and sets are the functions of NVML that it needs.
	reads, sets string
	// read returns false if the GPU does not have it.
	read func(c *calls, d nvml.Device) (accel.ProbeSetting, bool)
	// set is called only with a text that is one word or number.
	set func(c *calls, d nvml.Device, value string) (nvml.Return, error)
}

// knobs returns all of them. What they do, and that none but the ECC mode survives a reboot, is after the reference of
// NVML (nvml.h of 580: the functions that are named here).
func knobs() []knob {
	return []knob{
		{
			"persistence", "nvmlDeviceGetPersistenceMode", "nvmlDeviceSetPersistenceMode",
			func(c *calls, d nvml.Device) (accel.ProbeSetting, bool) {
				mode, ret := d.GetPersistenceMode()
				return accel.ProbeSetting{Value: onOff(mode)}, c.ok(ret)
			},
			func(_ *calls, d nvml.Device, value string) (nvml.Return, error) {
				mode, err := mode(value)
				if err != nil {
					return 0, err
				}
				return d.SetPersistenceMode(mode), nil
			},
		},
		{
			"powerLimitWatts", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceSetPowerManagementLimit",
			powerLimit, setPowerLimit,
		},
		{
			"computeMode", "nvmlDeviceGetComputeMode", "nvmlDeviceSetComputeMode",
			func(c *calls, d nvml.Device) (accel.ProbeSetting, bool) {
				now, ret := d.GetComputeMode()
				word, known := computeModes()[now]
				return accel.ProbeSetting{Value: word}, c.ok(ret) && known
			},
			func(_ *calls, d nvml.Device, value string) (nvml.Return, error) {
				for mode, word := range computeModes() {
					if word == value {
						return d.SetComputeMode(mode), nil
					}
				}
				return 0, fmt.Errorf("%q is no compute mode", value)
			},
		},
		{
			"ecc", "nvmlDeviceGetEccMode", "nvmlDeviceSetEccMode",
			func(c *calls, d nvml.Device) (accel.ProbeSetting, bool) {
				now, pending, ret := d.GetEccMode()
				s := accel.ProbeSetting{Value: onOff(now)}
				if pending != now {
					s.Pending = onOff(pending)
				}
				return s, c.ok(ret)
			},
			func(_ *calls, d nvml.Device, value string) (nvml.Return, error) {
				mode, err := mode(value)
				if err != nil {
					return 0, err
				}
				return d.SetEccMode(mode), nil
			},
		},
		// NVML locks the clock of the processors between two frequencies, here the same, and does not say which.
		{"lockedClockMHz", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceSetGpuLockedClocks", lockedClock, lockClock},
	}
}

func onOff(mode nvml.EnableState) string {
	if mode == nvml.FEATURE_ENABLED {
		return "on"
	}
	return "off"
}

func mode(word string) (nvml.EnableState, error) {
	switch word {
	case "on":
		return nvml.FEATURE_ENABLED, nil
	case "off":
		return nvml.FEATURE_DISABLED, nil
	}
	return 0, fmt.Errorf("%q is neither on nor off", word)
}

// computeModes are the modes that there are since CUDA 8; "exclusive" is the exclusive process mode.
func computeModes() map[nvml.ComputeMode]string {
	return map[nvml.ComputeMode]string{
		nvml.COMPUTEMODE_DEFAULT: "default", nvml.COMPUTEMODE_PROHIBITED: "prohibited",
		nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive",
	}
}

func powerLimit(c *calls, d nvml.Device) (accel.ProbeSetting, bool) {
	watts := func(milliwatts uint32) string { return strconv.FormatFloat(float64(milliwatts)/1000, 'f', -1, 64) }
	now, ret := d.GetPowerManagementLimit()
	if !c.ok(ret) {
		return accel.ProbeSetting{}, false
	}
	s := accel.ProbeSetting{Value: watts(now)}
	if c.has("nvmlDeviceGetPowerManagementLimitConstraints") {
		if least, most, ret := d.GetPowerManagementLimitConstraints(); c.ok(ret) {
			s.Min, s.Max = watts(least), watts(most)
		}
	}
	return s, true
}

func setPowerLimit(_ *calls, d nvml.Device, value string) (nvml.Return, error) {
	n, err := inUnits(value, 1000, 1_000_000_000)
	if err != nil {
		return 0, err
	}
	return d.SetPowerManagementLimit(n), nil
}

func lockedClock(c *calls, d nvml.Device) (accel.ProbeSetting, bool) {
	most, ret := d.GetMaxClockInfo(nvml.CLOCK_GRAPHICS)
	return accel.ProbeSetting{Max: strconv.FormatUint(uint64(most), 10)}, c.ok(ret)
}

func lockClock(c *calls, d nvml.Device, value string) (nvml.Return, error) {
	if value == "off" {
		if !c.has("nvmlDeviceResetGpuLockedClocks") {
			return nvml.ERROR_NOT_SUPPORTED, nil
		}
		return d.ResetGpuLockedClocks(), nil
	}
	n, err := inUnits(value, 1, 100_000)
	if err != nil {
		return 0, err
	}
	return d.SetGpuLockedClocks(n, n), nil
}

// inUnits returns a number in a smaller unit, from 1 to a bound.
func inUnits(value string, factor, most float64) (uint32, error) {
	n, err := strconv.ParseFloat(value, 64)
	if n = math.Round(n * factor); err != nil || !(n >= 1 && n <= most) {
		return 0, fmt.Errorf("%q is no such number", value)
	}
	return uint32(n), nil
}

// settings returns what can be set on the device, and what is set.
func (d *device) settings() map[string]accel.ProbeSetting {
	all := map[string]accel.ProbeSetting{}
	for _, k := range knobs() {
		if !d.calls.has(k.reads) || !d.calls.has(k.sets) {
			continue
		}
		if s, ok := k.read(d.calls, d.handle); ok {
			all[k.name] = s
		}
	}
	return all
}

// set sets something.
func (d *device) set(r *accel.ProbeSet) {
	ret, err := d.turn(r.Setting, r.Value)
	switch {
	case err != nil:
		r.Problem = err.Error()
	case !d.calls.ok(ret):
		r.Problem, r.Unsupported = fmt.Sprintf("NVML refuses it: %v", ret), ret == nvml.ERROR_NOT_SUPPORTED
	}
}

// turn turns one knob.
func (d *device) turn(name, value string) (nvml.Return, error) {
	if d.calls.lost {
		return 0, errors.New("the driver has lost it")
	}
	for _, k := range knobs() {
		if k.name != name {
			continue
		}
		if !d.calls.has(k.sets) {
			return nvml.ERROR_NOT_SUPPORTED, nil
		}
		return k.set(d.calls, d.handle, value)
	}
	return 0, errors.New("NVML has no such setting")
}
