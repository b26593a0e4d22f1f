package page

import (
	"fmt"
	"slices"
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

// Badge is a word on a background in the tone's colour, with the tone's mark.
func Badge(t Tone, word string) Node {
	return El("span", Class("badge", "t-"+string(t)), marked(t, word))
}

// Verdict is the sentence that sums up the page, in the tone's colour, with the tone's mark.
func Verdict(t Tone, words string) Node {
	return El("p", Class("verdict", "t-"+string(t)), Set("id", "verdict"), Set("role", "status"), marked(t, words))
}

// marked returns a text after the tone's mark, which screen readers skip.
func marked(t Tone, text string) Node {
	return Row(El("span", Set("aria-hidden", "true"), Text(t.Mark()+" ")), Text(text))
}

// Anchor returns the attribute that links to [Here] lead to; nothing without a name.
func Anchor(name string) Node { return When(name != "", Set("id", name)) }

// Here is a link to the anchor of that name on the same page.
func Here(name, text string) Node { return El("a", Set("href", "#"+name), Text(text)) }

// Tally is a list of numbers, each above its word.
func Tally(items ...Node) Node { return El("ul", append([]Node{Class("tally")}, items...)...) }

// TallyItem is a number in the colour of the tone, and its word.
func TallyItem(t Tone, number, word string) Node {
	return El("li", El("b", Class("t-"+string(t)), Text(number)), Text(word))
}

// Link is a link to another page of the same server, and a space.
func Link(path, text string) Node { return Row(El("a", Set("href", path), Text(text)), Text(" ")) }

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
	return moment(at, Span(now.Sub(at))+" ago", Set("data-ago", strconv.FormatInt(at.UnixMilli(), 10)))
}

// In shows the time until at.
func In(now, at time.Time) Node {
	return moment(at, "in "+Span(at.Sub(now)), Set("data-in", strconv.FormatInt(at.UnixMilli(), 10)))
}

// Clock shows the time of day, with the date in the tooltip.
func Clock(at time.Time) Node { return moment(at, at.UTC().Format("15:04:05"), Node{}) }

// moment shows a time as words, with an attribute for the script.
func moment(at time.Time, words string, script Node) Node {
	return El("time", Set("datetime", at.UTC().Format(time.RFC3339)), Set("title", Full(at)), script, Text(words))
}

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

// Facts is a list of what [Fact] and [FactOf] return; it is empty without any.
func Facts(facts ...Node) Node {
	all := Row(facts...)
	return When(!all.empty(), El("dl", all))
}

// Fact returns a name with a text; nothing without the text.
func Fact(name, value string) Node { return FactOf(name, Text(value)) }

// FactOf returns a name with a value that is more than text; nothing if the value shows nothing.
func FactOf(name string, value Node) Node {
	return When(!value.empty(), El("div", El("dt", Text(name)), El("dd", value)))
}

// empty reports whether the node shows nothing.
func (n Node) empty() bool {
	return n.tag == "" && n.text == "" && !slices.ContainsFunc(n.children, func(c Node) bool { return !c.empty() })
}
