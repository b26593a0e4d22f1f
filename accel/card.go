package accel

import "strings"

// What node, scheduler and device plugin say to each other about devices that are chosen one by one. A device, or a
// partition of one, is a card there.
const (
	// CardsAnnotation is the annotation of a node in which its agent says what each of its cards has.
	CardsAnnotation = "acceld.dev/cards"
	// ChosenAnnotation is the annotation of a pod with the cards that its containers get: "|" between containers, ","
	// between cards. ChosenInitAnnotation is the same for its init containers, those that go on running first.
	ChosenAnnotation     = "gas-container-cards"
	ChosenInitAnnotation = "acceld.dev/init-container-cards"
	// ChosenTimeAnnotation is when they were chosen, in nanoseconds of Unix.
	ChosenTimeAnnotation = "gas-ts"
)

// CardName is the card that stands for a device or a partition: its ID without the characters that divide lists of
// cards, such as "0000-01-00.0".
func CardName(id string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(",|:+/", r) {
			return '-'
		}
		return r
	}, id)
}

// CapacityOf are the amounts that a device of the kind, or a partition of one, has by its definition.
func (def *Definition) CapacityOf(a Accelerator) []Capacity {
	if a.Profile != "" {
		return def.Profile(a.Profile).Capacity
	}
	return def.Capacity
}
