package accel

import (
	"maps"
	"slices"
)

// Change is something that is other in one machine than in the one before: a [StateChange], [BlockedChange],
// [KernelChange], [UpgradeChange] or [HealthChange].
type Change interface {
	// Of is the kind that it is about.
	Of() string
}

// StateChange: a kind went from one state to another. From is empty for a kind that is new.
type StateChange struct {
	Kind     string
	From, To State
}

// BlockedChange: the kind's step failed for a reason that it did not have before.
type BlockedChange struct {
	Kind    string
	State   State
	Problem Problem
}

// KernelChange: an installed kernel would find no driver after a reboot, for a reason that it did not have before.
type KernelChange struct {
	Kind, Release string
	Problem       Problem
}

// UpgradeChange: an upgrade began, is another one, went on, failed for another reason or ended.
type UpgradeChange struct {
	Kind     string
	From, To DriverHave
}

// Done reports whether the upgrade ended with another driver that serves.
func (c UpgradeChange) Done() bool {
	other := c.From.Version != c.To.Version || c.From.Key != c.To.Key
	return c.From.Upgrade != nil && c.To.Upgrade == nil && c.To.Right && other
}

// Wished reports whether a driver is wanted that was not wanted before.
func (c UpgradeChange) Wished() bool {
	return c.To.Upgrade != nil && (c.From.Upgrade == nil || c.From.Upgrade.Wish != c.To.Upgrade.Wish)
}

// Failed reports whether the upgrade failed for a reason that it did not have before.
func (c UpgradeChange) Failed() bool {
	was, is := c.From.Upgrade, c.To.Upgrade
	return is != nil && is.Failure != nil && (was == nil || otherReason(was.Failure, is.Failure))
}

// HealthChange: a device or partition came, went, or its health has another state or reason.
type HealthChange struct {
	Kind, Device string
	// Parent is the ID of the device that a partition is of; empty for a device.
	Parent string
	// From is nil for a device that is new, To for one that is not remembered any more.
	From, To *Health
	// Inherited is true for a partition that changed only because its device did.
	Inherited bool
}

// Of is the kind.
func (c StateChange) Of() string { return c.Kind }

// Of is the kind.
func (c BlockedChange) Of() string { return c.Kind }

// Of is the kind.
func (c KernelChange) Of() string { return c.Kind }

// Of is the kind.
func (c UpgradeChange) Of() string { return c.Kind }

// Of is the kind.
func (c HealthChange) Of() string { return c.Kind }

// Diff returns what is other in a machine than in the one before, by kind. A zero machine comes before the first one;
// what is well in that one is no change.
func Diff(from, to Machine) []Change {
	var all []Change
	for _, kind := range slices.Sorted(maps.Keys(to.Status)) {
		was, is := from.Status[kind], to.Status[kind]
		if was.State != is.State {
			all = append(all, StateChange{kind, was.State, is.State})
		}
		if otherReason(was.Blocked, is.Blocked) {
			all = append(all, BlockedChange{kind, is.State, is.Blocked.Problem})
		}
		had, have := from.Have[kind], to.Have[kind]
		for _, release := range slices.Sorted(maps.Keys(have.Driver.Next)) {
			p, before := have.Driver.Next[release].Problem, had.Driver.Next[release].Problem
			if p != nil && (before == nil || before.Reason != p.Reason) {
				all = append(all, KernelChange{kind, release, *p})
			}
		}
		if c := (UpgradeChange{kind, had.Driver, have.Driver}); c.happened() {
			all = append(all, c)
		}
		all = append(all, healthChanges(kind, from.Taken.IsZero(), had.Accelerators, have.Accelerators)...)
	}
	return all
}

// otherReason reports whether something failed for a reason that it did not have before.
func otherReason(was, is *Failure) bool { return is != nil && (was == nil || was.Reason != is.Reason) }

func (c UpgradeChange) happened() bool {
	was, is := c.From.Upgrade, c.To.Upgrade
	if was == nil || is == nil {
		return was != is
	}
	return c.Wished() || was.Phase != is.Phase || c.Failed()
}

// healthChanges returns what happened to devices and partitions; those that are not remembered any more come last.
func healthChanges(kind string, first bool, from, to []Accelerator) []Change {
	before, now := healths(from), healths(to)
	var all []Change
	for _, a := range Flat(to) {
		c := HealthChange{Kind: kind, Device: a.ID, Parent: a.Parent, From: before[a.ID], To: now[a.ID]}
		if first && a.Health.State == Healthy || same(c.From, c.To) {
			continue
		}
		c.Inherited = a.Parent != "" && same(c.From, before[a.Parent]) && same(c.To, now[a.Parent])
		all = append(all, c)
	}
	for _, a := range Flat(from) {
		if now[a.ID] == nil {
			all = append(all, HealthChange{Kind: kind, Device: a.ID, Parent: a.Parent, From: before[a.ID]})
		}
	}
	return all
}

// healths are those of devices and partitions, by ID.
func healths(accs []Accelerator) map[string]*Health {
	all := map[string]*Health{}
	for _, a := range Flat(accs) {
		all[a.ID] = &a.Health
	}
	return all
}

// same reports whether two healths are the same for people; what it is for may be nil.
func same(a, b *Health) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.Reason == b.Reason
}
