package page

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// wellFormed parses html as strictly as XML.
func wellFormed(html string) error {
	d := xml.NewDecoder(strings.NewReader(html))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func at() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

func rendered(d Document) string { return string(d.Bytes()) }

// TestEscapes: any text or attribute is displayed, never interpreted.
func TestEscapes(t *testing.T) {
	hostile := "</style></script><script>alert(\"x\")</script>\" onload='x' \x1b[2J\x00\xff&amp;"
	d := Document{Title: hostile, Tag: hostile, Now: at(), Header: El("h1", Class(hostile), Set("title", hostile),
		Text(hostile)), Main: Table(hostile, []string{hostile, "b"}, TableRow{
		Class: hostile, Cells: []Node{Row(Text(hostile)), Badge(Tone(hostile), hostile)},
		Below: Facts(Fact(hostile, hostile), Fact("none", "")),
	}), Footer: Strip(hostile, []Segment{{0, 1, Tone(hostile), hostile}})}
	html := rendered(d)
	if err := wellFormed(html); err != nil {
		t.Fatal(err)
	}
	if strings.Count(html, "<script") != 1 || strings.Count(html, "</style>") != 1 || strings.Contains(html, "\x1b") ||
		strings.Contains(html, "\x00") || strings.Contains(html, "' ") && strings.Contains(html, `onload='`) {
		t.Error("hostile text reached the page as markup")
	}
	if strings.Contains(html, ">none<") {
		t.Error("a fact without a value is shown")
	}
}

// TestPolicy: the policy allows exactly the page's own style and script, and forbids nothing that the page contains.
func TestPolicy(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, 503, Document{Title: "x", Tag: `"1"`, Now: at()})
	html, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	for tag, directive := range map[string]string{"style": "style-src", "script": "script-src"} {
		_, rest, _ := strings.Cut(html, "<"+tag+">")
		content, _, _ := strings.Cut(rest, "</"+tag+">")
		sum := sha256.Sum256([]byte(content))
		if !strings.Contains(policy, directive+" 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("policy %q does not admit the %s", policy, tag)
		}
	}
	if w.Code != 503 || w.Header().Get("ETag") != `"1"` || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if strings.Contains(html, "style=") || strings.Contains(html, "src=") {
		t.Error("the page has something that its policy forbids")
	}
}

// TestStill: a page that does not change has no script and does not reload.
func TestStill(t *testing.T) {
	if html := rendered(Document{Title: "x", Now: at()}); strings.Contains(html, "<script") ||
		strings.Contains(html, "refresh") {
		t.Error(html)
	}
	if html := rendered(Document{Title: "x", Tag: `"1"`, Now: at()}); !strings.Contains(html,
		`<noscript><meta http-equiv="refresh" content="15"/></noscript>`) {
		t.Error("without scripts it is not loaded again")
	}
}

// TestLine: a line has a gap where a point is not known, and a point alone is a dot.
func TestLine(t *testing.T) {
	nan := math.NaN()
	html := rendered(Document{Now: at(), Main: Row(Line(`"<b>`, []float64{0, 1, nan, 0.5, nan, math.Inf(1), 7}, 0, 1),
		Line("none", nil, 0, 0), Bar("half", 0.5, Good), Bar("full", 7, Bad), Bar("unknown", nan, Bad))})
	if err := wellFormed(html); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`points="0.00,19.00 1.00,1.00"`, `points="3.00,10.00 3.00,10.00"`, `points="6.00,1.00 6.00,1.00"`,
		`aria-label="&#34;&lt;b&gt;"`, `width="50.00"`, `width="100.00"`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(html, "NaN") || strings.Contains(html, "unknown") {
		t.Error("what is not known is drawn")
	}
	if got := Sentence("éa") + Sentence("") + Sentence("x"); got != "ÉaX" {
		t.Error(got)
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min",
		3*time.Hour + 5*time.Minute: "3 h 5 min", 50 * time.Hour: "2 d 2 h",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := string(Document{Now: at(), Main: Ago(at(), time.Time{})}.Bytes()); strings.Contains(got, "<time") {
		t.Error("the zero time was long ago")
	}
	if got := Count(1, "pod") + Count(2, "pod"); got != "1 pod2 pods" {
		t.Error(got)
	}
}
