package exporter

import (
	"strconv"
	"strings"
)

func parenthesis(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

// prefixed returns prefix and s, or nothing if s is empty.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// spoken turns a metric name into words without prefix and unit: "accelerator_dma_bytes_total" becomes "dma".
func spoken(name string) string {
	s := strings.TrimSuffix(strings.TrimPrefix(name, "accelerator_"), "_total")
	for _, unit := range []string{"_celsius", "_ratio", "_bytes", "_watts", "_joules", "_volts", "_hertz", "_seconds"} {
		s = strings.TrimSuffix(s, unit)
	}
	return strings.ReplaceAll(s, "_", " ")
}

// quantity renders a reading with the unit in which its name ends.
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

// scaled renders n with the largest unit that keeps the number at least 1.
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
