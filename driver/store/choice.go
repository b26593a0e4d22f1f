package store

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/template"
)

// Generation is a driver that serves or served a kind on a kernel, with everything needed to load exactly it again.
type Generation struct {
	Source accel.SourceType `json:"source"`
	// Key is its entry in the store. A driver that was installed on the host has a copy in the store, because the
	// package manager may replace the installed one.
	Key string `json:"key"`
	// ID identifies its load attempts.
	ID      string `json:"id"`
	Version string `json:"version,omitempty"`
	// Binds is its PCI driver.
	Binds   string             `json:"binds"`
	Modules []GenerationModule `json:"modules"`
}

// GenerationModule is one module of a generation, with the parameters that the kernel was given.
type GenerationModule struct {
	accel.Module
	BuildID    string `json:"buildID,omitempty"`
	SrcVersion string `json:"srcVersion,omitempty"`
	Version    string `json:"version,omitempty"`
}

// Choice is the driver that serves a kind on a kernel, <StateDir>/kmod/current/<kind>@<kernel>. Probe reads it to
// know which drivers acceld may replace, Ensure to find the last good one, and Upgrade to know what not to try again.
type Choice struct {
	Current  *Generation `json:"current,omitempty"`
	Previous *Generation `json:"previous,omitempty"`
	// Asked is the time of the newest request that was carried out.
	Asked time.Time `json:"asked,omitzero"`
	// Rejected is the driver that was tried and rolled back.
	Rejected *Rejection `json:"rejected,omitempty"`
}

// Rejection is a driver that is not tried again until the driver, the kernel or the configuration changes.
type Rejection struct {
	ID      string         `json:"id"`
	Wish    string         `json:"wish"`
	Version string         `json:"version,omitempty"`
	Problem *accel.Problem `json:"problem"`
	At      time.Time      `json:"at"`
	// Stuck is why the previous driver could not be loaded again.
	Stuck *accel.Problem `json:"stuck,omitempty"`
}

// Ref identifies the generation for people.
func (g *Generation) Ref() accel.DriverRef {
	if g == nil {
		return accel.DriverRef{}
	}
	return accel.DriverRef{Version: g.Version, Key: g.Key}
}

// Definition is def with the modules of the generation: what to unload or load if def has other modules by now.
func (g *Generation) Definition(def *accel.Definition) *accel.Definition {
	if g == nil {
		return def
	}
	d := *def
	d.Driver.Version, d.Driver.Modules = "", nil
	d.Driver.Binds = cmp.Or(g.Binds, def.Driver.Binds)
	for _, m := range g.Modules {
		d.Driver.Modules = append(d.Driver.Modules, m.Module)
	}
	return &d
}

// Live reports whether all live modules belong to the generation. Modules of the generation that are not live are
// ignored.
func (g *Generation) Live(modules []accel.LoadedModule) bool {
	if g == nil || len(modules) == 0 {
		return false
	}
	return !slices.ContainsFunc(modules, func(m accel.LoadedModule) bool {
		i := slices.IndexFunc(g.Modules, func(x GenerationModule) bool { return kmod.Normal(x.Name) == m.Name })
		return i < 0 || !kmod.Same(m, g.Modules[i].BuildID, g.Modules[i].SrcVersion, g.Modules[i].Version)
	})
}

// Same reports whether loading the other generation would change nothing.
func (g *Generation) Same(o *Generation) bool {
	return g != nil && o != nil && slices.EqualFunc(g.Modules, o.Modules, func(a, b GenerationModule) bool {
		return kmod.Normal(a.Name) == kmod.Normal(b.Name) && a.BuildID == b.BuildID && a.SrcVersion == b.SrcVersion &&
			a.Version == b.Version &&
			kmod.JoinParameters(a.Parameters) == kmod.JoinParameters(b.Parameters)
	})
}

