package devices

import (
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Users names everyone who uses the modules: other modules, and processes with a device node open. If only the
// kernel's use count shows a user, it returns one unnamed holder.
func (s *Devices) Users(def *accel.Definition, accs []accel.Accelerator, order []accel.LoadedModule) []accel.Holder {
	ours := map[string]bool{}
	for _, m := range def.Driver.Modules {
		ours[kmod.Normal(m.Name)] = true
	}
	var who []accel.Holder
	counted := ""
	for _, m := range order {
		for _, holder := range m.Holders {
			if !ours[kmod.Normal(holder)] {
				who = append(who, accel.Holder{Other: "module " + holder})
			}
		}
		if m.RefCnt > len(m.Holders) && counted == "" {
			counted = m.Name
		}
	}
	who = append(who, s.Processes(s.nodes(def, accs))...)
	if len(who) == 0 && counted != "" {
		who = []accel.Holder{{Other: unseen + counted + ")"}}
	}
	return who
}

const unseen = "somebody who cannot be seen from here (the kernel counts a use of module "

// Unseen reports whether nothing is known of a holder but that the kernel counts one.
func Unseen(h accel.Holder) bool { return strings.HasPrefix(h.Other, unseen) }

// Others returns the devices, apart from accs and what is below them, that are bound to a driver of one of the modules.
// When the module is unloaded, they lose it, whatever the kernel counts.
func (s *Devices) Others(modules []string, accs []accel.Accelerator) []string {
	var out []string
	ours := s.paths(accs)
	for _, module := range modules {
		for _, driver := range s.h.Glob(path.Join("/sys/module", kmod.Normal(module), "drivers"), "*") {
			names, err := s.h.Names(driver)
			if err != nil {
				continue // it was unregistered meanwhile
			}
			for _, name := range names {
				link, err := s.h.Readlink(path.Join(driver, name))
				if err != nil || !strings.Contains(link, "/devices/") || belongs(link, ours) {
					continue // not a device, or one of ours
				}
				physical, err := s.h.Readlink(path.Join(driver, name, "physfn"))
				if err != nil || !belongs(physical, ours) { // nor a virtual function of one of ours
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// paths returns a part of the path in sysfs of each accelerator that only it has.
func (s *Devices) paths(accs []accel.Accelerator) (out []string) {
	for _, a := range accs {
		part := "/" + a.ID + "/"
		if !accel.OnPCI(a.ID) {
			dir, err := s.h.Follow(s.dir(a.ID))
			if err != nil {
				continue
			}
			part = strings.TrimPrefix(dir, "/sys") + "/"
		}
		out = append(out, part)
	}
	return out
}

// belongs reports whether a path in sysfs is that of a device with one of the paths, or of something below one.
func belongs(link string, paths []string) bool {
	return slices.ContainsFunc(paths, func(part string) bool { return strings.Contains(link+"/", part) })
}

// Processes are the processes that have one of the nodes open or mapped.
func (s *Devices) Processes(nodes []accel.DeviceNode) []accel.Holder {
	var who []accel.Holder
	for _, o := range s.h.Processes().Holders(nodes) {
		who = append(who, accel.Holder{PID: o.PID, Comm: o.Comm, PodUID: o.Pod, Device: o.Node})
	}
	return who
}

// nodes are the device nodes of the kind: those of each accelerator, both as they are now and as the caller knows
// them, and the shared ones.
func (s *Devices) nodes(def *accel.Definition, accs []accel.Accelerator) []accel.DeviceNode {
	var out []accel.DeviceNode
	accs = s.Ordinary(accs)
	for _, v := range s.Observe(def, accs) {
		out = append(out, v.Nodes...)
	}
	for _, a := range accel.Flat(accs) {
		out = append(out, a.Nodes...)
	}
	return append(out, s.Shared(def)...)
}

// Shared are the device nodes that the devices of the kind share.
func (s *Devices) Shared(def *accel.Definition) (out []accel.DeviceNode) {
	for _, name := range slices.Concat(def.Container.Nodes, def.Container.OptionalNodes) {
		out = append(out, s.NodeAt(name))
	}
	made, _ := s.h.Devices().MadeNodes(def.Driver.MakeNodes)
	for _, n := range made {
		out = append(out, n.DeviceNode)
	}
	return out
}
