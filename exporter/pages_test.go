package exporter

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// further is a page with every fact.
func further() accel.MetricPage {
	return accel.MetricPage{
		Name: "example", Title: "an example",
		Labels: []accel.PageLabel{
			{Name: "gpu", Fact: accel.PageIndex},
			{Name: "UUID", Fact: accel.PageUUID},
			{Name: "pci_bus_id", Fact: accel.PageAddress},
			{Name: "device", Fact: accel.PageDeviceNode},
			{Name: "modelName", Fact: accel.PageModel},
			{Name: "Hostname", Fact: accel.PageNode},
			{Name: "version", Fact: accel.PageDriverVersion},
			{Name: "profile", Fact: accel.PageProfile},
			{Name: "part", Fact: accel.PagePartition},
			{Name: "namespace", Fact: accel.PageNamespace},
			{Name: "pod", Fact: accel.PagePod},
			{Name: "uid", Fact: accel.PagePodUID},
			{Name: "container", Fact: accel.PageContainer},
		},
		Rows: []accel.PageRow{
			{Name: "EX_TEMP", Help: "Temperature.", Reading: "accelerator_temperature_celsius"},
			{Name: "EX_UTIL", Help: "Utilization, percent.", Reading: "accelerator_gpu_utilization"},
			{
				Name: "EX_FREE", Help: "Free memory, MiB.", Reading: "accelerator_memory_total_bytes",
				Less: "accelerator_memory_used_bytes", Scale: 1.0 / (1 << 20),
			},
			{
				Name: "EX_ENERGY", Help: "Energy, mJ.", Counter: true, Reading: "accelerator_energy_joules_total",
				Scale: 1000,
			},
			{Name: "EX_LAST_ERROR", Help: "The last error.", LastCode: true},
			{Name: "ex_driver_ready", Help: "Ready.", Node: accel.NodeDriverReady},
			{Name: "ex_runtime_ready", Help: "Ready.", Node: accel.NodeRuntimeReady},
			{Name: "ex_plugin_ready", Help: "Ready.", Node: accel.NodePluginReady},
			{Name: "ex_proven", Help: "Proven.", Node: accel.NodeProven},
			{Name: "ex_proven_time", Help: "Proven.", Node: accel.NodeProvenTime},
			{Name: "ex_offered_time", Help: "Offered.", Node: accel.NodeOfferedTime},
			{Name: "ex_allocatable", Help: "Allocatable.", Node: accel.NodeAllocatable},
			{Name: "ex_accelerators", Help: "Accelerators.", Node: accel.NodeAccelerators},
			{Name: "ex_collected_time", Help: "Collected.", Node: accel.NodeCollectedTime},
		},
	}
}

