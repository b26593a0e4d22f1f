package exporter

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
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

func TestPage(t *testing.T) {
	w := httptest.NewRecorder()
	example().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
	body := w.Body.String()
	if err := wellFormed(body); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`Needs attention: example-npu, qemu-edu. 1 of 4 accelerators healthy.`,
		`HeadersMissing`, accel.HeadersMissing.Doc().Remedy, `It is tried again <time`, `>in 1 min</time>`,
		`no entry for 6.12.9-1-lts`,
		`left the bus`, `parity error`, `ml/train-0`, `>42 °C</span>`, `<b>7.0 GiB</b>`, `Example FPGA`,
		`<li class="good"><b>Self-test <span aria-hidden="true">✓</span></b>8 ms</li>`,
		`<li class="bad" aria-current="step"><b>Driver <span aria-hidden="true">✕</span></b>blocked</li>`,
		`href="#device-0000:02:00.0"`, `id="device-0000:02:00.0"`,
		`<b>SettingFailed</b> setting computeMode is default, configured is exclusive: failed: no`,
		`powerLimitWatts is 250; changed by something else 2 times`,
		`in use without a request: process 4242 &lt;b&gt; and 1 more (pod ml/thief, to which 0000:02:00.0 is given)`,
		`in use without a request: process 17 sh (of the host)`,
		`in use without a request: not known: the kubelet does not say`,
		`<title>driver-missing from`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	if strings.Contains(body, "x.service") {
		t.Error("the page names a service of the host")
	}
	if w.Header().Get("ETag") == "" || !strings.Contains(w.Header().Get("Content-Security-Policy"),
		"default-src 'none'") {
		t.Errorf("headers %v", w.Header())
	}
	if strings.Contains(body, "style=") || strings.Contains(body, "src=") || strings.Count(body, "<script") != 1 {
		t.Error("the page has something that its policy forbids")
	}
}

// TestPageWaits: a client that has the page is answered when there is a newer one, as with /v1/machine.
func TestPageWaits(t *testing.T) {
	e := example()
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
	again := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	again.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again.Header.Set("Prefer", "wait=1")
	w = httptest.NewRecorder()
	e.Handler().ServeHTTP(w, again)
	if w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("status %d with %d bytes", w.Code, w.Body.Len())
	}
}

func TestPageEscapes(t *testing.T) {
	const hostile = `</style><script>alert("x")</script>`
	m := exampleMachine()
	have := m.Have["qemu-edu"]
	have.Accelerators[1].Serial = hostile
	have.Accelerators[1].Health.Message = hostile
	have.Driver.Proof = hostile
	m.Have["qemu-edu"] = have
	m.Facts.OS.Pretty = hostile
	m.Facts.Problems = []string{hostile}
	m.Facts.Maintenance = []accel.Maintenance{{Condition: accel.Drained, Reason: hostile, Message: hostile}}
	m.Agent.Node = hostile
	st := m.Status["example-npu"]
	st.Blocked.Message, st.Sentence = hostile, hostile
	m.Status["example-npu"] = st
	_, body := get(t, example(func(o *Options) { o.Machine = func() accel.Machine { return m } }).Handler(), "/")
	if strings.Count(body, "<script") != 1 || strings.Count(body, "</style>") != 1 ||
		strings.Contains(body, `alert("`) {
		t.Error("hostile text reached the page as markup")
	}
	if err := wellFormed(body); err != nil {
		t.Error(err)
	}
}

func TestVerdicts(t *testing.T) {
	at := func(change func(*accel.Machine)) string {
		m := exampleMachine()
		change(&m)
		_, words := verdict(view{Machine: m, devices: devices(m, nil)})
		return words
	}
	only := func(m *accel.Machine, n int) {
		have := m.Have["qemu-edu"]
		have.Accelerators = have.Accelerators[:n]
		m.Have = map[string]accel.Have{"qemu-edu": have}
		m.Status = map[string]accel.Status{"qemu-edu": m.Status["qemu-edu"]}
	}
	divided := func(m *accel.Machine, parts ...accel.Health) {
		only(m, 1)
		a := &m.Have["qemu-edu"].Accelerators[0]
		for _, h := range parts {
			a.Partitions = append(a.Partitions, accel.Accelerator{
				ID: a.ID + "-half-" + string(h.State), Parent: a.ID, Profile: "half", Health: h,
			})
		}
	}
	for _, tt := range []struct {
		want   string
		change func(*accel.Machine)
	}{
		{"The host has not been read yet.", func(m *accel.Machine) { *m = accel.Machine{} }},
		{"No accelerator on this host.", func(m *accel.Machine) { m.Have, m.Status = nil, nil }},
		{"Ready. The accelerator is healthy.", func(m *accel.Machine) { only(m, 1) }},
		{"On the way: qemu-edu. 1 of 1 accelerator healthy.", func(m *accel.Machine) {
			only(m, 1)
			m.Status["qemu-edu"] = accel.Status{State: accel.DriverUnproven}
		}},
		{"Ready. All 2 accelerators are healthy.", func(m *accel.Machine) {
			only(m, 2)
			m.Have["qemu-edu"].Accelerators[1].Health.State = accel.Healthy
		}},
		{"Needs attention: qemu-edu. 1 of 2 accelerators healthy.", func(m *accel.Machine) {
			divided(m, accel.Health{State: accel.Unhealthy, Reason: accel.NodeMissing})
		}},
		{"Ready. All 2 accelerators are healthy.", func(m *accel.Machine) {
			divided(m, accel.Health{State: accel.Healthy}, accel.Health{State: accel.Gone, Reason: accel.DeviceGone})
		}},
	} {
		if got := at(tt.change); got != tt.want {
			t.Errorf("verdict %q, want %q", got, tt.want)
		}
	}
}

func TestQuantity(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    float64
		want string
	}{
		{"accelerator_temperature_celsius", 41.55, "41.5 °C"},
		{"accelerator_utilization_ratio", 0.5, "50 %"},
		{"accelerator_gpu_utilization", 50, "50 %"},
		{"accelerator_memory_used_bytes", 512, "512 B"},
		{"accelerator_memory_used_bytes", 80 << 30, "80.0 GiB"},
		{"accelerator_sm_clock_hertz", 1.98e9, "2.0 GHz"},
		{"accelerator_energy_joules_total", 3.6e6, "3.6 MJ"},
		{"accelerator_operations_total", 362880, "362880"},
	} {
		if got := quantity(tt.name, tt.n); got != tt.want {
			t.Errorf("%s %v: %q, want %q", tt.name, tt.n, got, tt.want)
		}
	}
}
