package page

import (
	"math"
	"strings"
	"unicode/utf8"
)

// Line is a line through points of equal distance in time, such as a reading over the last hour. Low and high are the
// values at the bottom and the top. Where a point is not a number, there is a gap. The label says what it shows.
func Line(label string, points []float64, low, high float64) Node {
	const height = 20
	svg := El("svg", Class("line"), Set("viewBox", "0 0 "+number(float64(max(len(points)-1, 1)))+" 20"),
		Set("preserveAspectRatio", "none"), Set("role", "img"), Set("aria-label", label))
	if high <= low {
		high = low + 1
	}
	var run []string
	end := func() {
		if len(run) == 1 {
			run = append(run, run[0]) // a point alone is a dot
		}
		if len(run) > 0 {
			svg.Add(El("polyline", Set("points", strings.Join(run, " "))))
		}
		run = nil
	}
	for i, p := range points {
		if math.IsNaN(p) || math.IsInf(p, 0) {
			end()
			continue
		}
		share := min(max((p-low)/(high-low), 0), 1)
		run = append(run, number(float64(i))+","+number(height-1-share*(height-2)))
	}
	end()
	return svg
}

// Bar is a bar that is filled to a share, 0 to 1. The label says what it shows.
func Bar(label string, share float64, tone Tone) Node {
	if math.IsNaN(share) {
		return Node{}
	}
	return El("svg", Class("bar"), Set("viewBox", "0 0 100 6"), Set("preserveAspectRatio", "none"), Set("role", "img"),
		Set("aria-label", label), El("rect", Class(string(tone)), Set("x", "0"), Set("y", "0"), Set("height", "6"),
			Set("width", number(min(max(share, 0), 1)*100))))
}

// Sentence returns a text that begins with an upper-case letter.
func Sentence(s string) string {
	_, first := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:first]) + s[first:]
}
