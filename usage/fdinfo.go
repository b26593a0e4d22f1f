package usage

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
)

// client is what a driver says about one of its users: an open file, or a process.
type client struct {
	// id is the same for all descriptors of one open file, and differs between open files.
	id string
	// device is the address of the device; empty if the driver does not say.
	device string
	// engines are the counters of each engine.
	engines map[string]engine
	// memory is the memory that is in the device, bytes by region.
	memory map[string]uint64
}

// engine is how much one engine has done for a client.
type engine struct {
	// busy is how long it has worked for it, in nanoseconds; if not timed, it is in cycles out of as many as total.
	busy, total uint64
	timed       bool
}

// Limits of what is read of one open file.
const (
	maxInfo    = 16 << 10 // bytes
	maxLines   = 512
	maxRegions = 16
	maxID      = 32 // digits of a client's id, and characters of an address
)

// The errors of parse.
var (
	errLong   = errors.New("it is too long")
	errNobody = errors.New("it has no client-id")
	errMany   = errors.New("it has too many engines or regions")
	errTwice  = errors.New("it says something twice")
)

// parse reads the text of /proc/<pid>/fdinfo/<fd>, whose driver begins its keys with a prefix, as the kernel's
// Documentation/gpu/drm-usage-stats.rst describes them. It is strict: whoever misreads a number says something wrong
// about somebody. Told is false if the driver says nothing.
func parse(text, prefix string) (c client, told bool, err error) {
	if len(text) > maxInfo {
		return client{}, true, errLong
	}
	p := parser{seen: map[string]bool{}, resident: map[string]uint64{}, total: map[string]uint64{}}
	p.client = client{engines: map[string]engine{}, memory: map[string]uint64{}}
	lines := 0
	for line := range strings.Lines(text) {
		if lines++; lines > maxLines {
			return client{}, true, errLong
		}
		key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ":")
		key, ours := strings.CutPrefix(key, prefix)
		if !ok || !ours {
			continue // the kernel's own: pos, flags, mnt_id, ino
		}
		told = true
		if err := p.line(key, strings.TrimSpace(value)); err != nil {
			return client{}, true, fmt.Errorf("%.64q: %w", line, err)
		}
	}
	if !told {
		return client{}, false, nil
	}
	c, err = p.end()
	return c, true, err
}

// parser collects the lines of one client.
type parser struct {
	client
	seen map[string]bool
	// resident is memory by region as drm-resident and its older name drm-memory say it, and total what was asked for.
	resident, total map[string]uint64
}

// line takes one line. Keys that it does not know are left out: drivers may have their own.
func (p *parser) line(key, value string) error {
	if p.seen[key] {
		return errTwice
	}
	p.seen[key] = true
	kind, name, _ := strings.Cut(key, "-")
	switch {
	case key == "client-id":
		return p.identify(value)
	case key == "pdev":
		if len(value) > maxID {
			return errLong
		}
		p.device = value
	case strings.HasPrefix(key, "engine-capacity-"), strings.HasPrefix(key, "total-cycles-"):
		return p.cycles(strings.TrimPrefix(key, "total-cycles-"), value, key)
	case kind == "engine":
		n, err := number(value, map[string]uint64{"ns": 1})
		return errors.Join(err, p.engine(name, func(e *engine) { e.busy, e.timed = n, true }))
	case kind == "cycles":
		n, err := number(value, map[string]uint64{"": 1})
		return errors.Join(err, p.engine(name, func(e *engine) {
			if !e.timed {
				e.busy = n
			}
		}))
	case kind == "resident", kind == "memory":
		return region(p.resident, name, value)
	case kind == "total":
		return region(p.total, name, value)
	}
	return nil
}

// end completes the client.
func (p *parser) end() (client, error) {
	if p.id == "" {
		return client{}, errNobody
	}
	for name, e := range p.engines {
		if !e.timed && e.total == 0 { // cycles of a clock that changes say no time
			delete(p.engines, name)
		}
	}
	p.memory = p.resident
	if len(p.memory) == 0 {
		p.memory = p.total
	}
	return p.client, nil
}

func (p *parser) identify(value string) error {
	if _, err := strconv.ParseUint(value, 10, 64); err != nil {
		return errNotNumber
	}
	p.id = value
	return nil
}

// cycles takes the cycles that went by on an engine. How many engines have the name is of no use here.
func (p *parser) cycles(name, value, key string) error {
	if strings.HasPrefix(key, "engine-") {
		return nil
	}
	n, err := number(value, map[string]uint64{"": 1})
	return errors.Join(err, p.engine(name, func(e *engine) { e.total = n }))
}

func (p *parser) engine(name string, set func(*engine)) error {
	if !accel.UsageWord(name) {
		return errName
	}
	e, known := p.engines[name]
	if !known && len(p.engines) == accel.MaxEngines {
		return errMany
	}
	set(&e)
	p.engines[name] = e
	return nil
}

// region takes the memory of a region. What is said of it twice under two names is the same.
func region(of map[string]uint64, name, value string) error {
	n, err := number(value, map[string]uint64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30})
	switch _, known := of[name]; {
	case err != nil:
		return err
	case !accel.UsageWord(name):
		return errName
	case !known && len(of) == maxRegions:
		return errMany
	}
	of[name] = n
	return nil
}

// The errors of numbers and names.
var (
	errNotNumber = errors.New("that is not a number")
	errUnit      = errors.New("the unit is not known")
	errBig       = errors.New("the number is too big")
	errName      = errors.New("that is no name of an engine or of a region")
)

// number reads a whole number with one of some units.
func number(value string, units map[string]uint64) (uint64, error) {
	digits, unit, _ := strings.Cut(value, " ")
	by, known := units[strings.TrimSpace(unit)]
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errBig
	case err != nil:
		return 0, errNotNumber
	case !known:
		return 0, errUnit
	case n > (1<<62)/by:
		return 0, errBig
	}
	return n * by, nil
}