// GenerationOf describes the driver of a plan. Its key is empty if the plan is not from the store.
func GenerationOf(p *kmod.Plan, def *accel.Definition) *Generation {
	g := &Generation{Source: p.Source, Key: p.Key, ID: p.ID, Version: p.Version(), Binds: def.Driver.Binds}
	for _, m := range p.Modules {
		if m.Prior {
			continue
		}
		i := slices.IndexFunc(def.Driver.Modules, func(x accel.Module) bool { return kmod.Normal(x.Name) == m.Name })
		if i < 0 {
			continue
		}
		module := def.Driver.Modules[i]
		module.Parameters = m.Parameters
		g.Modules = append(g.Modules, GenerationModule{
			Module: module, BuildID: m.BuildID, SrcVersion: m.SrcVersion,
			Version: m.Image.Version,
		})
	}
	return g
}

// Wish is a hash of what a definition configures: version, modules with their parameters, sources, user space and the
// time of the request.
func Wish(def *accel.Definition, facts accel.Facts) string {
	type module struct{ Name, Parameters string }
	w := struct {
		Version string
		Modules []module
		Sources []accel.Source
		Asked   time.Time
		// UserSpace is what is asked of it; nil if the kind has none.
		UserSpace *accel.UserSpaceWish `json:",omitempty"`
	}{
		Version: def.Driver.Version, Sources: def.Driver.Sources, Asked: def.Driver.Upgrade.Asked,
		UserSpace: def.UserSpaceWish(),
	}
	for _, m := range def.Driver.Modules {
		parameters, problem := template.Parameters(def, facts, m)
		if problem != nil {
			parameters = m.Parameters
		}
		w.Modules = append(w.Modules, module{m.Name, kmod.JoinParameters(parameters)})
	}
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings and times always marshal
	}
	return kmod.Fingerprint(b)
}

// choiceName is the file name of the choice for a kind on a kernel.
func (s *Store) choiceName(kind string, k accel.Kernel) string {
	return path.Join(s.currentDir(), kind+"@"+KernelName(k))
}

// KernelName is a kernel's release and identity, as part of a file name.
func KernelName(k accel.Kernel) string {
	id := KernelID(k)
	if k.BuildID == "" { // `uname -v` has spaces and more
		id = kmod.Fingerprint([]byte(id))
	}
	return strings.ReplaceAll(k.Release, "/", "_") + "+" + id[:min(12, len(id))]
}

// Choice returns the driver that serves a kind on a kernel. It returns the zero value if nothing is known or the file
// cannot be read; a driver is then chosen again.
func (s *Store) Choice(kind string, k accel.Kernel) Choice {
	return s.readChoice(s.choiceName(kind, k))
}

func (s *Store) readChoice(name string) Choice {
	var c Choice
	b, err := s.h.ReadFile(name)
	if err != nil || json.Unmarshal(b, &c) != nil {
		return Choice{}
	}
	return c
}

// choices returns the choices of all kinds and kernels.
func (s *Store) choices() []Choice {
	var out []Choice
	for _, name := range s.h.Glob(s.currentDir(), "*") {
		out = append(out, s.readChoice(name))
	}
	return out
}

// Choose writes the choice for a kind, unless it is already written.
func (s *Store) Choose(kind string, k accel.Kernel, c Choice) error {
	name := s.choiceName(kind, k)
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if old, err := s.h.ReadFile(name); err == nil && string(old) == string(b) {
		return nil
	}
	s.o.Point("choice")
	if c == (Choice{}) {
		return s.h.Remove(name)
	}
	if err := s.h.MkdirAll(s.currentDir(), 0o700); err != nil {
		return err
	}
	err = s.h.WriteFile(name, b, 0o600)
	s.o.Point("choice")
	return err
}

// Serve makes g the current generation of c. A different current one becomes the previous one.
func (c Choice) Serve(g *Generation) Choice {
	if c.Current != nil && !c.Current.Same(g) {
		c.Previous = c.Current
	}
	c.Current = g
	return c
}
