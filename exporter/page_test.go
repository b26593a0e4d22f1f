package exporter

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
		`used by <b>ml/train-0 (main)</b> · memory 3 GiB · busy 25 % · compute 1h2m5s, copy 500ms`,
		`used by <b>a process of the host</b> · memory 1 MiB · compute 2s`, `used by <b>container unnamed</b> · memory 2 MiB`,
		`and 3 more`,
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

// TestPageSays: the page has long work with its source, share and silence, what a kind lacks, the totals, devices that
// are not well first, a line of the last hour, and nothing for a reading that is not known.
func TestPageSays(t *testing.T) {
	m := exampleMachine()
	have := m.Have["qemu-edu"]
	have.Work = []accel.Progress{{
		Kind: "qemu-edu", Stage: accel.StagePull, What: "registry.example/edu:2", Done: 45e6, Total: 100e6,
		Since: noon().Add(-time.Minute), Moved: noon().Add(-12 * time.Second),
	}}
	have.Runtime.LibraryMissing = accel.Problemf(accel.LibraryMissing, "the host lacks libedu.so.1")
	have.Accelerators[0].Metrics["accelerator_utilization_ratio"] = 0.25
	m.Have["qemu-edu"] = have
	e := example(func(o *Options) { o.Machine = func() accel.Machine { return m } })
	for i := range 3 {
		m.Taken = noon().Add(time.Duration(i) * time.Minute)
		e.See(m)
	}
	_, body := get(t, e.Handler(), "/")
	if err := wellFormed(body); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`registry.example/edu:2`, `45.0 of 100.0 MB (45 %)`, `aria-label="45 % done"`, `no byte since </b><time`,
		`LibraryMissing`, `The host lacks libedu.so.1`, "<p class=\"do\">Install the driver", `>used</li>`, `>sick</li>`,
		`aria-label="utilization over the last hour, from 25 % to 25 %"`, `>25 %</span>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	sick, well := strings.Index(body, `id="device-0000:02:00.0"`), strings.Index(body, `id="device-0000:01:00.0"`)
	if sick < 0 || well < sick {
		t.Errorf("the device that is not well is at %d, the one that is at %d", sick, well)
	}
	_, row, _ := strings.Cut(body, `id="device-0000:02:00.0"`)
	row, _, _ = strings.Cut(row, "</tr>")
	if strings.Contains(row, "0 %") || strings.Contains(row, "0 W") || strings.Count(row, `class="none"`) < 3 {
		t.Errorf("a reading that is not known is shown:\n%s", row)
	}
	if code, health := get(t, e.Handler(), "/healthz"); code == 0 ||
		!strings.Contains(health, "qemu-edu: warning: LibraryMissing: the host lacks libedu.so.1\n") {
		t.Errorf("/healthz: %s", health)
	}
}

// TestPageSaysOnce: why a device is withheld is said with the device, and not again with each of its parts.
func TestPageSaysOnce(t *testing.T) {
	m := exampleMachine()
	a := &m.Have["qemu-edu"].Accelerators[0]
	a.Withheld = &accel.Withheld{By: accel.ByReset, Reason: accel.InUse, Message: "its pod is still there"}
	a.Partitions = []accel.Accelerator{{ID: a.ID + "-half-p0", Parent: a.ID}, {ID: a.ID + "-half-p1", Parent: a.ID}}
	_, body := get(t, example(func(o *Options) { o.Machine = func() accel.Machine { return m } }).Handler(), "/")
	if n := strings.Count(body, "its pod is still there"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	if n := strings.Count(body, ">held back<"); n != 4 { // the third device is for a reason of its own
		t.Errorf("%d rows are marked, want 4", n)
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
		have.Accelerators, have.Driver.Upgrade = have.Accelerators[:n], nil
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
		{"Another driver is wanted: qemu-edu. 1 of 1 accelerator healthy.", func(m *accel.Machine) {
			only(m, 1)
			have := m.Have["qemu-edu"]
			have.Driver.Upgrade = &accel.Upgrade{Phase: accel.UpgradeDraining}
			m.Have["qemu-edu"] = have
		}},
		{"Ready. 1 of 2 accelerators withheld.", func(m *accel.Machine) {
			only(m, 2)
			all := m.Have["qemu-edu"].Accelerators
			all[1].Health.State = accel.Healthy
			all[1].Withheld = &accel.Withheld{By: accel.ByHandover, Reason: accel.LeftoverProcess}
		}},
		{"Ready. The accelerator is healthy; unchecked: qemu-edu.", func(m *accel.Machine) {
			only(m, 1)
			have := m.Have["qemu-edu"]
			have.Driver.Unchecked = true
			m.Have["qemu-edu"] = have
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
