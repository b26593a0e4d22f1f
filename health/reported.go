package health

import (
	"github.com/acceld/acceld/accel"
)

// Sources of findings about errors that a driver reports.
const (
	fromLog   = "log"
	fromProbe = "probe"
)

// sameEvents reports whether two sources report the same errors: a driver writes the same errors to the kernel log
// that it reports to its library.
func sameEvents(a, b string) bool {
	driver := func(s string) bool { return s == fromLog || s == fromProbe }
	return a == b || driver(a) && driver(b)
}

// fault is an error of a device, counted separately for each source.
type fault struct {
	accel.Fault
	logged, reported uint64
}

// add counts a occurrence. A source may miss some errors, so the larger count is the right one.
func (f *fault) add(s occurrence) {
	if s.source == fromProbe {
		f.reported++
	} else {
		f.logged++
	}
	f.Count = max(f.logged, f.reported)
	if s.at.After(f.Last) {
		f.Last = s.at
	}
}

// Told records an error that the definition's program reported. Its meaning comes from the definition's rules for the
// kernel log, by code.
func (e *Engine) Told(def *accel.Definition, f accel.ProbeFault) {
	s := occurrence{
		device: f.Device, code: f.Code, verdict: meaning(def, f.Code), line: line(f.Text), at: f.At,
		source: fromProbe,
	}
	if e.counted(s) {
		e.o.Changed()
	}
}

// counted counts an error and reports whether the verdict about a device may have changed.
func (e *Engine) counted(s occurrence) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	news = e.count(s)
	if s.verdict.State != "" && e.note(e.conclude(s)) {
		e.save()
		news = true
	}
	if now := e.o.Now(); !news && now.Sub(e.reported) >= quiet {
		e.reported, news = now, true
	}
	return news
}

// meaning returns what a definition says about a code.
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
