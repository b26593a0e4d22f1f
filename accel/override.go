package accel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// KindConfig overrides parts of one definition. The agent's configuration file and cluster policies have one for each
// kind.
type KindConfig struct {
	// Enabled is false to leave the kind alone.
	Enabled *bool `json:"enabled,omitempty"`
	// Allocation is how pods get devices of the kind: as an extended resource or by resource claims.
	Allocation Allocation `json:"allocation,omitempty"`
	// Resource is the extended resource that pods request; the definition's when empty.
	Resource string `json:"resource,omitempty"`
	// Sharing replaces the definition's Sharing.
	Sharing *Sharing `json:"sharing,omitempty"`
	// Capacity holds amounts that every device of the kind has, by name, such as "memory": "8Gi". They take
	// precedence over the definition's amounts.
	Capacity map[string]string  `json:"capacity,omitempty"`
	Driver   KindDriverOverride `json:"driver,omitzero"`
	// Handover replaces the definition's Handover.
	Handover *Handover `json:"handover,omitempty"`
	// Repair replaces the definition's Repair.
	Repair *Repair `json:"repair,omitempty"`
	// Settings are what is set on every device of the kind, by the names of the definition's Settings.
	Settings map[string]SettingValue `json:"settings,omitempty"`
	// Functions replaces the definition's Functions.
	Functions *Functions `json:"functions,omitempty" privileged:"makes virtual functions"`
	// VFIO replaces the definition's VFIO.
	VFIO *VFIO `json:"vfio,omitempty" privileged:"gives whole PCI functions away"`
	// Unrequested replaces the definition's Unrequested.
	Unrequested *Unrequested `json:"unrequested,omitempty"`
	// IgnoreConditions replaces the definition's IgnoreConditions.
	IgnoreConditions []MaintenanceCondition `json:"ignoreConditions,omitempty"`
	// Layout replaces the layout in the definition's Partitions.
	Layout []Layout `json:"layout,omitempty"`
}

// KindDriverOverride overrides the driver of one definition; empty fields change nothing.
type KindDriverOverride struct {
	// Version and Branch replace both fields of the definition. At most one of them may be set.
	Version string `json:"version,omitempty"`
	Branch  string `json:"branch,omitempty"`
	// Sources replace those of the definition.
	Sources []Source `json:"sources,omitempty" privileged:"brings kernel modules"`
	// UserSpace replaces that of the definition.
	UserSpace *UserSpace `json:"userSpace,omitempty" privileged:"brings libraries and programs"`
	// Parameters are keyed by module, then by name.
	Parameters map[string]map[string]string `json:"parameters,omitempty"`
	// Upgrade, Takeover and Sign replace those fields of the definition.
	Upgrade  *UpgradePolicy `json:"upgrade,omitempty"`
	Takeover *bool          `json:"takeover,omitempty" privileged:"takes devices from other drivers"`
	Sign     *Signer        `json:"sign,omitempty" privileged:"signs with a key of the host"`
}

// Problems returns the errors in k, each as "<field>: <sentence>".
func (k KindConfig) Problems() []string {
	out := k.Allocation.problems("allocation")
	if text := ResourceProblem(k.Resource); k.Resource != "" && text != "" {
		out = append(out, "resource: "+text)
	}
	if k.Sharing != nil {
		out = append(out, under("sharing.", k.Sharing.Problems())...)
		if k.Allocation == AllocateByDRA {
			out = append(out, fmt.Sprintf("sharing: is for allocation %s", AllocateByPlugin))
		}
	}
	if k.Handover != nil {
		out = append(out, under("handover.", k.Handover.Problems())...)
	}
	if k.Repair != nil {
		out = append(out, under("repair.", k.Repair.Problems())...)
	}
	out = append(out, k.settingProblems()...)
	if k.Functions != nil {
		out = append(out, under("functions.", k.Functions.Problems())...)
	}
	if k.VFIO != nil {
		out = append(out, under("vfio.", k.VFIO.Problems())...)
	}
	if k.Unrequested != nil {
		out = append(out, under("unrequested.", k.Unrequested.Problems())...)
	}
	out = append(out, IgnoreProblems(k.IgnoreConditions)...)
	out = append(out, k.amounts()...)
	out = append(out, under("driver.", BranchProblems(k.Driver.Branch, k.Driver.Version))...)
	for i, s := range k.Driver.Sources {
		out = append(out, under(fmt.Sprintf("driver.sources[%d].", i), s.Problems())...)
	}
	for i, s := range k.Driver.UserSpace.sources() {
		out = append(out, under(fmt.Sprintf("driver.userSpace.sources[%d].", i), s.UserSpaceProblems())...)
	}
	if u := k.Driver.Upgrade; u != nil {
		out = append(out, under("driver.upgrade.", u.Problems())...)
	}
	return append(out, under("layout", LayoutProblems(k.Layout))...)
}

// under puts the place of a value before each of its errors.
func under(place string, problems []string) (out []string) {
	for _, text := range problems {
		out = append(out, place+text)
	}
	return out
}

