package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// start is when the machines of the tests were taken.
func start() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

// change modifies a ready machine. It gets copies of what it may change.
type change func(*accel.Machine)

// readyMachine returns a machine with one ready kind of two devices, and applies the changes to it.
func readyMachine(changes ...change) accel.Machine {
	well := accel.Health{State: accel.Healthy, Since: start()}
	m := accel.Machine{
		Taken: start(),
		Agent: accel.Agent{Version: "0.1.0", Node: "node-a"},
		Facts: accel.Facts{
			Kernel: accel.Kernel{Release: "6.12.9-1-lts", Arch: "x86_64"},
			PCI: []accel.PCIDevice{
				{Address: "0000:01:00.0", Vendor: "1234", Device: "11e8", DeviceName: "EDU (rev 1)"},
				{Address: "0000:02:00.0", Vendor: "1234", Device: "11e8"},
				{Address: "0000:00:01.0", Vendor: "8086", Device: "1237"},
			},
		},
		Want: accel.Want{Kubernetes: true, Labels: true},
		Have: map[string]accel.Have{"qemu-edu": {
			Accelerators: []accel.Accelerator{{ID: "0000:01:00.0", Health: well}, {ID: "0000:02:00.0", Health: well}},
			Driver:       accel.DriverHave{Serves: true, Version: "1.2.0"},
			Monitoring:   accel.Monitoring{Collected: start(), Labelled: true},
		}},
		Status: map[string]accel.Status{"qemu-edu": {State: accel.Ready, Published: phases(5)}},
	}
	for _, c := range changes {
		c(&m)
	}
	return m
}

// phases returns the first n published states as ready and the others as pending.
func phases(n int) map[accel.Published]accel.Phase {
	all := map[accel.Published]accel.Phase{}
	for i, p := range accel.PublishedStates() {
		all[p] = accel.PhasePending
		if i < n {
			all[p] = accel.PhaseReady
		}
	}
	return all
}

// at puts the kind into a state, with n published states ready.
func at(s accel.State, n int) change {
	return func(m *accel.Machine) {
		m.Status["qemu-edu"] = accel.Status{State: s, Published: phases(n)}
		have := m.Have["qemu-edu"]
		have.Monitoring.Labelled = false
		m.Have["qemu-edu"] = have
	}
}

// blockedBy blocks the kind.
func blockedBy(r accel.Reason, message string) change {
	return func(m *accel.Machine) {
		st := m.Status["qemu-edu"]
		st.Blocked = &accel.Failure{Step: accel.StepDriver, Problem: accel.Problem{Reason: r, Message: message}}
		st.Published = maps.Clone(st.Published)
		st.Published[accel.DriverContainer] = accel.PhaseFailed
		m.Status["qemu-edu"] = st
	}
}

// health sets the health of the second device.
func health(s accel.HealthState, r accel.Reason, message string) change {
	return func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Accelerators = slices.Clone(have.Accelerators)
		have.Accelerators[1].Health = accel.Health{State: s, Reason: r, Message: message}
		m.Have["qemu-edu"] = have
	}
}

// part gives the second device a partition with a health of its own.
func part(s accel.HealthState, r accel.Reason, message string) change {
	return func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Accelerators = slices.Clone(have.Accelerators)
		id := have.Accelerators[1].ID
		have.Accelerators[1].Partitions = []accel.Accelerator{{
			ID: accel.PartitionID(id, "half", "p0"), Parent: id, Profile: "half",
			Health: accel.Health{State: s, Reason: r, Message: message},
		}}
		m.Have["qemu-edu"] = have
	}
}

// temperature changes only a metric.
func temperature(c float64) change {
	return func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Accelerators = slices.Clone(have.Accelerators)
		have.Accelerators[0].Metrics = map[string]float64{"accelerator_temperature_celsius": c}
		m.Have["qemu-edu"] = have
	}
}

// version sets the driver's version, which is also a label.
func version(v string) change {
	return func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Driver.Version = v
		m.Have["qemu-edu"] = have
	}
}

// none removes every device.
func none(m *accel.Machine) {
	m.Have = map[string]accel.Have{}
	m.Status = map[string]accel.Status{"qemu-edu": {State: accel.Absent}}
}

func kindOf(length int) string { return fmt.Sprintf("x-%0*d", length-2, 0) }

// repairOf is a machine whose first device needs a reset.
func repairOf(r accel.RepairHave) change {
	return func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Accelerators = slices.Clone(have.Accelerators)
		have.Accelerators[0].Repair = &r
		m.Have["qemu-edu"] = have
	}
}

// usedBy is a machine whose first device is used without a request.
func usedBy(comm string) change {
	return func(m *accel.Machine) {
		have := m.Have["qemu-edu"]
		have.Accelerators = slices.Clone(have.Accelerators)
		have.Accelerators[0].Unrequested = &accel.UnrequestedHave{Count: 1, Users: []accel.UnrequestedUser{{
			Holder: accel.Holder{PID: 7, Comm: comm}, Processes: 1, Unit: "x.service", Since: start().Add(time.Hour),
		}}}
		m.Have["qemu-edu"] = have
	}
}
