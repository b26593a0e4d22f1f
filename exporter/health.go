package exporter

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/acceld/acceld/accel"
)

// healthz reports whether the accelerators are healthy. It answers 503 if a kind is blocked, a device is unhealthy or
// gone or a partition is unhealthy, and until the host has been read. A degraded device, and a part of the agent that
// has failed, are listed but do not cause 503. It is for people, cron and load balancers; a liveness probe must use
// /livez, or bad hardware would restart the agent.
func (e *Exporter) healthz(w http.ResponseWriter, _ *http.Request) {
	text, bad := health(e.view())
	answer(w, !bad, text)
}

// health returns one line for every kind on the host and for every device and partition that is withheld or not
// healthy.
func health(v view) (text string, bad bool) {
	var b strings.Builder
	if v.Taken.IsZero() {
		return "starting: the host has not been read yet\n", true
	}
	for _, k := range v.kinds() {
		if absent(v, k) {
			continue
		}
		s := v.Status[k]
		fmt.Fprintf(&b, "%s: %s: %s\n", k, s.State, line(s.Sentence))
		if p := s.Blocked; p != nil {
			bad = true
			fmt.Fprintf(&b, "%s: blocked: %s: %s\n", k, p.Reason, line(p.Message))
		}
		for _, p := range v.Have[k].Warnings() {
			fmt.Fprintf(&b, "%s: warning: %s: %s\n", k, p.Reason, line(p.Message))
		}
		for _, a := range accel.Current(v.Have[k].Accelerators) {
			if a.WithheldAlone() {
				fmt.Fprintf(&b, "%s: %s: withheld: %s: %s\n", k, a.ID, a.Withheld.Reason, line(a.Withheld.Message))
			}
			if a.Health.State != accel.Healthy {
				bad = bad || !a.Health.Usable()
				fmt.Fprintf(&b, "%s: %s: %s: %s: %s\n", k, a.ID, a.Health.State, a.Health.Reason,
					line(a.Health.Message))
			}
		}
	}
	if b.Len() == 0 {
		b.WriteString("no accelerator on this host\n")
	}
	for _, p := range v.Agent.Problems {
		fmt.Fprintf(&b, "agent: %s: %s: %s\n", p.Part, p.Reason, line(p.Message))
	}
	return b.String(), bad
}

// livez reports whether the agent's loop is running. It never depends on devices.
func (e *Exporter) livez(w http.ResponseWriter, _ *http.Request) {
	if e.o.Live != nil {
		if err := e.o.Live(); err != nil {
			answer(w, false, err.Error())
			return
		}
	}
	answer(w, true, "ok")
}

// readyz reports whether every task is ready, and which are not.
func (e *Exporter) readyz(w http.ResponseWriter, _ *http.Request) {
	ok, text := true, ""
	if e.o.Ready != nil {
		ok, text = e.o.Ready()
	}
	if text == "" {
		text = map[bool]string{true: "ok", false: "not ready"}[ok]
	}
	answer(w, ok, text)
}

// answer writes a plain text with 200 or 503.
func answer(w http.ResponseWriter, ok bool, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, strings.TrimSuffix(text, "\n")+"\n") // the client may be gone
}

// line turns a text from a driver or a compiler into a single line, so that the text cannot forge another line.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
}
