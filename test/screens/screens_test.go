package screens

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/fleet"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/exporter"
)

// open starts a browser; out is where pictures go.
func open(t *testing.T) (b *Browser, out string) {
	t.Helper()
	out = os.Getenv("ACCELD_SCREENS")
	if out == "" {
		t.Skip("ACCELD_SCREENS names no directory for pictures: make screenshots")
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed: make screenshots installs it")
	}
	if b, err = Start(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	return b, out
}

// host is an agent's endpoint with a machine that a test can change.
type host struct {
	mu       sync.Mutex
	m        accel.Machine
	replaced chan struct{}
	asked    atomic.Int64
	off      atomic.Bool
}

func (h *host) follow() (accel.Machine, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.m, h.replaced
}

func (h *host) set(change func(*accel.Machine)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.m.Taken = time.Now()
	change(&h.m)
	close(h.replaced)
	h.replaced = make(chan struct{})
}

// serve answers as an agent does whose host is the sample, unless another one was given to it.
func (h *host) serve(t *testing.T) *httptest.Server {
	t.Helper()
	now, usual := time.Now(), h.m.Taken.IsZero()
	h.replaced = make(chan struct{})
	if usual {
		h.m = sample(now)
	}
	e := exporter.New(exporter.Options{Machine: func() accel.Machine {
		m, _ := h.follow()
		return m
	}, Follow: h.follow, Past: func() []exporter.Past { return samplePast(now) }, Holders: func() exporter.Holdings {
		if m, _ := h.follow(); !m.Have["example-npu"].Driver.Serves {
			return exporter.Holdings{Told: now}
		}
		return exporter.Holdings{By: sampleHolders(), Told: now}
	}})
	if usual {
		lived(e, now)
	}
	handler := e.Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		if h.off.Load() {
			panic(http.ErrAbortHandler) // the connection is cut
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

func looks() []Look {
	return []Look{
		{Name: "desktop", Width: 1280, Height: 900},
		{Name: "desktop-dark", Width: 1280, Height: 900, Dark: true},
		{Name: "phone", Width: 390, Height: 844, Phone: true},
		{Name: "phone-dark", Width: 390, Height: 844, Phone: true, Dark: true},
	}
}

// contrast lists texts whose colour is too near to what is behind them (WCAG 2.2, 1.4.3: at least 4.5 to 1, 3 to 1 for
// large text).
const contrast = `(() => {
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const light = ([r, g, b]) => { const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; n = walk.nextNode();) {
    const e = n.parentElement, text = n.textContent.trim();
    if (!text || ["SCRIPT", "STYLE", "NOSCRIPT", "TITLE"].includes(e.tagName) || e.namespaceURI.includes("svg")) continue;
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!box.width || box.right < 0) continue;
    const a = light(parse(style.color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700;
    if (ratio < (large ? 3 : 4.5)) bad.push(text.slice(0, 40) + " " + ratio.toFixed(2));
  }
  return bad;
})()`

// shape lists what makes a page hard to use without eyes or with a keyboard alone.
const shape = `(() => {
  const bad = [];
  if (!document.documentElement.lang) bad.push("no language");
  for (const tag of ["header", "main", "footer", "h1"]) if (document.querySelectorAll(tag).length !== 1) bad.push("not one " + tag);
  for (const t of document.querySelectorAll("table")) {
    if (!t.caption || !t.caption.textContent) bad.push("a table without caption");
    for (const r of t.rows) if (r.getAttribute("role") !== "row") bad.push("a row that is none on a phone");
  }
  for (const e of document.querySelectorAll("svg, input")) if (!e.getAttribute("aria-label")) bad.push(e.tagName + " without a name");
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  if (new Set(ids).size !== ids.length) bad.push("an id twice");
  let level = 0;
  for (const h of document.querySelectorAll("h1, h2, h3")) { const n = +h.tagName[1]; if (n > level + 1) bad.push("a heading is left out before " + h.textContent); level = n; }
  return bad;
})()`

// look opens a page in every look, holds it to what pages have to be, and writes its picture.
func look(t *testing.T, b *Browser, out, name, url string) {
	for _, l := range looks() {
		t.Run(name+"-"+l.Name, func(t *testing.T) {
			if err := b.Open(url, l); err != nil {
				t.Fatal(err)
			}
			var wide struct{ Page, Window int }
			if err := b.Eval(`({Page: document.documentElement.scrollWidth, Window: window.innerWidth})`,
				&wide); err != nil || wide.Page > l.Width {
				t.Errorf("the page is %d wide in a window of %d: %v", wide.Page, l.Width, err)
			}
			for _, check := range []string{contrast, shape} {
				var bad []string
				if err := b.Eval(check, &bad); err != nil || len(bad) > 0 {
					t.Errorf("%v %s", err, strings.Join(bad, "\n"))
				}
			}
			axe(t, b)
			weigh(t, b)
			picture, err := b.Picture()
			if err == nil {
				err = os.WriteFile(filepath.Join(out, name+"-"+l.Name+".png"), picture, 0o644)
			}
			if err != nil {
				t.Error(err)
			}
			for _, c := range b.Complaints() {
				t.Errorf("the browser complains: %s", c)
			}
		})
	}
}

// weigh says how much the browser loaded for a page, and holds that all of it came from where the page did.
func weigh(t *testing.T, b *Browser) {
	t.Helper()
	var loaded struct {
		Bytes, Requests int
		Foreign         []string
	}
	if err := b.Eval(`(() => {
		const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
		return {Bytes: all.reduce((n, e) => n + e.encodedBodySize, 0), Requests: all.length,
			Foreign: all.map(e => e.name).filter(u => new URL(u).origin !== location.origin)};
	})()`, &loaded); err != nil || len(loaded.Foreign) > 0 || loaded.Requests == 0 {
		t.Errorf("%d requests, from elsewhere: %v, %v", loaded.Requests, loaded.Foreign, err)
	}
	t.Logf("requests: %d, kB: %.1f", loaded.Requests, float64(loaded.Bytes)/1000)
}

// axe lets axe-core judge the page too, where ACCELD_AXE names its axe.min.js, as make screenshots does.
func axe(t *testing.T, b *Browser) {
	t.Helper()
	file := os.Getenv("ACCELD_AXE")
	if file == "" {
		return
	}
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Version string
		Passes  int
		Bad     []string
	}
	if err := b.Eval(string(script)+`;axe.run().then(r => ({Version: r.testEngine.version, Passes: r.passes.length,
		Bad: r.violations.flatMap(v => v.nodes.map(n => v.id + " (" + v.impact + "): " + n.html.slice(0, 120)))}))`,
		&result); err != nil || len(result.Bad) > 0 || result.Passes == 0 {
		t.Errorf("axe: %v, %d rules passed\n%s", err, result.Passes, strings.Join(result.Bad, "\n"))
	}
	t.Logf("axe-core %s: %d rules passed", result.Version, result.Passes)
}

// keep writes what the README shows of a page: what fits onto a desktop.
func keep(t *testing.T, b *Browser, out, name, url string) {
	t.Helper()
	if err := b.Open(url, looks()[0]); err != nil {
		t.Fatal(err)
	}
	picture, err := b.Screen()
	if err == nil {
		err = os.WriteFile(filepath.Join(out, name+".webp"), picture, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestStatusPage looks at the agent's page.
func TestStatusPage(t *testing.T) {
	b, out := open(t)
	var h host
	url := h.serve(t).URL
	look(t, b, out, "status", url)
	look(t, b, out, "history", url+"/history")
	keep(t, b, out, "status", url)
}

// TestFleetPage looks at the controller's page, and at the same with a pod that is asked about.
func TestFleetPage(t *testing.T) {
	b, out := open(t)
	now := time.Now()
	p := fleet.New(fleet.Options{
		Identity: "acceld-controller-6d5f_1", Overview: func() (policy.Overview, bool) {
			return sampleOverview(now), true
		},
		Waiting: func(int) ([]extender.Waiting, int, bool) { return sampleWaiting(now), 1, true },
		Explain: func(pod string, _ int) (extender.Waiting, bool) {
			w := sampleWaiting(now)[0]
			return w, pod == w.Pod
		},
	})
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	look(t, b, out, "fleet", s.URL)
	keep(t, b, out, "fleet", s.URL)
	look(t, b, out, "fleet-pod", s.URL+"/?pod=ml/train-llama-2")
}

// TestLive: the page follows the agent without being loaded again and without asking over and over, keeps what the
// reader has done, says when nobody answers, and goes on when somebody does.
func TestLive(t *testing.T) {
	b, _ := open(t)
	var h host
	s := h.serve(t)
	if err := b.Open(s.URL, looks()[0]); err != nil {
		t.Fatal(err)
	}
	const mark = `(() => { window.stays = document.getElementById("example-npu"); getSelection().selectAllChildren(window.stays.querySelector("h2")); return true; })()`
	var ok bool
	if err := b.Eval(mark, &ok); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if n := h.asked.Load(); n > 3 {
		t.Errorf("%d questions in three quiet seconds", n)
	}
	for i := range 3 {
		temperature := fmt.Sprintf("%d °C", 70+i)
		h.set(func(m *accel.Machine) {
			have := m.Have["example-npu"]
			have.Accelerators = append([]accel.Accelerator{}, have.Accelerators...)
			have.Accelerators[0].Metrics = map[string]float64{"accelerator_temperature_celsius": float64(70 + i)}
			m.Have = map[string]accel.Have{"example-npu": have, "example-fpga": m.Have["example-fpga"]}
		})
		if err := b.Until(`document.body.textContent.includes("`+temperature+`")`, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Eval(`window.stays === document.getElementById("example-npu") && getSelection().toString() !== ""`,
		&ok); err != nil || !ok {
		t.Errorf("the page was made again: %v", err)
	}
	h.off.Store(true)
	s.CloseClientConnections()
	if err := b.Until(
		`document.documentElement.classList.contains("stale") && document.getElementById("live").textContent.startsWith("No answer")`,
		20*time.Second); err != nil {
		t.Error(err)
	}
	h.off.Store(false)
	if err := b.Until(`!document.documentElement.classList.contains("stale")`, 40*time.Second); err != nil {
		t.Error(err)
	}
}
