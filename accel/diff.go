package accel

import (
	"maps"
	"slices"
)

// Change is one difference between two machines: a [StateChange], [BlockedChange], [KernelChange], [UpgradeChange],
// [HealthChange], [RepairChange], [SettingChange], [SwitchChange] or [UnrequestedChange].
type Change interface {
	// Of returns the kind that changed.
	Of() string
}

// StateChange says that a kind went from one state to another. From is empty for a kind that is new.
type StateChange struct {
	Kind     string
	From, To State
}

// BlockedChange says that a step of the kind failed for a new reason.
type BlockedChange struct {
	Kind    string
	State   State
	Problem Problem
}

// KernelChange says that an installed kernel would have no driver after a reboot, for a new reason.
type KernelChange struct {
	Kind, Release string
	Problem       Problem
}

// UpgradeChange says that an upgrade began, was replaced by another one, made progress, failed for a new reason, or
// ended.
type UpgradeChange struct {
	Kind     string
	From, To DriverHave
}

// Done reports whether the upgrade ended, and another driver serves now.
func (c UpgradeChange) Done() bool {
	other := c.From.Version != c.To.Version || c.From.Key != c.To.Key
	return c.From.Upgrade != nil && c.To.Upgrade == nil && c.To.Serves && other
}

// Wished reports whether the configuration now asks for another driver.
func (c UpgradeChange) Wished() bool {
	return c.To.Upgrade != nil && (c.From.Upgrade == nil || c.From.Upgrade.Wish != c.To.Upgrade.Wish)
}

// Failed reports whether the upgrade failed for a new reason.
func (c UpgradeChange) Failed() bool {
	was, is := c.From.Upgrade, c.To.Upgrade
	return is != nil && is.Failure != nil && (was == nil || otherReason(was.Failure, is.Failure))
}

// HealthChange says that a device or partition appeared or was forgotten, or that its health state or reason changed.
type HealthChange struct {
	Kind, Device string
	// Parent is the ID of a partition's device; empty for a device.
	Parent string
	// From is nil for a new device, To for a forgotten one.
	From, To *Health
	// Inherited is true for a partition that changed only because its device did.
	Inherited bool
}

// Of returns the kind.
func (c StateChange) Of() string { return c.Kind }

// Of returns the kind.
func (c BlockedChange) Of() string { return c.Kind }

// Of returns the kind.
func (c KernelChange) Of() string { return c.Kind }

// Of returns the kind.
func (c UpgradeChange) Of() string { return c.Kind }

// Of returns the kind.
func (c HealthChange) Of() string { return c.Kind }

// Diff returns the changes from one machine to the next, ordered by kind. The first machine is compared with a zero
// one, but a healthy device of the first machine is not a change.
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
		all = append(all, repairChanges(kind, had.Accelerators, have.Accelerators)...)
		all = append(all, settingChanges(kind, had.Accelerators, have.Accelerators)...)
		all = append(all, switchChanges(kind, had.Accelerators, have.Accelerators)...)
		all = append(all, unrequestedChanges(kind, from.Taken, had.Accelerators, have.Accelerators)...)
	}
	return all
}

// otherReason reports whether something failed for a new reason.
func otherReason(was, is *Failure) bool { return is != nil && (was == nil || was.Reason != is.Reason) }

func (c UpgradeChange) happened() bool {
	was, is := c.From.Upgrade, c.To.Upgrade
	if was == nil || is == nil {
		return was != is
	}
	return c.Wished() || was.Phase != is.Phase || c.Failed()
}

// healthChanges returns what happened to devices and partitions, the forgotten ones last.
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

// healths returns the health of devices and partitions by ID.
func healths(accs []Accelerator) map[string]*Health {
	all := map[string]*Health{}
	for _, a := range Flat(accs) {
		all[a.ID] = &a.Health
	}
	return all
}

// same reports whether state and reason are equal; nil equals only nil.
func same(a, b *Health) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.Reason == b.Reason
}
