package health

import (
	"github.com/acceld/acceld/accel"
)

// Sources of findings about errors of a driver's.
const (
	fromLog   = "log"
	fromProbe = "probe"
)

// sameEvents reports whether two sources tell the same errors: a driver writes to the kernel log what it tells its
// library.
func sameEvents(a, b string) bool {
	driver := func(s string) bool { return s == fromLog || s == fromProbe }
	return a == b || driver(a) && driver(b)
}

func (s sighting) source() string {
	if s.probed {
		return fromProbe
	}
	return fromLog
}

// fault is an error of a device as both sources have counted it.
type fault struct {
	accel.Fault
	logged, told uint64
}

// add counts a sighting. Who misses some of the errors has counted fewer.
func (f *fault) add(s sighting) {
	if s.probed {
		f.told++
	} else {
		f.logged++
	}
	f.Count = max(f.logged, f.told)
	if s.at.After(f.Last) {
		f.Last = s.at
	}
}

// Told takes in an error that the definition's program has reported. What it means is said by the definition's rules
// for the kernel log, by its code.
func (e *Engine) Told(def *accel.Definition, f accel.ProbeFault) {
	s := sighting{
		device: f.Device, code: f.Code, verdict: meaning(def, f.Code), line: line(f.Text), at: f.At,
		probed: true,
	}
	e.mu.Lock()
	news := e.count(s)
	if s.verdict.State != "" && e.note(e.conclude(s)) {
		e.save()
		news = true
	}
	if now := e.o.Now(); !news && now.Sub(e.told) >= quiet {
		e.told, news = now, true
	}
	e.mu.Unlock()
	if news {
		e.o.Changed()
	}
}

// meaning is what a definition says about a code.
func meaning(def *accel.Definition, code string) accel.Verdict {
	var otherwise accel.Verdict
	for _, r := range def.Log {
		if v, ok := r.Codes[code]; ok {
			return v
		}
		if len(r.Codes) > 0 {
			otherwise = r.Otherwise
		}
	}
	return otherwise
}
