package accel

// RepairChange says that acceld has begun to reset a device, has given up, or would begin if it were no dry run.
type RepairChange struct {
	Kind, Device string
	Repair       RepairHave
	// Why is what is wrong with the device.
	Why Health
}

// Of returns the kind.
func (c RepairChange) Of() string { return c.Kind }

// repairAction is what people are told of about a device that needs a reset.
type repairAction struct {
	state RepairState
	would bool
}

// action returns the action; the zero repairAction for a device that waits.
func (a Accelerator) action() repairAction {
	switch {
	case a.Repair == nil || a.Repair.State == RepairWaits && !a.Repair.Would:
		return repairAction{}
	case a.Repair.Would:
		return repairAction{RepairWaits, true}
	}
	return repairAction{state: a.Repair.State}
}

// repairChanges returns the actions that are new.
func repairChanges(kind string, from, to []Accelerator) (all []Change) {
	before := map[string]repairAction{}
	for _, a := range from {
		before[a.ID] = a.action()
	}
	for _, a := range to {
		if now := a.action(); now != (repairAction{}) && now != before[a.ID] {
			all = append(all, RepairChange{kind, a.ID, *a.Repair, a.Health})
		}
	}
	return all
}
