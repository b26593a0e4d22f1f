package accel

import (
	"fmt"
	"slices"
	"strings"
)

// Tally counts devices and partitions by what can be done with them, each once. Of a device that is divided, only its
// partitions count.
type Tally struct {
	Total int
	// Used are held by somebody. Free could be given out. Offered is used or free, while it is not known who holds
	// what.
	Used, Free, Offered int
	// Withheld are well, not in use, and offered to nobody.
	Withheld int
	// Sick are not usable, or gone.
	Sick int
}

// Add counts the devices of a kind. Held reports whether somebody holds a device or partition; nil if that is not
// known.
func (t Tally) Add(accs []Accelerator, held func(id string) bool) Tally {
	for _, u := range Units(accs) {
		if u.WithheldBy(ByPartitions) || u.FormerPartition() {
			continue
		}
		t.Total++
		switch {
		case !u.Health.Usable():
			t.Sick++
		case u.Switched != nil, held != nil && held(u.ID):
			t.Used++
		case u.Withheld != nil:
			t.Withheld++
		case held == nil:
			t.Offered++
		default:
			t.Free++
		}
	}
	return t
}

// TallyPart is one count of a [Tally] with its word.
type TallyPart struct {
	Count int
	Word  string
}

// Parts returns the counts in the order in which people read them. Those that cannot be told are left out.
func (t Tally) Parts() []TallyPart {
	parts := []TallyPart{{t.Used, "used"}, {t.Free, "free"}}
	if t.Offered > 0 {
		parts = []TallyPart{{t.Used + t.Offered, "offered"}}
	}
	return append(parts, TallyPart{t.Withheld, "held back"}, TallyPart{t.Sick, "sick"})
}

// String returns the counts that are not zero, such as "3 used, 4 free, 1 sick".
func (t Tally) String() string {
	var words []string
	for _, p := range t.Parts() {
		if p.Count > 0 {
			words = append(words, fmt.Sprintf("%d %s", p.Count, p.Word))
		}
	}
	return strings.Join(words, ", ")
}

// SickFirst returns devices with those that need attention first, in the order of accs otherwise.
func SickFirst(accs []Accelerator) []Accelerator {
	out := slices.Clone(accs)
	slices.SortStableFunc(out, func(a, b Accelerator) int { return a.concern() - b.concern() })
	return out
}

// concern is lower the more a device, or the worst of its partitions, needs attention.
func (a Accelerator) concern() int {
	worst := a.ownConcern()
	for _, p := range a.Partitions {
		if !p.FormerPartition() {
			worst = min(worst, p.ownConcern())
		}
	}
	return worst
}

func (a Accelerator) ownConcern() int {
	switch {
	case a.Health.State == Unhealthy:
		return 0
	case a.Health.State == Gone:
		return 1
	case a.Health.State == Degraded:
		return 2
	case a.WithheldAlone():
		return 3
	case a.Seen() == HealthUnknown:
		return 4
	}
	return 5
}
