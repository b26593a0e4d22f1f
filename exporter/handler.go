package exporter

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves /metrics and the further pages of metrics, /healthz, /livez, /readyz, /v1/machine, /v1/holders,
// /v1/events, /v1/progress and the status page at /. It answers only GET and HEAD, so nothing can be changed through
// it. The server sets the address and the timeouts.
func (e *Exporter) Handler() http.Handler {
	mux := http.NewServeMux()
	e.addMetrics(mux)
	mux.HandleFunc("/healthz", e.healthz)
	mux.HandleFunc("/livez", e.livez)
	mux.HandleFunc("/readyz", e.readyz)
	mux.HandleFunc("/v1/machine", e.machine)
	mux.HandleFunc("/v1/holders", e.holders)
	mux.HandleFunc("/v1/events", e.events)
	mux.HandleFunc("/v1/progress", e.progress)
	mux.HandleFunc("/{$}", e.page)
	return readOnly(mux)
}

// Metrics serves only /metrics and the further pages of metrics: what other machines may read.
func (e *Exporter) Metrics() http.Handler {
	mux := http.NewServeMux()
	e.addMetrics(mux)
	return readOnly(mux)
}

// addMetrics adds the pages of metrics.
func (e *Exporter) addMetrics(mux *http.ServeMux) {
	o := promhttp.HandlerOpts{
		ErrorLog: slogErrors{e.o.Log},
		// One series that cannot be rendered must not hide the others.
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
		// Above the limit the answer is 503, so that scrapers that pile up do not make the agent grow.
		MaxRequestsInFlight: 40,
	}
	mux.Handle("/metrics", promhttp.HandlerFor(e.metrics, o))
	// In OpenMetrics every counter's name ends in _total, but the names on these pages must stay as they are.
	o.EnableOpenMetrics = false
	for path, page := range e.pages {
		mux.Handle(path, promhttp.HandlerFor(page, o))
	}
}

// readOnly refuses all methods but GET and HEAD, and sets the headers of every answer.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this endpoint is read-only", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
