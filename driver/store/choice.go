package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/template"
)

// Generation is a driver that serves or served a kind on a kernel: all that is needed to load exactly it again.
type Generation struct {
	Source accel.SourceType `json:"source"`
	// Key is its entry in the store. A driver that was installed on the host has a copy there, because a package
	// manager replaces the installed one.
	Key string `json:"key"`
	// ID names its attempts.
	ID      string `json:"id"`
	Version string `json:"version,omitempty"`
	// Binds is the PCI driver in it.
	Binds   string             `json:"binds"`
	Modules []GenerationModule `json:"modules"`
}

// GenerationModule is one module of a generation, its parameters as the kernel was given them.
type GenerationModule struct {
	accel.Module
	BuildID    string `json:"buildID,omitempty"`
	SrcVersion string `json:"srcVersion,omitempty"`
	Version    string `json:"version,omitempty"`
}

// Choice is what serves a kind on a kernel, <StateDir>/kmod/current/<kind>@<kernel>. It is read by Probe, to know the
// drivers that acceld may replace; by Ensure, for the last one that was good; and by Upgrade, for what not to try
// again.
type Choice struct {
	Current  *Generation `json:"current,omitempty"`
	Previous *Generation `json:"previous,omitempty"`
	// Asked is the newest request that was carried out.
	Asked time.Time `json:"asked,omitzero"`
	// Rejected is the driver that was tried and taken back.
	Rejected *Rejection `json:"rejected,omitempty"`
}

// Rejection is a driver that is not tried again until it, the kernel or the configuration is another.
type Rejection struct {
	ID      string         `json:"id"`
	Wish    string         `json:"wish"`
	Version string         `json:"version,omitempty"`
	Problem *accel.Problem `json:"problem"`
	At      time.Time      `json:"at"`
	// Stuck says that the driver before could not be loaded back.
	Stuck *accel.Problem `json:"stuck,omitempty"`
}

// Ref names the generation for people.
func (g *Generation) Ref() accel.DriverRef {
	if g == nil {
		return accel.DriverRef{}
	}
	return accel.DriverRef{Version: g.Version, Key: g.Key}
}

// Definition is def with the modules of the generation: what must be unloaded or loaded when def has others by now.
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

// Live reports whether the modules are those of the generation; modules that it does not have are not asked about.
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
	if g == nil || o == nil || len(g.Modules) != len(o.Modules) {
		return false
	}
	return slices.EqualFunc(g.Modules, o.Modules, func(a, b GenerationModule) bool {
		return kmod.Normal(a.Name) == kmod.Normal(b.Name) && a.BuildID == b.BuildID && a.SrcVersion == b.SrcVersion &&
			a.Version == b.Version &&
			kmod.JoinParameters(a.Parameters) == kmod.JoinParameters(b.Parameters)
	})
}

// GenerationOf describes the driver of a plan. Its key is empty for a plan that is not from the store.
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

// Wish names what a definition asks for.
func Wish(def *accel.Definition, facts accel.Facts) string {
	type module struct {
		Name       string
		Parameters string
	}
	w := struct {
		Version string
		Modules []module
		Sources []accel.Source
		Asked   time.Time
	}{Version: def.Driver.Version, Sources: def.Driver.Sources, Asked: def.Driver.Upgrade.Asked}
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
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:32]
}

// choiceName is the file of the choice for a kind on a kernel.
func (s *Store) choiceName(kind string, k accel.Kernel) string {
	return path.Join(s.currentDir(), kind+"@"+KernelName(k))
}

// KernelName is a kernel's release and identity as part of a file's name.
func KernelName(k accel.Kernel) string {
	id := KernelID(k)
	if k.BuildID == "" { // `uname -v` has spaces and more
		sum := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(sum[:])
	}
	return strings.ReplaceAll(k.Release, "/", "_") + "+" + id[:min(12, len(id))]
}

// Choice returns what serves a kind on a kernel; the zero value when nothing is known or it cannot be read: then a
// driver is chosen again.
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

// choices returns those of every kind and kernel.
func (s *Store) choices() []Choice {
	var out []Choice
	for _, name := range s.h.Glob(s.currentDir(), "*") {
		out = append(out, s.readChoice(name))
	}
	return out
}

// Choose writes the choice for a kind; nothing when it is written already.
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
	s.point("choice")
	if c == (Choice{}) {
		return s.h.Remove(name)
	}
	if err := s.h.MkdirAll(s.currentDir(), 0o700); err != nil {
		return err
	}
	err = s.h.WriteFile(name, b, 0o600)
	s.point("choice")
	return err
}

// Serve makes g the current generation of c. What served before becomes the previous one.
func (c Choice) Serve(g *Generation) Choice {
	if c.Current != nil && !c.Current.Same(g) {
		c.Previous = c.Current
	}
	c.Current = g
	return c
}
