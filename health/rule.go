package health

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// rule is a compiled rule for the kernel log.
type rule struct {
	accel.LogRule
	expression *regexp.Regexp
	// literal is in every line that the expression matches; a quick search for it rules out most lines.
	literal      string
	device, code int // indexes of groups; -1 if absent
}

// ruleBook holds the rules and the definitions that they were compiled from.
type ruleBook struct {
	from  map[string]*accel.Definition
	rules []rule
	// find returns the address of the device with a name of the kernel's in a subsystem other than PCI; empty if there
	// is none.
	find func(s accel.Subsystem, name string) string
}

// compile returns the rules of definitions. Invalid expressions are skipped; they were refused when their definition
// was read.
func compile(defs map[string]*accel.Definition) ruleBook {
	b := ruleBook{from: maps.Clone(defs)}
	for _, kind := range slices.Sorted(maps.Keys(defs)) {
		for _, r := range defs[kind].Log {
			x, err := regexp.Compile(r.Match)
			if err != nil {
				continue
			}
			literal, _ := x.LiteralPrefix()
			b.rules = append(b.rules, rule{
				LogRule: r, expression: x, literal: literal, device: x.SubexpIndex("device"),
				code: x.SubexpIndex("code"),
			})
		}
	}
	return b
}

// occurrence is an error that a line of the kernel log, or a program, reports.
type occurrence struct {
	device, code string
	verdict      accel.Verdict
	line         string
	at           time.Time
	source       string // fromLog or fromProbe
}

// read returns what a record reports. Lines written by a process are ignored.
func (b ruleBook) read(r host.KmsgRecord) (occurrence, bool) {
	if r.Facility != 0 {
		return occurrence{}, false
	}
	for _, rule := range b.rules {
		if !strings.Contains(r.Text, rule.literal) {
			continue
		}
		m := rule.expression.FindStringSubmatch(r.Text)
		if m == nil {
			continue
		}
		s := occurrence{line: line(r.Text), verdict: rule.Otherwise, source: fromLog}
		if rule.device >= 0 {
			s.device = address(m[rule.device])
		} else {
			s.device = b.device(r.Fields["DEVICE"])
		}
		s.code = rule.Code
		if rule.code >= 0 {
			s.code = m[rule.code]
			if v, ok := rule.Codes[s.code]; ok {
				s.verdict = v
			}
		}
		if s.device != "" {
			return s, true
		}
	}
	return occurrence{}, false
}

// device returns the address of the device that a record is about: "+pci:0000:01:00.0", "+virtio:virtio2" or, for an
// interface of a USB device, "+usb:1-2:1.0" (dev_printk's fields, drivers/base/core.c).
func (b ruleBook) device(field string) string {
	subsystem, name, found := strings.Cut(strings.TrimPrefix(field, "+"), ":")
	s, known := accel.SubsystemNamed(subsystem)
	switch {
	case !found || !known || subsystem == "":
		return address(field)
	case s.Name == accel.PCI:
		return address(name)
	case s.Name == "usb":
		name, _, _ = strings.Cut(name, ":")
	}
	if b.find == nil || !s.IsDevice(name) || strings.Contains(name, "/") {
		return ""
	}
	return b.find(s, name)
}

// address converts the ways in which drivers write a PCI address to that of sysfs: "00000000:01:00.0", "0000:01:00"
// and "01:00.0" become "0000:01:00.0". It returns "" for anything else.
func address(s string) string {
	head, function, ok := strings.Cut(s, ".")
	if !ok {
		function = "0"
	}
	parts := strings.Split(head, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 || len(parts[0]) > 8 {
		return ""
	}
	domain, err1 := strconv.ParseUint(parts[0], 16, 32)
	bus, err2 := strconv.ParseUint(parts[1], 16, 8)
	dev, err3 := strconv.ParseUint(parts[2], 16, 5)
	number, err4 := strconv.ParseUint(function, 8, 3)
	if errors.Join(err1, err2, err3, err4) != nil {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.%d", domain, bus, dev, number)
}

// line makes a log line fit as evidence: valid UTF-8, and short enough for a person to read.
func line(s string) string {
	const longest = 300
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// lasts returns how long a verdict applies; 0 means until the driver is bound again.
func lasts(v accel.Verdict) time.Duration {
	d, _ := time.ParseDuration(v.For) // validated when the definition was read
	return d
}
