package dra

import (
	"context"
	"slices"
)

// Holder is a pod that has a device by a claim.
type Holder struct {
	// Device is the accelerator's id.
	Device string
	// Namespace, Pod and UID are the pod's; only the namespace when the API server does not say who uses the claim.
	Namespace, Pod, UID string
	Claim               string
}

// Held returns the ids of the devices that claims hold, ordered. It is not known before the records were read.
func (p *Plugin) Held() (ids []string, known bool) {
	for _, r := range p.book.all() {
		for _, g := range r.Devices {
			if !g.Admin {
				ids = append(ids, p.AcceleratorOf(g.Device))
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), p.book.read()
}

// Known returns the pods that the claims were reserved for when they were prepared. It asks nobody.
func (p *Plugin) Known() []Holder {
	var out []Holder
	for _, r := range p.book.all() {
		out = append(out, p.holders(r, r.Pods)...)
	}
	return out
}

// Holders returns the pods that have devices by claims. They are asked for at the API server: a claim that several pods
// share is prepared once. While it does not answer they are those of [Plugin.Known].
func (p *Plugin) Holders(ctx context.Context) []Holder {
	var out []Holder
	for _, r := range p.book.all() {
		pods := r.Pods
		c, err := limited(ctx, p.timing.request, func(ctx context.Context) (claim, error) {
			return p.api.claim(ctx, r.Namespace, r.Name)
		})
		if err == nil && c.Metadata.UID == r.UID {
			pods = podsOf(c)
		}
		out = append(out, p.holders(r, pods)...)
	}
	return out
}

// podsOf returns the pods that may use a claim.
func podsOf(c claim) []pod {
	var pods []pod
	for _, who := range c.Status.ReservedFor {
		if who.Resource == "pods" {
			pods = append(pods, pod{Name: who.Name, UID: who.UID})
		}
	}
	return pods
}

// holders joins the devices of a claim with pods.
func (p *Plugin) holders(r record, pods []pod) []Holder {
	if len(pods) == 0 {
		pods = []pod{{}}
	}
	var out []Holder
	for _, g := range r.Devices {
		for _, x := range pods {
			out = append(out, Holder{
				Device: p.AcceleratorOf(g.Device), Namespace: r.Namespace, Pod: x.Name, UID: x.UID,
				Claim: r.Name,
			})
		}
	}
	return out
}

// AcceleratorOf returns the accelerator's id of a device's name; the name itself when nobody knows the device any more.
func (p *Plugin) AcceleratorOf(name string) string {
	if a, known := p.list.load().accelerators[name]; known {
		return a.ID
	}
	return name
}
