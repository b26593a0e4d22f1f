package page

import (
	"fmt"
	"strconv"
	"time"
)

// Tone is how something stands: it picks the colour and the mark.
type Tone string

// The tones.
const (
	Good Tone = "good"
	Busy Tone = "busy"
	Bad  Tone = "bad"
	Idle Tone = "idle"
)

// Mark tells tones apart without colour.
func (t Tone) Mark() string {
	switch t {
	case Good:
		return "✓"
	case Busy:
		return "…"
	case Bad:
		return "✕"
	case Idle:
	}
	return "–"
}

// Badge is a word on a ground of the tone's colour, with its mark, which programs that read aloud leave out.
func Badge(t Tone, word string) Node {
	return El("span", Class("badge", "t-"+string(t)), El("span", Set("aria-hidden", "true"), Text(t.Mark()+" ")),
		Text(word))
}

// Span is a duration in its two largest units.
func Span(d time.Duration) string {
	d = max(d, 0)
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d d %d h", days, hours)
	case hours > 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}

// Ago says how long since at, and goes on saying so; nothing for the zero time.
func Ago(now, at time.Time) Node {
	if at.IsZero() {
		return Node{}
	}
	return El("time", stamp(at), Set("title", Full(at)), Set("data-ago", strconv.FormatInt(at.UnixMilli(), 10)),
		Text(Span(now.Sub(at))+" ago"))
}

// In says how long until at.
func In(now, at time.Time) Node {
	return El("time", stamp(at), Set("title", Full(at)), Set("data-in", strconv.FormatInt(at.UnixMilli(), 10)),
		Text("in "+Span(at.Sub(now))))
}

// Clock is the time of the day, with the date for the pointer.
func Clock(at time.Time) Node {
	return El("time", stamp(at), Set("title", Full(at)), Text(at.UTC().Format("15:04:05")))
}

func stamp(at time.Time) Attr { return Set("datetime", at.UTC().Format(time.RFC3339)) }

// Full is a time with its date; empty for the zero one.
func Full(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime) + " UTC"
}

// Count is "1 device", "2 devices".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Facts is a list of names with their values; a pair without a value is left out, and a list without pairs is nothing.
func Facts(pairs ...Pair) Node {
	list := El("dl")
	for _, p := range pairs {
		if p.Value.empty() {
			continue
		}
		list.children = append(list.children, El("div", El("dt", Text(p.Name)), El("dd", p.Value)))
	}
	return When(len(list.children) > 0, list)
}

// Pair is one of [Facts].
type Pair struct {
	Name  string
	Value Node
}

// Fact is a pair of texts.
func Fact(name, value string) Pair { return Pair{name, Row(Text(value))} }

// FactOf is a pair with more than a text.
func FactOf(name string, value Node) Pair { return Pair{name, value} }

// empty reports whether there is nothing to see.
func (n Node) empty() bool {
	if n.tag != "" || n.text != "" {
		return false
	}
	for _, c := range n.children {
		if !c.empty() {
			return false
		}
	}
	return true
}
