package exporter

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/page"
)

// maxWaiting is how many requests may wait at a time; further ones are answered at once.
const maxWaiting = 64

// machine serves the newest snapshot, as `acceld status -o json` prints it. A client that already has one names it
// with If-None-Match. With "Prefer: wait=20" (RFC 7240) the answer comes when there is a newer snapshot, or is 304
// after that many seconds. So no client has to poll. Over TCP, what may be secret is left out.
func (e *Exporter) machine(w http.ResponseWriter, r *http.Request) {
	m, known := e.snapshot(w, r)
	if known {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if !private(r) {
		m = m.Public()
	}
	e.answerJSON(w, "snapshot", m)
}

// snapshot returns the newest snapshot, and whether the client already has it, even after waiting for a newer one if
// it wanted to and could. It sets the ETag of the answer.
func (e *Exporter) snapshot(w http.ResponseWriter, r *http.Request) (m accel.Machine, known bool) {
	m = e.o.Machine()
	has := r.Header.Get("If-None-Match")
	if has != "" && has == tag(m) {
		m = e.newer(r.Context(), has, page.Wait(r), http.NewResponseController(w))
	}
	w.Header().Set("ETag", tag(m))
	return m, has != "" && has == tag(m)
}

// newer waits, at most for d, for a snapshot other than the known one, and returns the newest.
func (e *Exporter) newer(ctx context.Context, known string, d time.Duration, c *http.ResponseController) accel.Machine {
	if d <= 0 || e.o.Follow == nil {
		return e.o.Machine()
	}
	select {
	case e.waiting <- struct{}{}:
		defer func() { <-e.waiting }()
	default:
		return e.o.Machine()
	}
	// The server's read deadline would end the request, although it was read long ago.
	_ = c.SetReadDeadline(time.Now().Add(d + time.Second)) // fails only if there is no deadline to extend
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		m, replaced := e.o.Follow()
		if tag(m) != known {
			return m
		}
		select {
		case <-replaced:
		case <-timer.C:
			return m
		case <-ctx.Done():
			return m
		}
	}
}

// tag identifies a snapshot, also among those of different agents.
func tag(m accel.Machine) string {
	return `"` + strconv.FormatInt(m.Agent.Started.UnixNano(), 36) + "-" + strconv.FormatInt(m.Taken.UnixNano(), 36) +
		`"`
}
