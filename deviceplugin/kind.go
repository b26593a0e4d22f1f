package deviceplugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// Kind has the device plugins of one kind of accelerator: one for whole devices, and one for each profile of
// partitions that a device has been divided into. Each is an extended resource with its own registration. Its
// methods may be called from any goroutine.
type Kind struct {
	cfg Config
	// more gets a value when there are plugins to start.
	more chan struct{}

	mu      sync.Mutex
	plugins map[string]*Plugin // by profile; whole devices are ""
	refused map[string]*accel.Problem
}

// NewKind returns plugins that serve nothing until [Kind.Run] is called. The resource in cfg is for whole devices.
// Partitions are offered as the definition in cfg names them. Former applies to all of them.
func NewKind(cfg Config) *Kind {
	k := &Kind{
		cfg: cfg.complete(), more: make(chan struct{}, 1), plugins: map[string]*Plugin{},
		refused: map[string]*accel.Problem{},
	}
	k.add("", New(k.cfg))
	return k
}

// add adds a plugin that Run will start. The caller holds the lock or has the only reference.
func (k *Kind) add(profile string, p *Plugin) {
	k.plugins[profile] = p
	signal(k.more)
}

// Names are all extended resources, and their previous names.
func (k *Kind) Names() []string {
	var names []string
	for _, p := range k.all() {
		names = append(names, p.Names()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// all returns the plugins, starting with the one for whole devices.
func (k *Kind) all() []*Plugin {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []*Plugin
	for _, profile := range slices.Sorted(maps.Keys(k.plugins)) {
		all = append(all, k.plugins[profile])
	}
	return all
}

// Update replaces the inventory with devices and partitions as [accel.Units] returns them. It never blocks. A new
// profile is registered with the kubelet. A profile with no partition left stays registered, without devices.
func (k *Kind) Update(units []accel.Accelerator) {
	byProfile := map[string][]accel.Accelerator{}
	for _, u := range units {
		byProfile[u.Profile] = append(byProfile[u.Profile], u)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, profile := range slices.Sorted(maps.Keys(byProfile)) {
		if k.plugins[profile] == nil && accel.CountPresent(byProfile[profile]) > 0 {
			k.offer(profile)
		}
	}
	for profile, p := range k.plugins {
		p.Update(byProfile[profile])
	}
	maps.DeleteFunc(k.refused, func(profile string, _ *accel.Problem) bool {
		return accel.CountPresent(byProfile[profile]) == 0
	})
}

// Redefine makes the next [Kind.Update] follow another definition, with the same names of resources.
func (k *Kind) Redefine(def *accel.Definition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cfg.Definition = def
	for _, p := range k.plugins {
		p.Redefine(def)
	}
}

// offer starts to serve a profile.
func (k *Kind) offer(profile string) {
	cfg := k.cfg
	cfg.Profile, cfg.Resource = profile, k.cfg.Definition.OfferedAs(profile)
	if text := accel.ResourceProblem(cfg.Resource); text != "" {
		if k.refused[profile] == nil {
			k.cfg.Log.Warn("partitions cannot be offered", "profile", profile, "problem", text)
		}
		k.refused[profile] = accel.Problemf(accel.RegistrationFailed, "cannot offer partitions of profile %q: %s",
			profile, text)
		return
	}
	names := slices.Concat(cfg.Former, cfg.Definition.FormerlyOfferedAs(profile))
	slices.Sort(names)
	cfg.Former = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == cfg.Resource })
	k.add(profile, New(cfg))
}

// State is the sum of the states of all plugins. Registered is true if all are registered. Allocatable is unknown if
// it is unknown for one of them.
func (k *Kind) State() accel.PluginHave {
	sum := accel.PluginHave{Registered: true, Allocatable: accel.Known(0)}
	for _, p := range k.all() {
		have := p.State()
		sum.Registered = sum.Registered && have.Registered
		sum.Registrations += have.Registrations
		if sum.Allocatable.Known && have.Allocatable.Known {
			sum.Allocatable.Value += have.Allocatable.Value
		} else {
			sum.Allocatable = accel.Answer[int]{}
		}
	}
	return sum
}

// Problem is the first problem of a plugin, or why a profile cannot be offered.
func (k *Kind) Problem() *accel.Problem {
	for _, p := range k.all() {
		if problem := p.Problem(); problem != nil {
			return problem
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if profiles := slices.Sorted(maps.Keys(k.refused)); len(profiles) > 0 {
		return k.refused[profiles[0]]
	}
	return nil
}

// Holders returns the holders of all plugins, see [Plugin.Holders].
func (k *Kind) Holders(ctx context.Context) (map[string]PodRef, error) {
	all, errs := map[string]PodRef{}, []error(nil)
	for _, p := range k.all() {
		held, err := p.Holders(ctx)
		maps.Copy(all, held)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Run serves the kubelet until ctx ends, and returns nil.
func (k *Kind) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg guard.Group
	defer wg.Wait()
	defer cancel()
	for running := map[*Plugin]bool{}; ; {
		for _, p := range k.all() {
			if !running[p] {
				running[p] = true
				wg.Keep(ctx, "device plugin "+p.cfg.Resource, p.Run)
			}
		}
		select {
		case <-k.more:
		case <-ctx.Done():
			return nil
		}
	}
}
