package accel

import (
	"path"
	"strings"
)

// The annotations by which node, scheduler and device plugin exchange which devices a pod gets, when the scheduler
// chooses single devices. There, a device or a partition is called a card.
const (
	// CardsAnnotation is set on a node by its agent and lists what each of its cards has.
	CardsAnnotation = "acceld.dev/cards"
	// RoomAnnotation is set on a node by the controller: when pods that had been refused may fit, because of this node,
	// as RFC 3339 in UTC. The change makes the scheduler look at them again.
	RoomAnnotation = "acceld.dev/room-since"
	// ChosenAnnotation is set on a pod and lists the cards that its containers get: "|" separates containers, ","
	// separates cards. ChosenInitAnnotation does the same for its init containers; those that keep running come
	// first.
	ChosenAnnotation     = "gas-container-cards"
	ChosenInitAnnotation = "acceld.dev/init-container-cards"
	// ChosenTimeAnnotation is when the cards were chosen, as a Unix time in nanoseconds.
	ChosenTimeAnnotation = "gas-ts"
)

// CardName returns the name of the card for a device or a partition: its ID with the separators used in lists of
// cards replaced by dashes, such as "0000-01-00.0".
func CardName(id string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(",|:+/", r) {
			return '-'
		}
		return r
	}, id)
}

// CardIDs returns the IDs of devices and partitions by the names that schedulers give them: that of [CardName], and the
// last part of a device node's path that no other device has, such as "card0" of /dev/dri/card0. GPU Aware Scheduling
// names cards so when it goes by the labels of a node.
func CardIDs(all []Accelerator) map[string]string {
	ids, holders := map[string]string{}, map[string]int{}
	for _, x := range all {
		for _, n := range x.Nodes {
			ids[path.Base(n.Path)] = x.ID
			holders[path.Base(n.Path)]++
		}
	}
	for name, n := range holders {
		if n > 1 {
			delete(ids, name)
		}
	}
	for _, x := range all {
		ids[CardName(x.ID)] = x.ID
	}
	return ids
}

// CapacityOf returns the amounts that the definition gives a device of the kind, or a partition of one.
func (def *Definition) CapacityOf(a Accelerator) []Capacity {
	if a.Profile != "" {
		return def.Profile(a.Profile).Capacity
	}
	return def.Capacity
}