// Problems returns the errors in an upgrade policy that a user wrote, each as "<field>: <sentence>".
func (u UpgradePolicy) Problems() []string {
	var out []string
	if !slices.Contains([]Holders{"", HoldersRefuse, HoldersWait, HoldersEvict}, u.Holders) {
		out = append(out, "holders: "+NotOneOf(u.Holders, HoldersRefuse, HoldersWait, HoldersEvict))
	}
	out = append(out, durationProblem("timeout", u.Timeout, 1, "30m")...)
	if !u.Asked.IsZero() {
		out = append(out, "asked: is for `acceld driver upgrade` to set")
	}
	if u.Digest != "" {
		out = append(out, "digest: is for a policy of the cluster to set")
	}
	if u.By != "" {
		out = append(out, "by: is for a policy of the cluster to set")
	}
	return out
}

// durationProblem returns the error in a duration that a user wrote; empty text is none.
func durationProblem(field, text string, least time.Duration, example string) []string {
	if d, err := time.ParseDuration(text); text != "" && (err != nil || d < least) {
		return []string{field + ": " + NotATime(text, example)}
	}
	return nil
}

// NotATime says that a text is no time, and what to write.
func NotATime(text, example string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Sprintf("%.40q has no unit: write %[2]ss for seconds, %[2]sm for minutes or %[2]sh for hours", text,
			text)
	}
	return fmt.Sprintf("%.40q is not a time such as %s", text, example)
}

// problems returns the errors in an allocation.
func (a Allocation) problems(field string) []string {
	if slices.Contains([]Allocation{"", AllocateByPlugin, AllocateByDRA}, a) {
		return nil
	}
	return []string{field + ": " + NotOneOf(a, AllocateByPlugin, AllocateByDRA)}
}

// thereAre lists the names that somebody may write, with the one that was probably meant.
func thereAre(word string, names []string) string {
	return fmt.Sprintf(" (there are: %s)%s", strings.Join(names, ", "), DidYouMean(word, names))
}

func moduleNames(def *Definition) (names []string) {
	for _, m := range def.Driver.Modules {
		names = append(names, m.Name)
	}
	return names
}

// Apply returns def with the overrides of k. misfit says what does not fit the definition, as "<field>: <sentence>";
// it is empty if everything does.
func (k KindConfig) Apply(def *Definition) (applied *Definition, misfit string) {
	d := *def
	d.Enabled = cmp.Or(k.Enabled, d.Enabled)
	d.Allocation = cmp.Or(k.Allocation, d.Allocation)
	d.Rename = cmp.Or(k.Resource, d.Rename)
	d.Sharing = cmp.Or(k.Sharing, d.Sharing)
	d.Handover = cmp.Or(k.Handover, d.Handover)
	d.Repair = cmp.Or(k.Repair, d.Repair)
	d.Functions = cmp.Or(k.Functions, d.Functions)
	d.VFIO = cmp.Or(k.VFIO, d.VFIO)
	d.Unrequested = cmp.Or(k.Unrequested, d.Unrequested)
	if k.IgnoreConditions != nil {
		d.IgnoreConditions = k.IgnoreConditions
	}
	d.Capacity = k.capacity(def.Capacity)
	if d.Settings, misfit = k.settings(def); misfit != "" {
		return nil, misfit
	}
	if k.Driver.Version != "" || k.Driver.Branch != "" {
		d.Driver.Version, d.Driver.Branch = k.Driver.Version, k.Driver.Branch
	}
	d.Driver.Sign = cmp.Or(k.Driver.Sign, d.Driver.Sign)
	d.Driver.UserSpace = cmp.Or(k.Driver.UserSpace, d.Driver.UserSpace)
	if k.Driver.Sources != nil {
		d.Driver.Sources = k.Driver.Sources
	}
	if text := cmp.Or(distributionMisfit(&d), vfioMisfit(&d), makingMisfit(&d)); text != "" {
		return nil, text
	}
	if k.Driver.Upgrade != nil {
		d.Driver.Upgrade = *k.Driver.Upgrade
	}
	if k.Driver.Takeover != nil {
		d.Driver.Takeover = *k.Driver.Takeover
	}
	if k.Layout != nil {
		if def.Partitions == nil || !def.Partitions.Told {
			return nil, "layout: acceld cannot divide devices of the kind"
		}
		p := *def.Partitions
		p.Layout = k.Layout
		d.Partitions = &p
	}
	d.Driver.Modules = slices.Clone(d.Driver.Modules)
	for _, module := range slices.Sorted(maps.Keys(k.Driver.Parameters)) {
		i := slices.IndexFunc(d.Driver.Modules, func(m Module) bool { return m.Name == module })
		if i < 0 {
			return nil, fmt.Sprintf("driver.parameters.%s: the definition has no such module%s", module,
				thereAre(module, moduleNames(def)))
		}
		d.Driver.Modules[i].Parameters = k.Driver.Parameters[module]
	}
	return &d, ""
}
