package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // page.css and page.js
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

//go:embed page.css
var css string

//go:embed page.js
var script string

// Document is a whole page. Its script requests a newer one with If-None-Match and "Prefer: wait=20" (RFC 7240), and
// updates what differs in the browser. Without scripts the browser reloads the page periodically.
type Document struct {
	Title string
	// Tone sets the colour of the icon in the browser's tab.
	Tone Tone
	// Tag is the ETag of the page; empty for one that does not change.
	Tag string
	// Now is when the page was rendered; the script counts ages from then on.
	Now                  time.Time
	Header, Main, Footer Node
}

// Bytes renders the page.
func (d Document) Bytes() []byte {
	var b bytes.Buffer
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\" data-now=\"" + strconv.FormatInt(d.Now.UnixMilli(), 10) +
		"\" data-tag=\"" + escape(d.Tag) + "\">\n")
	El(
		"head",
		El("meta", Set("charset", "utf-8")),
		El("meta", Set("name", "viewport"), Set("content", "width=device-width, initial-scale=1")),
		El("meta", Set("name", "color-scheme"), Set("content", "light dark")),
		When(d.Tag != "", El("noscript", El("meta", Set("http-equiv", "refresh"), Set("content", "15")))),
		El("title", Text(d.Title)),
		El("link", Set("rel", "icon"), Set("href", icon(d.Tone))),
		raw("style", css),
	).write(&b)
	b.WriteString("\n")
	El(
		"body",
		El("a", Class("skip"), Set("href", "#main"), Text("Skip to the content")),
		El("header", d.Header),
		El("main", Set("id", "main"), d.Main),
		El("footer", d.Footer, El("p", Set("id", "live"), Set("role", "status"))),
		When(d.Tag != "", raw("script", script)),
	).write(&b)
	b.WriteString("\n</html>\n")
	return b.Bytes()
}

// raw returns an element whose content is a file of this package, unescaped.
func raw(tag, content string) Node {
	return Node{tag: tag, children: []Node{{own: content}}}
}

// icon returns the icon in the tab: a dot.
func icon(t Tone) string {
	fill := map[Tone]string{Good: "#2e9e62", Busy: "#d99a1c", Bad: "#d9483f"}[t]
	if fill == "" {
		fill = "#8a94a0"
	}
	return "data:image/svg+xml," +
		url.PathEscape(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="`+
			fill+`"/></svg>`)
}

// Policy returns the Content-Security-Policy of every page: it allows the page's own style and script, and requests
// to its own origin.
func Policy() string {
	return "default-src 'none'; style-src " + hash(css) + "; script-src " + hash(script) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// maxWait is the longest that a request may wait for a newer page: the answer must come before the server's write
// deadline.
const maxWait = 25 * time.Second

// Wait returns how long a client wants to wait for something newer than what it has: "Prefer: wait=20" (RFC 7240), in
// seconds. It is at most 25 s, and 0 if the client does not want to wait.
func Wait(r *http.Request) time.Duration {
	for p := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		if seconds, ok := strings.CutPrefix(strings.TrimSpace(p), "wait="); ok {
			if n, err := strconv.ParseUint(seconds, 10, 16); err == nil {
				return min(time.Duration(n)*time.Second, maxWait)
			}
		}
	}
	return 0
}

// Write sends the page as the response.
func Write(w http.ResponseWriter, status int, d Document) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", Policy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if d.Tag != "" {
		h.Set("ETag", d.Tag)
	}
	w.WriteHeader(status)
	_, _ = w.Write(d.Bytes()) // the client may have disconnected
}
