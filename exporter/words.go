package exporter

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// span is a duration in its two largest units.
func span(d time.Duration) string {
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

// ago says how long since t; empty for the zero time.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(now.Sub(t)) + " ago"
}

func full(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime) + " UTC"
}

// next says when a failed step runs again.
func next(now time.Time, f *accel.Failure) string {
	switch {
	case f.RetryAt.IsZero():
		return "It is not tried again until something changes."
	case !f.RetryAt.After(now):
		return "It is being tried again now."
	}
	return "It is tried again in " + span(f.RetryAt.Sub(now)) + "."
}

func parenthesis(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

// spoken makes words of a metric name: the prefix and the unit go, "accelerator_dma_bytes_total" is "dma".
func spoken(name string) string {
	s := strings.TrimSuffix(strings.TrimPrefix(name, "accelerator_"), "_total")
	for _, unit := range []string{"_celsius", "_ratio", "_bytes", "_watts", "_joules", "_volts", "_hertz", "_seconds"} {
		s = strings.TrimSuffix(s, unit)
	}
	return strings.ReplaceAll(s, "_", " ")
}

// quantity is a reading with the unit that its name ends in.
func quantity(name string, n float64) string {
	base := strings.TrimSuffix(name, "_total")
	switch {
	case strings.HasSuffix(base, "_celsius"):
		return strconv.FormatFloat(n, 'f', 1, 64) + " °C"
	case strings.HasSuffix(base, "_ratio"):
		return strconv.FormatFloat(n*100, 'f', 0, 64) + " %"
	case strings.HasSuffix(base, "_utilization"):
		return strconv.FormatFloat(n, 'f', 0, 64) + " %"
	case strings.HasSuffix(base, "_bytes"):
		return scaled(n, 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"})
	case strings.HasSuffix(base, "_hertz"):
		return scaled(n, 1000, []string{"Hz", "kHz", "MHz", "GHz"})
	case strings.HasSuffix(base, "_watts"):
		return strconv.FormatFloat(n, 'f', 1, 64) + " W"
	case strings.HasSuffix(base, "_joules"):
		return scaled(n, 1000, []string{"J", "kJ", "MJ", "GJ", "TJ"})
	case strings.HasSuffix(base, "_volts"):
		return strconv.FormatFloat(n, 'f', 2, 64) + " V"
	case strings.HasSuffix(base, "_seconds"):
		return strconv.FormatFloat(n, 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// scaled writes n with the largest unit that leaves at least one before the point.
func scaled(n, step float64, units []string) string {
	i := 0
	for ; n >= step && i < len(units)-1; i++ {
		n /= step
	}
	if i == 0 {
		return strconv.FormatFloat(n, 'f', 0, 64) + " " + units[i]
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " " + units[i]
}
