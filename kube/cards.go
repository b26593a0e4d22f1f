package kube

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acceld/acceld/accel"
)

// card is one element of the annotation [accel.CardsAnnotation], which the scheduler's extender reads.
type card struct {
	Name string `json:"name"`
	// Has are amounts, by the full names of resources.
	Has map[string]string `json:"has"`
	// NUMA is the NUMA node; nil when it is not known.
	NUMA *int `json:"numa,omitempty"`
	// Off keeps new pods away from the card.
	Off bool `json:"off,omitempty"`
}

// Cards returns the value of that annotation: what each device and partition has that the device plugin gives out and
// that has amounts. A card has how often it is given out, under the resource that pods request, and each amount in
// that resource's domain, for example "qemu.org/memory" next to "qemu.org/edu". An unusable card is off; one that is
// gone is not listed. Cards is empty if there is no card.
func Cards(m accel.Machine) string {
	all, _ := cardsOf(m)
	return cardsText(all)
}

// cardsText returns the value of the annotation for cards; empty if there are none.
func cardsText(all []card) string {
	if len(all) == 0 {
		return ""
	}
	return string(encode(all))
}

// cardsOf returns the cards, and the resources of which the kubelet counts the devices.
func cardsOf(m accel.Machine) (all []card, counted map[string]bool) {
	counted = map[string]bool{}
	for _, kind := range slices.Sorted(maps.Keys(m.Have)) {
		def := m.Want.Kinds[kind]
		if def == nil || def.AllocatedBy() != accel.AllocateByPlugin || !m.Want.Kubernetes {
			continue
		}
		for _, x := range accel.Offer(m, kind) {
			counted[def.OfferedAs(x.Profile)] = true
			if c, has := cardOf(def, x); has {
				all = append(all, c)
			}
		}
	}
	return all, counted
}

// cardOf returns the card of one device; false if it has no amounts or cannot be given out.
func cardOf(def *accel.Definition, x accel.Accelerator) (card, bool) {
	amounts := def.CapacityOf(x)
	if len(amounts) == 0 || !x.Present() || x.WithheldBy(accel.ByPartitions) {
		return card{}, false
	}
	offered := def.OfferedAs(x.Profile)
	domain, _, _ := strings.Cut(offered, "/")
	c := card{
		Name: accel.CardName(x.ID), Has: map[string]string{offered: strconv.Itoa(def.ReplicasOf(x))},
		Off: !x.Offered(),
	}
	if x.NUMANode >= 0 {
		c.NUMA = &x.NUMANode
	}
	for _, a := range amounts {
		value := a.Value
		if a.File != "" {
			read, known := x.Capacity[a.Name]
			if !known {
				continue // the extender must not place pods by an amount that could not be read
			}
			value = strconv.FormatInt(read, 10)
		}
		if q, err := resource.ParseQuantity(value); err == nil { // the definition was validated
			c.Has[domain+"/"+a.Name] = q.String()
		}
	}
	return c, true
}
