package screens

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestTerminal films `acceld status` and `acceld top`, the real program on a pseudoterminal, beside an agent whose
// machine is played. The film shows what the program wrote, and is looked at in a browser.
func TestTerminal(t *testing.T) {
	b, out := open(t)
	program := buildProgram(t)
	var h host
	config := h.listen(t)
	status, err := record(t.Context(), program, "--config", config, "status", "example-npu")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		for i := range 10 {
			time.Sleep(time.Second)
			h.set(func(m *accel.Machine) { work(m, i) })
		}
		time.Sleep(time.Second)
	}()
	top, err := record(ctx, program, "--config", config, "top")
	if err != nil {
		t.Fatal(err)
	}
	frames := []frame{{[][]cell{prompt("acceld top")}, time.Second}}
	for i, p := range top[:len(top)-1] { // the last is what is left in the terminal
		if i > 0 && cmp.Equal(plain(p), plain(top[i-1])) {
			continue
		}
		frames = append(frames, frame{p, 900 * time.Millisecond})
	}
	if len(frames) < 6 {
		t.Errorf("%d different pages in ten changes of the machine", len(frames)-1)
	}
	typed := prompt("acceld status example-npu")
	frames = append(frames, frame{[][]cell{typed}, time.Second},
		frame{append([][]cell{typed}, status[len(status)-1]...), 8 * time.Second})
	for i, words := range map[int][]string{
		1: {"HELD BY", "train-llama-0", "█"}, len(frames) - 1: {"fallen off the bus", "LinkDegraded"},
	} {
		for _, w := range words {
			if text := plain(frames[i].rows); !strings.Contains(text, w) {
				t.Errorf("frame %d does not show %q:\n%s", i, w, text)
			}
		}
	}
	svg := film("A terminal: acceld top and acceld status on a host with eight devices", columns, frames)
	file := filepath.Join(out, "terminal.svg")
	if err := os.WriteFile(file, []byte(svg), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.Open("file://"+file, looks()[0]); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"3", "99"} { // seconds of the film
		var shown string
		if err := b.Eval(`(() => { document.getAnimations().forEach(a => { a.pause(); a.currentTime = `+at+`e3; });
			return [...document.querySelectorAll("g")].filter(g => getComputedStyle(g).visibility === "visible").length + ""; })()`,
			&shown); err != nil || shown != "1" {
			t.Errorf("at %s s the film shows %s frames: %v", at, shown, err)
		}
		picture, err := b.Picture()
		if err == nil {
			err = os.WriteFile(filepath.Join(out, "terminal-"+at+".png"), picture, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, c := range b.Complaints() {
		t.Errorf("the browser complains: %s", c)
	}
}

// listen serves the host on a socket, and returns a configuration that names it.
func (h *host) listen(t *testing.T) (config string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "screens") // the name of a socket has at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	handler := h.serve(t).Config.Handler
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "unix", filepath.Join(dir, "acceld.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	s.Start()
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	config = filepath.Join(dir, "config.yaml")
	text := "endpoint:\n  socket: " + filepath.Join(dir, "acceld.sock") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return config
}

// work lets the devices of the sample work, a little differently at each step.
func work(m *accel.Machine, step int) {
	have := m.Have["example-npu"]
	accs := append([]accel.Accelerator{}, have.Accelerators...)
	for i := range accs {
		readings := map[string]float64{}
		for name, v := range accs[i].Metrics {
			readings[name] = v
		}
		busy := 0.5 + 0.45*math.Sin(float64(step)/1.5+float64(i))
		readings["accelerator_utilization_ratio"] = busy
		readings["accelerator_power_usage_watts"] = 90 + 290*busy
		readings["accelerator_temperature_celsius"] = 38 + 24*busy
		accs[i].Metrics = readings
	}
	have.Accelerators = accs
	m.Have = map[string]accel.Have{"example-npu": have, "example-fpga": m.Have["example-fpga"]}
}

// plain is the text of rows.
func plain(rows [][]cell) string {
	var b strings.Builder
	for _, row := range rows {
		for _, c := range row {
			b.WriteRune(max(c.char, ' '))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestTerminalEmulated shows the terminal what acceld writes, and the film what comes of it.
func TestTerminalEmulated(t *testing.T) {
	pages := 0
	x := &terminal{width: 12, height: 3, page: func() { pages++ }}
	x.clear()
	x.write("one\r\ntwo\r\n\x1b[1;31mred\x1b[0m  black\r\nlast")
	if got, want := plain(x.picture()), "two         \nred  black  \nlast        \n"; got != want {
		t.Errorf("got\n%s want\n%s", got, want)
	}
	want := []run{{0, "red", "1;31"}, {5, "black", ""}}
	if diff := cmp.Diff(want, runs(x.picture()[1]), cmp.AllowUnexported(run{})); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	x.write("\x1b[?1049h\x1b[?2026h\x1b[Habc\x1b[K\r\n\x1b[J\x1b[?2026l\x1b[?2026h\x1b[Hd\x1b[K\x1b[J\x1b[?2026l")
	if got := plain(x.picture()); got != "d           \n" || pages != 2 {
		t.Errorf("%d pages, the last\n%s", pages, got)
	}
	svg := film("a <title>", 12, []frame{{x.picture(), time.Second}, {x.picture(), 3 * time.Second}})
	for _, part := range []string{
		`aria-label="a &lt;title&gt;"`, "#f0{animation-name:k0}@keyframes k0{0%{visibility:visible}25.00%,to{visibility:hidden}}",
		"prefers-reduced-motion:reduce){g{animation:none}#f1{visibility:visible}}", ">d</text>",
	} {
		if !strings.Contains(svg, part) {
			t.Errorf("the film has no %q:\n%s", part, svg)
		}
	}
}
