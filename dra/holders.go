package dra

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Holder is a pod that has a device through a claim.
type Holder struct {
	// Device is the accelerator's id.
	Device string
	// Namespace, Pod and UID identify the pod. If the API server does not say who uses the claim, only Namespace is
	// set.
	Namespace, Pod, UID string
	Claim, ClaimUID     string
	// Admin means that the claim only looks at the device, which may be another's.
	Admin bool
}

// Held returns the sorted ids of the devices that claims hold. Known is false until the records have been read, and
// while one of them cannot be read: then claims may hold other devices, too.
func (p *Plugin) Held() (ids []string, known bool) {
	known = p.book.read() // before the records: one that was damaged may be put meanwhile
	for _, r := range p.book.all() {
		for _, g := range r.Devices {
			if !g.Admin {
				ids = append(ids, p.AcceleratorOf(g.Device))
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), known
}

// Known returns the pods that the claims were reserved for when they were prepared. It makes no request.
func (p *Plugin) Known() []Holder {
	var out []Holder
	for _, r := range p.book.all() {
		out = append(out, p.holders(r)...)
	}
	return out
}

// Holders returns the pods that have devices through claims. It asks the API server, because a claim that several
// pods share is prepared only once. If the API server does not answer, known is false, and the result is that of
// [Plugin.Known]. A claim that it does not have any more is for nobody else.
func (p *Plugin) Holders(ctx context.Context) (out []Holder, known bool) {
	known = true
	for _, r := range p.book.all() {
		c, err := p.api.claim(ctx, r.Namespace, r.Name)
		if err == nil && c.Metadata.UID == r.UID {
			r.Pods = podsOf(c)
		}
		known = known && (err == nil || apierrors.IsNotFound(err))
		out = append(out, p.holders(r)...)
	}
	return out, known
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

// holders pairs the devices of a claim with its pods.
func (p *Plugin) holders(r record) []Holder {
	if len(r.Pods) == 0 {
		r.Pods = []pod{{}}
	}
	var out []Holder
	for _, g := range r.Devices {
		for _, x := range r.Pods {
			out = append(out, Holder{
				Device: p.AcceleratorOf(g.Device), Namespace: r.Namespace, Pod: x.Name, UID: x.UID,
				Claim: r.Name, ClaimUID: r.UID, Admin: g.Admin,
			})
		}
	}
	return out
}

// AcceleratorOf returns the accelerator's id for a device name, or the name itself if the device is no longer known.
func (p *Plugin) AcceleratorOf(name string) string {
	if a, known := p.list.load().find(name); known {
		return a.ID
	}
	return name
}
