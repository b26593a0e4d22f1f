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
	switch base[strings.LastIndexByte(base, '_')+1:] {
	case "celsius":
		return fixed(n, 1, "°C")
	case "ratio":
		return fixed(n*100, 0, "%")
	case "utilization":
		return fixed(n, 0, "%")
	case "bytes":
		return scaled(n, 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB")
	case "hertz":
		return scaled(n, 1000, "Hz", "kHz", "MHz", "GHz")
	case "watts":
		return fixed(n, 1, "W")
	case "joules":
		return scaled(n, 1000, "J", "kJ", "MJ", "GJ", "TJ")
	case "volts":
		return fixed(n, 2, "V")
	case "seconds":
		return fixed(n, 1, "s")
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// fixed renders n with so many decimals, and its unit.
func fixed(n float64, decimals int, unit string) string {
	return strconv.FormatFloat(n, 'f', decimals, 64) + " " + unit
}

// scaled renders n with the largest unit that keeps the number at least 1.
func scaled(n, step float64, units ...string) string {
	decimals := 0
	for n >= step && len(units) > 1 {
		n, units, decimals = n/step, units[1:], 1
	}
	return fixed(n, decimals, units[0])
}
