package fit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits of what a node may say about its cards, in its annotation or its labels. A node with eight accelerators of
// seven partitions each writes less than 16 KiB.
const (
	maxInventory = 128 << 10 // bytes; the API server takes 256 KiB of annotations
	maxCards     = 1024
	maxAmounts   = 64   // of a card or a container
	maxResources = 256  // of all cards together
	maxCells     = 4096 // cards times resources: each pod of a node is counted in tables of this size
	maxName      = 253
	maxNUMA      = 1 << 10 // MAX_NUMNODES of the kernel (include/linux/numa.h, NODES_SHIFT is at most 10)
)

// Card is one card of an inventory.
type Card struct {
	Name string `json:"name"`
	// Has are amounts by the name of the resource, in full or without the prefix of the rules. A card that has only
	// resources with other prefixes is ignored.
	Has Quantities `json:"has"`
	// NUMA is the NUMA node; nil if it is not known.
	NUMA *int `json:"numa,omitempty"`
	// Off keeps new pods from the card.
	Off bool `json:"off,omitempty"`
}

// ParseInventory reads the annotation [InventoryAnnotation], a list of [Card] such as
//
//	[{"name":"card0","has":{"memory":"8G","shares":"10"},"numa":0},{"name":"card1","has":{},"off":true}]
//
// An error names what is wrong. The node then takes no pod: a guess could put a pod on a card that cannot hold it.
func ParseInventory(text string) ([]Card, error) {
	if len(text) > maxInventory {
		return nil, fmt.Errorf("cannot read annotation %q: it has %d bytes, more than %d", InventoryAnnotation,
			len(text), maxInventory)
	}
	cards := []Card{}
	if err := json.Unmarshal([]byte(text), &cards); err != nil {
		return nil, fmt.Errorf("cannot read annotation %q: %w", InventoryAnnotation, err)
	}
	if len(cards) > maxCards {
		return nil, fmt.Errorf("cannot read annotation %q: it has %d cards, more than %d", InventoryAnnotation,
			len(cards), maxCards)
	}
	seen := map[string]bool{}
	for _, c := range cards {
		problem := c.problem()
		if seen[c.Name] {
			problem = "the name is there twice"
		}
		if problem != "" {
			return nil, fmt.Errorf("cannot read annotation %q: card %.64q: %s", InventoryAnnotation, c.Name, problem)
		}
		seen[c.Name] = true
	}
	return cards, nil
}

// problem says what is wrong with a card; empty if nothing is.
func (c *Card) problem() string {
	switch {
	case c.Name == "" || len(c.Name) > maxName:
		return fmt.Sprintf("a name has 1 to %d characters", maxName)
	case strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(",|:+", r) }):
		return `a name has only printable ASCII, without space and ",|:+"`
	case c.NUMA != nil && (*c.NUMA < 0 || *c.NUMA >= maxNUMA):
		return fmt.Sprintf("%d is no NUMA node", *c.NUMA)
	}
	return ""
}

// Quantities are amounts by the name of the resource.
type Quantities map[string]resource.Quantity

// UnmarshalJSON reads as many amounts as a card or a container may have, each with [ParseQuantity].
func (q *Quantities) UnmarshalJSON(b []byte) error {
	var texts map[string]json.RawMessage
	if err := json.Unmarshal(b, &texts); err != nil {
		return err
	}
	if len(texts) > maxAmounts {
		return fmt.Errorf("%d amounts are more than %d", len(texts), maxAmounts)
	}
	*q = make(Quantities, len(texts))
	for name, raw := range texts {
		if name == "" || len(name) > maxName {
			return fmt.Errorf("resource %.64q: a name has 1 to %d characters", name, maxName)
		}
		text, quoted := strings.CutPrefix(string(raw), `"`)
		if quoted {
			text = strings.TrimSuffix(text, `"`)
		}
		amount, err := ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("resource %.64q: %w", name, err)
		}
		(*q)[name] = amount
	}
	return nil
}

// quantityForm is the form of an amount that is neither negative nor beyond what anything has. With an exponent of more
// digits, resource.ParseQuantity computes a number of as many digits as the exponent says, which may be billions.
var quantityForm = regexp.MustCompile(`^[0-9]{1,40}(\.[0-9]{0,9})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?$`)

// ParseQuantity reads an amount that somebody else has written, such as "8G" or "1e3".
func ParseQuantity(text string) (resource.Quantity, error) {
	if !quantityForm.MatchString(text) {
		return resource.Quantity{}, fmt.Errorf("%.64q is no amount", text)
	}
	return resource.ParseQuantity(text)
}