// TestPagesGolden: the further page of the example, with a device that two pods share and one in two parts.
func TestPagesGolden(t *testing.T) {
	m := exampleMachine()
	delete(m.Have, "example-npu")
	delete(m.Status, "example-npu")
	have := m.Have["qemu-edu"]
	first, second := &have.Accelerators[0], &have.Accelerators[1]
	first.Metrics = map[string]float64{
		"accelerator_temperature_celsius": 41.5, "accelerator_utilization_ratio": 0.25,
		"accelerator_energy_joules_total": 1.5,
		"accelerator_memory_total_bytes":  80 << 20, "accelerator_memory_used_bytes": 30 << 20,
	}
	first.Faults = append(first.Faults, accel.Fault{Code: "79", Count: 1, Last: noon()})
	second.Faults = []accel.Fault{{Code: "no number", Count: 1, Last: noon()}}
	second.Partitions = []accel.Accelerator{
		{
			ID: second.ID + "-half-p0", Parent: second.ID, Profile: "half", NUMANode: -1,
			Metrics: map[string]float64{"accelerator_temperature_celsius": 50},
		},
		{
			ID: second.ID + "-half-p1", Parent: second.ID, Profile: "half", NUMANode: -1,
			Metrics: map[string]float64{"accelerator_temperature_celsius": 51},
		},
	}
	m.Have["qemu-edu"] = have
	e := example(func(o *Options) {
		o.Machine = func() accel.Machine { return m }
		o.Pages = []accel.MetricPage{further()}
		o.Holders = func() Holdings {
			return Holdings{Told: noon(), By: map[string][]Holder{first.ID: {
				{Namespace: "ml", Pod: "a", UID: "1", Container: "main"},
				{Namespace: "ml", Pod: "b", UID: "2", Container: "main"},
				{Namespace: "ml", Pod: "b", UID: "2", Container: "main", Claim: "another"}, // the same by these labels
			}}}
		}
	})
	code, body := get(t, e.Handler(), "/metrics/example")
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	golden(t, "page.txt", body)
	for _, path := range []string{"/metrics/other", "/metrics/"} {
		if code, _ := get(t, e.Handler(), path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// TestPagesKeepTheirNames: in OpenMetrics a counter would get another name, so these pages never use it, whatever
// the client accepts.
func TestPagesKeepTheirNames(t *testing.T) {
	m := exampleMachine()
	m.Have["qemu-edu"].Accelerators[0].Metrics["accelerator_energy_joules_total"] = 2
	e := example(func(o *Options) {
		o.Pages, o.Machine = []accel.MetricPage{further()}, func() accel.Machine { return m }
	})
	_, body := get(t, e.Handler(), "/metrics/example", "Accept",
		"application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
	if !strings.Contains(body, "# TYPE EX_ENERGY counter\nEX_ENERGY{") || strings.HasSuffix(body, "# EOF\n") {
		t.Errorf("the page:\n%s", body)
	}
}

// TestMetricsAlone: other machines get only the pages of metrics, read-only.
func TestMetricsAlone(t *testing.T) {
	h := example(func(o *Options) { o.Pages = []accel.MetricPage{further()} }).Metrics()
	for path, want := range map[string]int{
		"/metrics": 200, "/metrics/example": 200, "/": 404, "/v1/machine": 404,
		"/healthz": 404, "/livez": 404, "/readyz": 404,
	} {
		if code, _ := get(t, h, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

// TestInheritedUtilization: the inherited name at its scale exists whenever the ratio does, and a definition's own
// reading wins.
func TestInheritedUtilization(t *testing.T) {
	m := exampleMachine()
	metrics := m.Have["qemu-edu"].Accelerators[0].Metrics
	metrics[utilization] = 0.5
	page := func() string {
		_, body := get(t, example(func(o *Options) { o.Machine = func() accel.Machine { return m } }).Handler(),
			"/metrics")
		return body
	}
	if want := inheritedUtilization + `{accelerator_id="0000:01:00.0",vendor="qemu"} 50`; !strings.Contains(page(),
		want) {
		t.Errorf("no %s", want)
	}
	metrics[inheritedUtilization] = 49
	if want := inheritedUtilization + `{accelerator_id="0000:01:00.0",vendor="qemu"} 49`; !strings.Contains(page(),
		want) {
		t.Errorf("no %s", want)
	}
}

// TestScrapeFollowsPods: there are series only for pods that exist, however many existed before.
func TestScrapeFollowsPods(t *testing.T) {
	by, revision := map[string][]Holder{}, uint64(0)
	h := example(func(o *Options) {
		o.Holders = func() Holdings { return Holdings{By: by, Told: noon(), Revision: revision} }
	}).Handler()
	for i := range 1000 {
		revision++
		pod := "train-" + time.Duration(i).String()
		by = map[string][]Holder{"0000:01:00.0": {{
			Namespace: "ml", Pod: pod, UID: pod, Container: "main",
			Resource: "qemu.org/edu",
		}}}
		_, body := get(t, h, "/metrics")
		series := slices.DeleteFunc(strings.Split(body, "\n"), func(l string) bool {
			return !strings.HasPrefix(l, "accelerator_allocation_info{")
		})
		if len(series) != 1 || !strings.Contains(series[0], `pod="`+pod+`"`) {
			t.Fatalf("after %d pods: %v", i, series)
		}
	}
	by = nil
	revision++
	if _, body := get(t, h, "/metrics"); strings.Contains(body, "accelerator_allocation_info{") {
		t.Error("a pod that has ended is still there")
	}
}

// TestRenderedOnce: an unchanged page is not rendered again, and a change is shown at once.
func TestRenderedOnce(t *testing.T) {
	m, held, asked := exampleMachine(), exampleHolders(), 0
	e := example(func(o *Options) {
		o.Machine = func() accel.Machine { asked++; return m }
		o.Holders = func() Holdings { return held }
	})
	h := e.Handler()
	page := func() (string, int) {
		before := asked
		_, body := get(t, h, "/metrics")
		return body, asked - before
	}
	_, first := page()
	if _, again := page(); again >= first {
		t.Errorf("the machine is asked for %d times for what was shown before, %d times for what is new", again, first)
	}
	for what, change := range map[string]func(){
		`pod="another"`: func() {
			held.By = map[string][]Holder{"0000:01:00.0": {{Namespace: "ml", Pod: "another"}}}
			held.Revision++
		},
		`accelerator_operations_total{accelerator_id="0000:01:00.0",vendor="qemu"} 7`: func() {
			m.Have["qemu-edu"].Accelerators[0].Metrics["accelerator_operations_total"] = 7
			m.Taken = m.Taken.Add(time.Second)
		},
		`acceld_state_transitions_total{from="ready",kind="qemu-edu",to="unwatched"} 1`: func() {
			e.Observe("qemu-edu", accel.Ready, accel.Unwatched, time.Second)
		},
		`acceld_step_failures_total{kind="qemu-edu",reason="CollectFailed",step="monitor"} 1`: func() {
			e.ObserveFailure("qemu-edu", accel.StepMonitor, accel.CollectFailed)
		},
	} {
		change()
		if body, _ := page(); !strings.Contains(body, what) {
			t.Errorf("%s is not shown", what)
		}
	}
}
