package exporter

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

const (
	// maxWait is the longest that a request may wait for a newer snapshot: it has to be answered before the server's
	// deadline for writing.
	maxWait = 25 * time.Second
	// maxWaiting requests wait at a time; further ones are answered at once.
	maxWaiting = 64
)

// machine answers with the newest snapshot, as `acceld status -o json` prints it. A client that has one already names
// it with If-None-Match, and with "Prefer: wait=20" (RFC 7240) it is answered when there is a newer one, or with 304
// after so many seconds. So nobody has to ask over and over.
func (e *Exporter) machine(w http.ResponseWriter, r *http.Request) {
	m, known := e.snapshot(w, r)
	if known {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		e.o.Log.Error("snapshot cannot be encoded", "error", err)
		http.Error(w, "cannot encode the snapshot", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // the client may have gone
}

// snapshot returns the newest snapshot, and whether the client has it and would not, or could not, wait for a newer
// one. Its tag is in the answer then.
func (e *Exporter) snapshot(w http.ResponseWriter, r *http.Request) (m accel.Machine, known bool) {
	m = e.o.Machine()
	has := r.Header.Get("If-None-Match")
	if has != "" && has == tag(m) {
		m = e.newer(r.Context(), has, wish(r), http.NewResponseController(w))
	}
	w.Header().Set("ETag", tag(m))
	return m, has != "" && has == tag(m)
}

// newer waits for a snapshot that is not the known one, at most for d, and returns the newest.
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
	// The server's deadline for reading would end the request, although it was read long ago.
	_ = c.SetReadDeadline(time.Now().Add(d + time.Second)) // where there is none there is nothing to put off
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

// tag tells snapshots apart, also those of two agents.
func tag(m accel.Machine) string {
	return `"` + strconv.FormatInt(m.Agent.Started.UnixNano(), 36) + "-" + strconv.FormatInt(m.Taken.UnixNano(), 36) +
		`"`
}

// wish is how long the client would wait.
func wish(r *http.Request) time.Duration {
	for _, preferences := range r.Header.Values("Prefer") {
		for p := range strings.SplitSeq(preferences, ",") {
			if seconds, ok := strings.CutPrefix(strings.TrimSpace(p), "wait="); ok {
				n, err := strconv.ParseUint(seconds, 10, 16)
				if err == nil {
					return min(time.Duration(n)*time.Second, maxWait)
				}
			}
		}
	}
	return 0
}
