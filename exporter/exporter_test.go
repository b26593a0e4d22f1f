package exporter

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

var update = flag.Bool("update", false, "write the golden files")

// get returns status and body of a page.
func get(t testing.TB, h http.Handler, path string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got), go test -update writes it:\n%s", path, d)
	}
}

func TestScrapeGolden(t *testing.T) {
	code, body := get(t, example().Handler(), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", code, body)
	}
	golden(t, "metrics.txt", strings.Replace(body, runtime.Version(), "GO", 1))
}

func TestScrapeHasNoLint(t *testing.T) {
	// Every row has a series here, so that every name and help is checked.
	m := exampleMachine()
	have := m.Have["qemu-edu"]
	for _, name := range MetricNames() {
		have.Accelerators[0].Metrics[name] = 1
	}
	have.Work = []accel.Progress{{
		Kind: "qemu-edu", Stage: accel.StagePull, What: "registry.example/edu:2", Done: 45e6, Total: 100e6,
		Since: noon().Add(-time.Minute), Moved: noon().Add(-12 * time.Second),
	}}
	have.Runtime.LibraryMissing = accel.Problemf(accel.LibraryMissing, "no libedu.so.1")
	m.Have["qemu-edu"] = have
	m.Agent.Problems = []accel.PartProblem{{Part: "local port", Problem: accel.Problem{Reason: accel.EndpointUnavailable}}}
	m.Facts.PCI[0].SRIOV = accel.SRIOV{TotalVFs: 8, NumVFs: 2}
	m.Facts.Maintenance = []accel.Maintenance{{Condition: accel.Drained}}
	e := example(func(o *Options) { o.Machine = func() accel.Machine { return m } })
	_, body := get(t, e.Handler(), "/metrics")
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, r := range rows() {
		if !strings.Contains(body, "# TYPE "+r.name+" "+r.typ()+"\n") {
			t.Errorf("%s has no series in the example", r.name)
		}
	}
}

// TestSaidOnThePages: a part of the agent that has failed, and what was seen and is ignored, are where people look.
func TestSaidOnThePages(t *testing.T) {
	m := exampleMachine()
	m.Agent.Problems = []accel.PartProblem{
		{Part: "local port", Problem: accel.Problem{Reason: accel.EndpointUnavailable, Message: "port 9480 is taken"}},
	}
	m.Facts.Notes = []string{"process 7 in a container calls itself kubelet"}
	m.Facts.Maintenance = []accel.Maintenance{{Condition: accel.Drained, Reason: "Fan"}}
	e := example(func(o *Options) { o.Machine = func() accel.Machine { return m } })
	if _, body := get(t, e.Handler(), "/"); !strings.Contains(body,
		"maintenance: node is under maintenance: reason Fan by condition Drained") {
		t.Error("the page does not say who else works on the node")
	}
	if _, body := get(t, e.Handler(), "/metrics"); !strings.Contains(body,
		`acceld_node_maintenance{condition="Drained"} 1`) {
		t.Error("no metric says that somebody else works on the node")
	}
	for path, want := range map[string]string{
		"/":        m.Facts.Notes[0],
		"/healthz": "agent: local port: EndpointUnavailable: port 9480 is taken\n",
	} {
		if _, body := get(t, e.Handler(), path); !strings.Contains(body, want) {
			t.Errorf("%s does not say %q:\n%s", path, want, body)
		}
	}
	m.Have, m.Status = nil, nil
	if code, body := get(t, e.Handler(), "/healthz"); code != http.StatusOK || !strings.HasPrefix(body, "no accelerator") ||
		!strings.Contains(body, "agent: local port") {
		t.Errorf("without a device: %d, %s", code, body)
	}
}

func TestOpenMetrics(t *testing.T) {
	_, body := get(t, example().Handler(), "/metrics", "Accept", "application/openmetrics-text; version=1.0.0")
	if !strings.HasSuffix(body, "# EOF\n") {
		t.Errorf("not OpenMetrics: ends in %q", body[max(0, len(body)-40):])
	}
}

