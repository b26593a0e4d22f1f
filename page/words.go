package page

import (
	"fmt"
	"strconv"
	"time"
)

// Tone is how good or bad a state is; it decides the colour and the mark.
type Tone string

// The tones.
const (
	Good Tone = "good"
	Busy Tone = "busy"
	Bad  Tone = "bad"
	Idle Tone = "idle"
)

// Mark returns a character that distinguishes the tone without colour.
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

// Badge is a word on a background in the tone's colour, with the tone's mark, which screen readers skip.
func Badge(t Tone, word string) Node {
	return El("span", Class("badge", "t-"+string(t)), El("span", Set("aria-hidden", "true"), Text(t.Mark()+" ")),
		Text(word))
}

// Span returns a duration in its two largest units.
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

// Ago shows the time since at, which the script keeps current; nothing for the zero time.
func Ago(now, at time.Time) Node {
	if at.IsZero() {
		return Node{}
	}
	return El("time", stamp(at), Set("title", Full(at)), Set("data-ago", strconv.FormatInt(at.UnixMilli(), 10)),
		Text(Span(now.Sub(at))+" ago"))
}

// In shows the time until at.
func In(now, at time.Time) Node {
	return El("time", stamp(at), Set("title", Full(at)), Set("data-in", strconv.FormatInt(at.UnixMilli(), 10)),
		Text("in "+Span(at.Sub(now))))
}

// Clock shows the time of day, with the date in the tooltip.
func Clock(at time.Time) Node {
	return El("time", stamp(at), Set("title", Full(at)), Text(at.UTC().Format("15:04:05")))
}

func stamp(at time.Time) Attr { return Set("datetime", at.UTC().Format(time.RFC3339)) }

// Full returns a time with its date; empty for the zero time.
func Full(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime) + " UTC"
}

// Count returns "1 device" or "2 devices".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Facts is a list of names and values. It leaves out pairs without a value, and is empty without pairs.
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

// Pair is one entry of [Facts].
type Pair struct {
	Name  string
	Value Node
}

// Fact returns a pair of texts.
func Fact(name, value string) Pair { return Pair{name, Row(Text(value))} }

// FactOf returns a pair whose value is more than text.
func FactOf(name string, value Node) Pair { return Pair{name, value} }

// empty reports whether the node shows nothing.
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
