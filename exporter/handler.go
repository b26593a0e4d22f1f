package exporter

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves /metrics and the further pages of metrics, /healthz, /livez, /readyz, /v1/machine, /v1/holders,
// /v1/events, /v1/progress, /v1/history, the page at /history and the status page at /. It answers only GET and HEAD,
// so nothing can be changed through it. Over TCP it answers only requests to a name of this host, and without what may
// be secret. The server sets the address and the timeouts.
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
	mux.HandleFunc("/v1/history", e.past)
	mux.HandleFunc("/history", e.pastPage)
	mux.HandleFunc("/{$}", e.page)
	return readOnly(e.ownName(mux))
}

// private reports whether a request came over a unix socket, whose file says who may ask.
func private(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && a.Network() == "unix"
}

// ownName refuses requests that a web page has sent through a browser on this host. A page can make its own name lead
// to the loopback address and then read the answers, but the request still carries that name (DNS rebinding). An
// address cannot be another site's name.
func (e *Exporter) ownName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		switch {
		case private(r):
		case !e.named(r.Host):
			http.Error(w, "this host has another name; endpoint.hosts lists further ones", http.StatusMisdirectedRequest)
			return
		case origin != "" && origin != "http://"+r.Host:
			http.Error(w, "pages of other sites may not ask", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// named reports whether the Host header of a request names this host. It is empty in HTTP/1.0, which no browser speaks.
func (e *Exporter) named(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	address := net.ParseIP(strings.Trim(host, "[]")) != nil
	return host == "" || address || host == "localhost" || slices.Contains(e.o.Hosts, host)
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
