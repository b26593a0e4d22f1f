package accel

import (
	"fmt"
	"maps"
	"slices"
)

// DrainAnnotation is how the controller marks a node that it drains for the upgrade of a driver, until the node's slot
// ends.
const DrainAnnotation = "acceld.dev/drain"

// DrainMark is the value of [DrainAnnotation].
type DrainMark string

// The marks. Any other text that is not empty is that of another version: the drain has begun.
const (
	Draining  DrainMark = "draining" // pods are evicted
	DrainDone DrainMark = "drained"  // they have left
)

// CordonAnnotation names the policy for whose upgrade the controller has cordoned the node. It is empty if somebody has
// ended the cordon since.
const CordonAnnotation = "acceld.dev/cordoned-by"

// OwnConditions returns the conditions that acceld writes.
func OwnConditions() []MaintenanceCondition {
	return []MaintenanceCondition{MaintenanceInProgress, DrainInProgress}
}

// OwnMaintenance is what acceld itself does to the node. The zero value is nothing that others must know.
type OwnMaintenance struct {
	Reason  string // [OwnUpgrade] or [OwnRepair]
	Message string
	// Drains is whether pods are made to leave.
	Drains bool
}

// OwnMaintenance returns what acceld does to the node. It is unknown while an agent that has just started cannot tell
// whether work that an earlier one began has ended.
//
// A device that is repaired marks the node only if no other accelerator is left: a node with seven of eight devices is
// useful, and whoever reads the condition may take all its pods away.
func (m *Machine) OwnMaintenance() Answer[OwnMaintenance] {
	known := !m.Taken.IsZero()
	for _, kind := range slices.Sorted(maps.Keys(m.Have)) {
		have, def := m.Have[kind], m.Want.Kinds[kind]
		if own := have.Driver.Upgrade.own(kind, def); own != (OwnMaintenance{}) {
			return Known(own)
		}
		known = known && m.Status[kind].State != "" && (have.UpgradeReport.Known || m.Status[kind].State == Absent)
	}
	if !known {
		return Answer[OwnMaintenance]{}
	}
	return Known(m.ownRepair())
}

// own returns what an upgrade does to the node: nothing while it waits for the users of the driver to end.
func (u *Upgrade) own(kind string, def *Definition) OwnMaintenance {
	drains := u != nil && u.Phase == UpgradeDraining && def != nil && def.Driver.Upgrade.Holders == HoldersEvict
	if !drains && (u == nil || u.Phase != UpgradeReplacing) {
		return OwnMaintenance{}
	}
	return OwnMaintenance{
		Reason: OwnUpgrade, Drains: drains, Message: fmt.Sprintf("acceld replaces the driver of %s: %s, was %s", kind,
			u.To, u.From),
	}
}

// ownRepair returns what repairs do to the node.
func (m *Machine) ownRepair() (own OwnMaintenance) {
	present := 0
	for _, have := range m.Have {
		for _, a := range have.Accelerators {
			if !a.Present() {
				continue
			}
			present++
			if a.Repair == nil || a.Repair.State != RepairRuns && !a.Repair.Evicts {
				return OwnMaintenance{}
			}
			own.Drains = own.Drains || a.Repair.Evicts
		}
	}
	if present > 0 {
		own.Reason, own.Message = OwnRepair, "acceld resets every accelerator of the node"
	}
	return own
}
