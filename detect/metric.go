package detect

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// attributes reads the attributes of one device as of one moment: a [host.Attributes], or a fake.
type attributes interface {
	Read(file string) (string, error)
	All(file string) []host.Answer
}

// Collect reads the metrics of a by name, in the base unit of the name, including the metrics that every device has.
// An optional attribute without a number is left out. If any other attribute gives no number, Collect returns an error
// that names each of them, and the map has the rest.
//
// A suspended device is not woken: Collect reads only what the bus knows about it and keeps the fixed values of
// a.Metrics.
func Collect(h *host.Host, def *accel.Definition, a accel.Accelerator) (map[string]float64, error) {
	return collect(h.Devices().Of(def).Attributes(a.ID), def.AllMetrics(), a)
}

func collect(from attributes, metrics []accel.MetricSource, a accel.Accelerator) (map[string]float64, error) {
	asleep := a.InOtherUse() || suspended(from) // the attributes of its own driver are gone, and it is somebody else's
	values := make(map[string]float64, len(metrics))
	var failed []string
	for _, m := range metrics {
		if asleep && !m.OfBus() {
			if old, known := a.Metrics[m.Name]; known && m.Fixed {
				values[m.Name] = old
			}
			continue
		}
		switch v, err := measure(from, m); {
		case err == nil:
			values[m.Name] = v
		case !m.Optional:
			failed = append(failed, fmt.Sprintf("%s: %v", m.File, err))
		}
	}
	if failed != nil {
		return values, accel.Problemf(accel.CollectFailed, "cannot collect metrics of %s: %s", a.ID,
			strings.Join(failed, "; "))
	}
	return values, nil
}

// suspended reports whether the device is suspended (Documentation/ABI/testing/sysfs-devices-power). Reading its
// attributes would wake it, and reading them repeatedly would keep it awake.
func suspended(from attributes) bool {
	s, err := from.Read("power/runtime_status")
	return err == nil && s == "suspended"
}

// measure reads one metric.
func measure(from attributes, m accel.MetricSource) (float64, error) {
	texts, err := contents(from, m)
	if err != nil {
		return 0, err
	}
	var all []float64
	for _, text := range texts {
		found, err := numbers(m, text)
		if err != nil {
			return 0, err
		}
		all = append(all, found...)
	}
	return scaled(combine(m.Combine, all), m.Scale), nil
}

// scaled multiplies by a scale; 0 means none. For a scale such as a thousandth it divides by the whole number, which
// is exact.
func scaled(v, scale float64) float64 {
	switch whole := math.Round(1 / scale); {
	case scale == 0:
		return v
	case 1/whole == scale:
		return v / whole
	}
	return v * scale
}

// contents returns the texts that hold the numbers of a metric. There are several only if the metric combines several
// files. A file that is absent or has no value is left out. Any other error fails the whole, because the rest alone
// would mean nothing.
func contents(from attributes, m accel.MetricSource) ([]string, error) {
	if m.Combine == "" || m.Combine == accel.CombineFirst {
		text, err := from.Read(m.File)
		return []string{text}, err
	}
	var texts []string
	var missing error
	for _, a := range from.All(m.File) {
		switch {
		case a.Err == nil:
			texts = append(texts, a.Text)
		case !absent(a.Err):
			return nil, a.Err
		default:
			missing = a.Err
		}
	}
	if texts == nil {
		return nil, missing
	}
	return texts, nil
}

// numbers returns the numbers in the content of an attribute; at least one, unless matches are counted.
func numbers(m accel.MetricSource, text string) ([]float64, error) {
	if m.Match == "" {
		v, err := value(m, text)
		return []float64{v}, err
	}
	x, err := regexp.Compile(m.Match)
	if err != nil {
		return nil, err // the definition was validated
	}
	var found []float64
	for line := range strings.SplitSeq(text, "\n") {
		part, ok := matched(x, line)
		if !ok {
			continue
		}
		var v float64
		if m.Combine != accel.CombineCount {
			if v, err = value(m, part); err != nil {
				return nil, err
			}
		}
		found = append(found, v)
	}
	if found == nil && m.Combine != accel.CombineCount {
		return nil, fmt.Errorf("%q has no %s", clean(text), m.Match)
	}
	return found, nil
}

// matched returns what the group "value" of x matches in a text, or the whole match if x has no such group.
func matched(x *regexp.Regexp, text string) (string, bool) {
	m := x.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[max(0, x.SubexpIndex("value"))], true
}

// value returns the number that a text stands for, in digits or as one of the definition's words.
func value(m accel.MetricSource, text string) (float64, error) {
	if v, known := m.Values[text]; known {
		return v, nil
	}
	if m.Values != nil {
		return 0, fmt.Errorf("%q is none of the words", clean(text))
	}
	return number(text)
}

// combine makes one number of several. Only a count may have none; it is 0 then.
func combine(how accel.Combine, all []float64) float64 {
	switch how {
	case accel.CombineCount:
		return float64(len(all))
	case accel.CombineSum:
		sum := 0.0
		for _, v := range all {
			sum += v
		}
		return sum
	case accel.CombineMax:
		return slices.Max(all)
	case accel.CombineMin:
		return slices.Min(all)
	}
	return all[0]
}

// absent reports whether an attribute does not exist or has no value on this device, which is how a driver reports a
// sensor that the board lacks.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENODATA)
}

// number parses a decimal number, or a hexadecimal one with "0x".
func number(s string) (float64, error) {
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		n, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a number", clean(s))
		}
		return float64(n), nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a number", clean(s))
	}
	return v, nil
}
