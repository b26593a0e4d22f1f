package fit

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Rules are the names that a cluster uses. All but Prefix and Cards have defaults, see [Rules.Complete].
type Rules struct {
	// Prefix of the resources that are tracked, such as "gpu.example.com/".
	Prefix string `json:"prefix"`
	// Others are further prefixes, for the cards of other kinds that agents describe. The names of their resources are
	// in full wherever those of Prefix are without it.
	Others []string `json:"others,omitempty"`
	// Cards are the resources, without prefix, whose amount is a number of cards. If a container asks for several,
	// the first in this list counts, and all its amounts are of the same cards.
	Cards []string `json:"cards"`
	// Tiles is the resource, without prefix, that counts tiles: parts of a card that are given out by number.
	Tiles string `json:"tiles,omitempty"`
	// NodeWide are patterns, in the syntax of path.Match, of resources without prefix that belong to a node as a
	// whole. They are not divided among its cards.
	NodeWide []string `json:"nodeWide,omitempty"`
	// LabelPrefix is the prefix of the node labels that name cards, groups and links.
	LabelPrefix string `json:"labelPrefix,omitempty"`
	// Telemetry is the start of the prefix of labels that disable and prefer cards; a name and a slash follow it.
	Telemetry string `json:"telemetry,omitempty"`
	// Allow and Deny say whether a pod's lists of allowed and denied cards are followed.
	Allow bool `json:"allow,omitempty"`
	Deny  bool `json:"deny,omitempty"`
	// Balance is the resource, without prefix, by which cards are ordered, the least used first. If empty, cards are
	// tried in the order of their names.
	Balance string `json:"balance,omitempty"`
	// Annotations are the names of the annotations of pods.
	Annotations Annotations `json:"annotations,omitzero"`
}

// Annotations are names of annotations of pods. Time, Cards, Tiles, InitCards and InitTiles are read and written; the
// last two are acceld's own. The others are only read.
type Annotations struct {
	// Time is when the pod got its cards.
	Time string `json:"time,omitempty"`
	// Cards are the cards of each container.
	Cards string `json:"cards,omitempty"`
	// Tiles are the tiles of each container.
	Tiles string `json:"tiles,omitempty"`
	// InitCards are the cards of each init container.
	InitCards string `json:"initCards,omitempty"`
	// InitTiles are the tiles of each init container.
	InitTiles string `json:"initTiles,omitempty"`
	// Allow lists the cards that the pod may have.
	Allow string `json:"allow,omitempty"`
	// Deny lists the cards that the pod may not have.
	Deny string `json:"deny,omitempty"`
	// Same lists containers that must have the same card.
	Same string `json:"same,omitempty"`
	// Linked asks for cards that are linked to each other.
	Linked string `json:"linked,omitempty"`
	// SingleNUMA asks for cards of one NUMA node.
	SingleNUMA string `json:"singleNUMA,omitempty"`
}

// InventoryAnnotation is the annotation of a node in which its agent describes each card; see [ParseInventory].
const InventoryAnnotation = accel.CardsAnnotation

// Names of node labels, after the label prefix.
const (
	labelNumbers = "gpu-numbers"
	labelCards   = "cards"
	labelGroups  = "pci-groups"
	labelNUMA    = "numa-gpu-map"
	labelLinks   = "xe-links"
)

// Complete fills in the defaults and reports errors.
func (r Rules) Complete() (Rules, error) {
	for i, prefix := range append([]string{r.Prefix}, r.Others...) {
		if strings.Index(prefix, "/") != len(prefix)-1 || len(prefix) < 2 {
			return r, fmt.Errorf("cannot use prefix %q: it must be a domain and a slash", prefix)
		}
		if slices.Contains(append([]string{r.Prefix}, r.Others...)[:i], prefix) {
			return r, fmt.Errorf("cannot use prefix %q: it is there twice", prefix)
		}
	}
	if len(r.Cards) == 0 {
		return r, errors.New("cannot do without a resource that counts cards: cards is empty")
	}
	for _, name := range append(append([]string{}, r.Cards...), r.Tiles, r.Balance) {
		if domain, _, full := strings.Cut(name, "/"); full && !slices.Contains(r.Others, domain+"/") {
			return r, fmt.Errorf("cannot use resource %q: write it without the prefix, or list its domain in others", name)
		}
	}
	for _, pattern := range r.NodeWide {
		if _, err := path.Match(pattern, ""); err != nil {
			return r, fmt.Errorf("cannot use pattern %q: %w", pattern, err)
		}
	}
	for _, d := range []struct {
		field *string
		value string
	}{
		{&r.LabelPrefix, r.Prefix},
		{&r.Telemetry, "telemetry.aware.scheduling."},
		{&r.Annotations.Time, accel.ChosenTimeAnnotation},
		{&r.Annotations.Cards, accel.ChosenAnnotation},
		{&r.Annotations.Tiles, "gas-container-tiles"},
		{&r.Annotations.InitCards, accel.ChosenInitAnnotation},
		{&r.Annotations.InitTiles, "acceld.dev/init-container-tiles"},
		{&r.Annotations.Allow, "gas-allow"},
		{&r.Annotations.Deny, "gas-deny"},
		{&r.Annotations.Same, "gas-same-gpu"},
		{&r.Annotations.Linked, "gas-allocate-xelink"},
		{&r.Annotations.SingleNUMA, "gas-allocate-single-numa"},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	return r, nil
}

// Resource returns the name without the prefix, for a resource that is tracked. A name with another prefix is returned
// in full.
func (r *Rules) Resource(name string) (string, bool) {
	if short, ok := strings.CutPrefix(name, r.Prefix); ok {
		return short, short != ""
	}
	for _, prefix := range r.Others {
		if strings.HasPrefix(name, prefix) {
			return name, len(name) > len(prefix)
		}
	}
	return "", false
}

// full is the opposite of Resource: the name of a tracked resource with its prefix.
func (r *Rules) full(short string) string {
	if strings.Contains(short, "/") {
		return short
	}
	return r.Prefix + short
}

// wide reports whether a resource belongs to the node as a whole.
func (r *Rules) wide(short string) bool {
	for _, pattern := range r.NodeWide {
		if ok, err := path.Match(pattern, short); ok && err == nil {
			return true
		}
	}
	return false
}
