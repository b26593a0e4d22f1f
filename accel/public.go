package accel

import (
	"maps"
	"slices"
)

// Public returns the machine without what may be secret: of the definitions only what names and recognises a kind, and
// no environment of a container. Sources may name a proxy with its password, and arguments and environments anything.
func (m Machine) Public() Machine {
	m.Want.Kinds = maps.Clone(m.Want.Kinds)
	for kind, def := range m.Want.Kinds {
		m.Want.Kinds[kind] = &Definition{
			Kind: def.Kind, Title: def.Title, Enabled: def.Enabled, Vendor: def.Vendor, Resource: def.Resource,
			Rename: def.Rename, After: def.After, Match: def.Match, Except: def.Except, Allocation: def.Allocation,
			Sharing: def.Sharing, Repair: def.Repair, Unrequested: reportOnly(def.Unrequested),
			IgnoreConditions: def.IgnoreConditions,
			Driver:           DriverDefinition{Version: def.Driver.Version, Binds: def.Driver.Binds},
		}
		if h := def.Handover; h != nil { // what it runs and writes is nobody's business
			m.Want.Kinds[kind].Handover = &Handover{Leftovers: h.Leftovers, Scrub: h.Scrub, Timeout: h.Timeout}
		}
	}
	m.Have = maps.Clone(m.Have)
	for kind, have := range m.Have {
		have.Accelerators = withoutEnv(have.Accelerators)
		for i, a := range have.Accelerators {
			have.Accelerators[i].Unrequested, have.Accelerators[i].Use = a.Unrequested.Public(), a.Use.Public()
		}
		m.Have[kind] = have
	}
	return m
}

// reportOnly returns u without who may use devices.
func reportOnly(u *Unrequested) *Unrequested {
	if u == nil {
		return nil
	}
	return &Unrequested{Report: u.Report}
}

func withoutEnv(accs []Accelerator) []Accelerator {
	accs = slices.Clone(accs)
	for i := range accs {
		accs[i].Env, accs[i].Partitions = nil, withoutEnv(accs[i].Partitions)
	}
	return accs
}
