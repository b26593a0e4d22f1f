package dra

import (
	"encoding/json"
	"path"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
)

// specDir is the volatile CDI directory. After a reboot the kubelet prepares its claims again, which restores the
// specs.
const specDir = "/var/run/cdi"

// specPrefix starts the file names of prepared claims; the driver's name and the claim's UID follow.
const specPrefix = "acceld-claim-"

// specFile returns the path of a claim's CDI spec.
func (p *Plugin) specFile(uid string) string {
	return path.Join(specDir, specPrefix+p.driver+"-"+uid+".json")
}

// cdiClass is the class of the CDI devices of claims; their vendor is the driver.
const cdiClass = "claim"

// cdiName is the CDI name of a claim's device. It is never reused, because runtimes cache what they read about a
// name.
func cdiName(uid string, g given) string {
	name := uid + "-" + g.Device
	if g.Share != "" {
		name += "-" + g.Share
	}
	if g.Admin {
		name += "-admin"
	}
	return name
}

func (p *Plugin) cdiID(uid string, g given) string {
	return p.driver + "/" + cdiClass + "=" + cdiName(uid, g)
}

// bare reports whether a container gets nothing with a device of a claim, so that no spec can have it.
func (p *Plugin) bare(r record, a accel.Accelerator, g given) bool {
	return a.Bare && g.Use == "" && len(g.Env) == 0 && len((metadata{p}).mounts(r, g)) == 0
}

// spec renders the CDI spec of a claim; nil if a container gets nothing with its devices. The accelerators are keyed by
// device name.
func (p *Plugin) spec(r record, accs map[string]accel.Accelerator) ([]byte, *accel.Problem) {
	raw := &specs.Spec{Kind: p.driver + "/" + cdiClass}
	made := map[string]bool{}
	for _, g := range r.Devices {
		name := cdiName(r.UID, g)
		if made[name] { // one device serves two requests
			continue
		}
		made[name] = true
		if p.bare(r, accs[g.Device], g) {
			continue
		}
		shared, own, problem := p.cfg.Edits(p.list.load().def, accs[g.Device])
		if problem != nil {
			return nil, problem
		}
		if g.Use == "" {
			raw.ContainerEdits = shared // they belong to the kind's driver
		}
		own.Env = append(own.Env, g.Env...)
		own.Mounts = append(own.Mounts, (metadata{p}).mounts(r, g)...)
		raw.Devices = append(raw.Devices, specs.Device{Name: name, ContainerEdits: own})
	}
	if len(raw.Devices) == 0 {
		return nil, nil
	}
	version, err := specs.MinimumRequiredVersion(raw)
	if err != nil {
		return nil, unusableSpec(r, err)
	}
	raw.Version = version
	data, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return nil, unusableSpec(r, err)
	}
	read, err := cdi.ParseSpec(data)
	if err == nil {
		err = specs.ValidateVersion(read)
	}
	if err != nil {
		return nil, unusableSpec(r, err)
	}
	return append(data, '\n'), nil
}

func unusableSpec(r record, err error) *accel.Problem {
	return accel.Problemf(accel.SpecInvalid, "cannot render the CDI spec of %s: %v", r, err)
}

// usable returns the accelerators of a claim by device name, or why they cannot be given to a container. A claim
// with admin access may get a device that is unhealthy, but not one whose device node is missing.
func (p *Plugin) usable(r record) (map[string]accel.Accelerator, *accel.Problem) {
	v := p.list.load()
	if !v.reported {
		return nil, accel.Problemf(accel.ProbeUnanswered,
			"cannot prepare %s: the devices of this node are not known yet", r)
	}
	now := map[string]accel.Accelerator{}
	for _, g := range r.Devices {
		a, known := v.find(g.Device)
		now[g.Device] = a
		if known && g.Use != "" && a.Switched != nil && a.Switched.Claim == r.UID && a.Health.Usable() {
			continue // it is given out to this claim, or on the way there
		}
		switch {
		case known && v.def.Makes() && !g.Admin && g.Use == "" && a.OnDemand():
			// it is made, or made whole, for the claim
		case known && g.Use != "" && a.Parent != "":
			return nil, accel.Problemf(accel.SwitchRefused, "cannot prepare %s: %q is a part of a device, and only whole"+
				" devices are given out with %s", r, g.Device, g.Use)
		case !known:
			return nil, accel.Problemf(accel.DeviceGone, "cannot prepare %s: there is no device %q on this node", r,
				g.Device)
		case !a.Offered() && !g.Admin:
			reason, message := a.Refusal()
			return nil, accel.Problemf(reason, "cannot prepare %s: device %q is not offered: %s", r, g.Device, message)
		case len(a.Nodes) == 0 && len(v.def.NodesOf(a.Profile)) > 0:
			return nil, accel.Problemf(accel.NodeMissing, "cannot prepare %s: device %q has no device node", r,
				g.Device)
		}
	}
	return now, nil
}