func TestProcessMetrics(t *testing.T) {
	_, body := get(t, example(func(o *Options) { o.Process = true }).Handler(), "/metrics")
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(body, "\n"+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestUnknownIsAbsent(t *testing.T) {
	_, body := get(t, example().Handler(), "/metrics")
	for _, no := range []string{
		"not_in_the_table",
		`acceld_allocatable{kind="example-npu"}`,
		`accelerator_temperature_celsius{accelerator_id="0000:03:00.0"`, // gone
		`accelerator_power_usage_watts`,
	} {
		if strings.Contains(body, no) {
			t.Errorf("%s is there", no)
		}
	}
}

// A device that two definitions recognise, a serial that is not text and a reading that is not a number must not
// make the page fail.
func TestScrapeSurvivesBadInput(t *testing.T) {
	m := exampleMachine()
	twice := m.Have["qemu-edu"].Accelerators[0]
	twice.Serial = "\xff\xfe\n\"x"
	twice.Metrics = map[string]float64{"accelerator_temperature_celsius": nan()}
	m.Have["another-edu"] = accel.Have{Accelerators: []accel.Accelerator{twice}}
	m.Status["another-edu"] = accel.Status{State: "no-such-state"}
	e := example(func(o *Options) { o.Machine = func() accel.Machine { return m } })
	code, body := get(t, e.Handler(), "/metrics")
	if code != http.StatusOK || !strings.Contains(body, `serial="`+"\uFFFD"+`\n\"x"`) {
		t.Errorf("%d %s", code, body)
	}
	if strings.Contains(body, "NaN") {
		t.Error("a value that is not known became a series")
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

func TestBeforeTheFirstSnapshot(t *testing.T) {
	h := New(Options{Machine: func() accel.Machine { return accel.Machine{} }, Process: true}).Handler()
	for _, path := range []string{"/", "/metrics", "/healthz", "/livez", "/readyz", "/v1/machine"} {
		want := http.StatusOK
		if path == "/healthz" { // before the host is read, nothing counts as healthy
			want = http.StatusServiceUnavailable
		}
		if code, body := get(t, h, path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestEndpoints(t *testing.T) {
	ready := func(ok bool, text string) func(*Options) {
		return func(o *Options) { o.Ready = func() (bool, string) { return ok, text } }
	}
	well := func(o *Options) {
		o.Machine = func() accel.Machine {
			m := exampleMachine()
			delete(m.Status, "example-npu")
			delete(m.Have, "example-npu")
			have := m.Have["qemu-edu"]
			have.Accelerators = have.Accelerators[:1]
			m.Have["qemu-edu"] = have
			return m
		}
	}
	divided := func(o *Options) {
		well(o)
		m := o.Machine()
		a := &m.Have["qemu-edu"].Accelerators[0]
		a.Partitions = []accel.Accelerator{
			{ID: a.ID + "-half-p0", Parent: a.ID, Profile: "half", Health: accel.Health{State: accel.Gone}},
			{ID: a.ID + "-half-p1", Parent: a.ID, Profile: "half", Health: accel.Health{
				State: accel.Unhealthy, Reason: accel.NodeMissing, Message: "no node",
			}},
		}
		o.Machine = func() accel.Machine { return m }
	}
	for _, tt := range []struct {
		name, path string
		change     []func(*Options)
		code       int
		body       string
	}{
		{"bad hardware", "/healthz", nil, 503, `example-npu: driver-missing: The driver is not loaded; a build failed.
example-npu: blocked: HeadersMissing: cannot build "npu": the headers of 6.12.9-1-lts are not installed: package "linux-headers-6.12.9-1-lts"
qemu-edu: ready: 1 of 3 devices can be scheduled.
qemu-edu: 0000:02:00.0: unhealthy: DeviceUnhealthy: the engine reports "parity error"
qemu-edu: 0000:03:00.0: gone: DeviceGone: 0000:03:00.0 left the bus
`},
		{
			"good hardware", "/healthz",
			[]func(*Options){well},
			200,
			"qemu-edu: ready: 1 of 3 devices can be scheduled.\n",
		},
		{"bad partition", "/healthz", []func(*Options){divided}, 503, `qemu-edu: ready: 1 of 3 devices can be scheduled.
qemu-edu: 0000:01:00.0-half-p1: unhealthy: NodeMissing: no node
`},
		{"alive whatever the hardware", "/livez", nil, 200, "ok\n"},
		{"loop stuck", "/livez", []func(*Options){func(o *Options) {
			o.Live = func() error { return errors.New("the loop has not turned for 2m0s") }
		}}, 503, "the loop has not turned for 2m0s\n"},
		{"ready", "/readyz", []func(*Options){ready(true, "")}, 200, "ok\n"},
		{
			"not ready", "/readyz",
			[]func(*Options){ready(false, "device plugin qemu-edu")},
			503,
			"device plugin qemu-edu\n",
		},
		{"no such page", "/etc/passwd", nil, 404, "404 page not found\n"},
		{"no traversal", "/v1/../../etc/passwd", nil, 307, "<a href=\"/etc/passwd\">Temporary Redirect</a>.\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, body := get(t, example(tt.change...).Handler(), tt.path)
			if d := cmp.Diff(tt.body, body); d != "" || code != tt.code {
				t.Errorf("%d, want %d; body (-want +got):\n%s", code, tt.code, d)
			}
		})
	}
}

func TestMachineIsTheSnapshot(t *testing.T) {
	code, body := get(t, example().Handler(), "/v1/machine")
	var got accel.Machine
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
		t.Fatalf("%d: %v", code, err)
	}
	if d := cmp.Diff(exampleMachine().Public(), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestReadOnly(t *testing.T) {
	h := example().Handler()
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"} {
		for _, path := range []string{"/", "/metrics", "/healthz", "/livez", "/readyz", "/v1/machine", "/nowhere"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, nil))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, path := range []string{"/", "/metrics", "/healthz", "/v1/machine"} {
		res, err := http.Head(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(res.Body); len(b) > 0 || res.StatusCode >= 404 && res.StatusCode != 503 {
			t.Errorf("HEAD %s: %d with %d bytes", path, res.StatusCode, len(b))
		}
		res.Body.Close()
		if res.Header.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.HasPrefix(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("HEAD %s: headers %v", path, res.Header)
		}
	}
}

func TestConcurrentScrapes(t *testing.T) {
	e := example()
	h := e.Handler()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			e.Observe("qemu-edu", accel.Ready, accel.Unwatched, time.Second)
			e.ObserveFailure("qemu-edu", accel.StepMonitor, accel.CollectFailed)
			get(t, h, "/metrics")
			get(t, h, "/")
		})
	}
	wg.Wait()
	_, body := get(t, h, "/metrics")
	if want := `acceld_state_transitions_total{from="ready",kind="qemu-edu",to="unwatched"} 20`; !strings.Contains(body,
		want+"\n") {
		t.Errorf("no %s", want)
	}
}

func TestTable(t *testing.T) {
	listed := map[string]string{}
	for _, s := range Table() {
		for _, m := range s.Metrics {
			if listed[m.Name] != "" {
				t.Errorf("%s is twice in the table", m.Name)
			}
			listed[m.Name] = m.Type
		}
	}
	for _, r := range rows() {
		if listed[r.name] != r.typ() {
			t.Errorf("%s is not in the table that docs/metrics.md is made of", r.name)
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	m := exampleMachine()
	have := m.Have["qemu-edu"]
	one := have.Accelerators[0]
	one.Metrics = map[string]float64{}
	for i, name := range MetricNames() {
		one.Metrics[name] = float64(i) * 1.5
	}
	have.Accelerators = nil
	for i := range 8 {
		one.ID = fmt.Sprintf("0000:%02x:00.0", i)
		have.Accelerators = append(have.Accelerators, one)
	}
	m.Have["qemu-edu"] = have
	h := New(Options{Machine: func() accel.Machine { return m }, Process: true}).Handler()
	for b.Loop() {
		if code, _ := get(b, h, "/metrics"); code != http.StatusOK {
			b.Fatal(code)
		}
	}
}

// TestPartitions: a partition is an accelerator of its own in every series about health, distinguished by its
// profile. It has no series for what only the whole device knows.
func TestPartitions(t *testing.T) {
	m := exampleMachine()
	a := &m.Have["qemu-edu"].Accelerators[0]
	a.Partitions = []accel.Accelerator{
		{ID: a.ID + "-half-p0", Parent: a.ID, Profile: "half", NUMANode: -1},
		{ID: a.ID + "-half-p1", Parent: a.ID, Profile: "half", Health: accel.Health{State: accel.Gone}},
	}
	_, body := get(t, example(func(o *Options) { o.Machine = func() accel.Machine { return m } }).Handler(), "/metrics")
	for _, want := range []string{
		`pci_address="0000:01:00.0",profile="half"`,
		`accelerator_up{accelerator_id="0000:01:00.0",vendor="qemu"} 1`,
		`accelerator_up{accelerator_id="0000:01:00.0-half-p0",vendor="qemu"} 1`,
		`accelerator_up{accelerator_id="0000:01:00.0-half-p1",vendor="qemu"} 0`,
		`accelerator_health_state{accelerator_id="0000:01:00.0-half-p0",state="healthy",vendor="qemu"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not there", want)
		}
	}
	for _, no := range []string{
		`accelerator_pcie_link_max_width{accelerator_id="0000:01:00.0-half`,
		`accelerator_temperature_celsius{accelerator_id="0000:01:00.0-half`,
	} {
		if strings.Contains(body, no) {
			t.Errorf("%s is there", no)
		}
	}
}
