package prometheus

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
)

// incident is what happens to a node with two devices, minute by minute, and which alerts fire.
type incident struct {
	name string
	// at changes the machine that is well in that minute; false is a node that is down.
	at func(minute int, m *accel.Machine) bool
	// fires are the alerts that fire at a minute, and no others do.
	fires map[int][]string
}

// incidents are written after what operators report of real nodes: the first is a faulty program and no faulty device,
// the others need somebody.
func incidents() []incident {
	first := func(m *accel.Machine) *accel.Accelerator { return &m.Have["example-gpu"].Accelerators[0] }
	status := func(m *accel.Machine, s accel.Status) { m.Status = map[string]accel.Status{"example-gpu": s} }
	return []incident{
		{"a program that crashes over and over floods the log of the driver", func(minute int, m *accel.Machine) bool {
			if minute >= 5 {
				first(m).Faults = []accel.Fault{{Code: "31", Count: uint64(minute * 50), Last: clock(min(minute, 35))}}
			}
			return true
		}, map[int][]string{4: nil, 6: {"AcceleratorDriverErrors"}, 35: {"AcceleratorDriverErrors"}, 50: nil}},

		{"a device falls off the bus, and a reboot brings it back", func(minute int, m *accel.Machine) bool {
			if minute >= 5 && minute < 30 {
				first(m).Health = accel.Health{
					State: accel.Unhealthy, Reason: accel.DeviceFault, Action: accel.ActionReboot, Since: clock(5),
				}
				first(m).Faults = []accel.Fault{{Code: "79", Count: 1, Last: clock(5)}}
			}
			return minute < 30 || minute > 32
		}, map[int][]string{
			4: nil, 6: {"AcceleratorDriverErrors"}, 8: {"AcceleratorDriverErrors", "AcceleratorUnusable"},
			12: {"AcceleratorDriverErrors", "AcceleratorNeedsHands", "AcceleratorUnusable"},
			29: {"AcceleratorNeedsHands", "AcceleratorUnusable"}, 34: nil, 60: nil,
		}},

		{"a device leaves the bus at once and stays away", func(minute int, m *accel.Machine) bool {
			if minute >= 5 {
				first(m).Health = accel.Health{State: accel.Gone, Reason: accel.DeviceGone, Since: clock(5)}
			}
			return true
		}, map[int][]string{4: nil, 7: {"AcceleratorGone"}, 60: {"AcceleratorGone"}}},

		{"the driver does not build for a new kernel, until somebody installs another version", func(minute int, m *accel.Machine) bool {
			if minute >= 5 && minute < 50 {
				problem := accel.Problem{Reason: accel.BuildFailed, Message: "implicit declaration of function"}
				status(m, accel.Status{
					State: accel.DriverMissing, Since: clock(5), Next: accel.StepDriver,
					Blocked: &accel.Failure{Problem: problem, Since: clock(5)},
				})
			}
			return true
		}, map[int][]string{
			4: nil, 10: nil, 16: {"AcceldBlocked"}, 36: {"AcceldBlocked", "AcceldNotReady"}, 51: nil,
		}},

		{"a pull of the driver hangs, and goes on after an hour", func(minute int, m *accel.Machine) bool {
			if minute >= 5 && minute < 70 {
				status(m, accel.Status{State: accel.DriverMissing, Since: clock(5), Next: accel.StepDriver})
				have := m.Have["example-gpu"]
				have.Work = []accel.Progress{{
					Kind: "example-gpu", Stage: accel.StagePull, What: "registry.example/gpu:1", Done: 1, Total: 2, Since: clock(5),
					Moved: clock(min(minute, 7)),
				}}
				m.Have["example-gpu"] = have
			}
			return true
		}, map[int][]string{
			6: nil, 12: nil, 15: {"AcceldTransferStalled"}, 36: {"AcceldNotReady", "AcceldTransferStalled"}, 71: nil,
		}},

		{"a node goes down", func(minute int, _ *accel.Machine) bool {
			return minute < 5
		}, map[int][]string{4: nil, 9: nil, 11: {"AcceldDown"}, 60: {"AcceldDown"}}},
	}
}

// clock is a minute of an incident; promtool's clock begins at the epoch.
func clock(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }

// well is a node with two devices that compute.
func well(minute int) accel.Machine {
	device := func(id string) accel.Accelerator {
		return accel.Accelerator{
			ID: id, Health: accel.Health{State: accel.Healthy, Since: clock(0)},
			Metrics: map[string]float64{"accelerator_utilization_ratio": 0.5},
		}
	}
	return accel.Machine{
		Taken: clock(minute), Agent: accel.Agent{Version: "0", Started: clock(0), Node: "n1"},
		Want: accel.Want{
			Kubernetes: true, Labels: true,
			Kinds: map[string]*accel.Definition{"example-gpu": {Kind: "example-gpu", Title: "Example"}},
		},
		Have: map[string]accel.Have{"example-gpu": {
			Accelerators: []accel.Accelerator{device("0000:01:00.0"), device("0000:02:00.0")},
			Monitoring:   accel.Monitoring{Collected: clock(minute), Labelled: true},
		}},
		Status: map[string]accel.Status{"example-gpu": {State: accel.Ready, Since: clock(0)}},
	}
}

// record plays an incident and scrapes the agent's real page of metrics each minute: the values of each series, as
// promtool reads them.
func (i incident) record(t *testing.T, minutes int) map[string][]string {
	t.Helper()
	series := map[string][]string{}
	see := func(minute int, name, value string) {
		values := series[name]
		for len(values) < minute { // it was not there
			gone := "_"
			if len(values) > 0 && values[len(values)-1] != "_" && values[len(values)-1] != "stale" {
				gone = "stale"
			}
			values = append(values, gone)
		}
		series[name] = append(values, value)
	}
	for minute := range minutes {
		m := well(minute)
		up := i.at(minute, &m)
		if !up {
			see(minute, `up{job="acceld", instance="n1"}`, "0")
			continue
		}
		see(minute, `up{job="acceld", instance="n1"}`, "1")
		e := exporter.New(exporter.Options{
			Machine: func() accel.Machine { return m }, Now: func() time.Time { return clock(minute) },
			Holders: func() exporter.Holdings { return exporter.Holdings{Told: clock(minute)} },
		})
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			at := strings.LastIndex(line, " ")
			value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			name, labels, _ := strings.Cut(line[:at], "{")
			see(minute, name+`{job="acceld", instance="n1", `+strings.TrimSuffix(labels, "}")+"}",
				strconv.FormatFloat(value, 'f', -1, 64))
		}
	}
	for name, values := range series { // what is gone at the end does not stay
		if len(values) < minutes {
			series[name] = append(values, "stale")
		}
	}
	return series
}

// TestIncidents: of each incident, the alerts that should fire do, when they should, and no others; what clears by
// itself clears its alert.
func TestIncidents(t *testing.T) {
	const minutes = 90
	rules, err := filepath.Abs(filepath.Join(monitoring, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range incidents() {
		t.Run(i.name, func(t *testing.T) {
			series := i.record(t, minutes)
			var input, want []map[string]any
			for _, name := range slices.Sorted(maps.Keys(series)) {
				input = append(input, map[string]any{"series": name, "values": strings.Join(series[name], " ")})
			}
			for minute, alerts := range i.fires {
				samples := []map[string]any{}
				for _, a := range alerts {
					samples = append(samples, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", a), "value": 1})
				}
				want = append(want, map[string]any{
					"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": fmt.Sprintf("%dm", minute),
					"exp_samples": samples,
				})
			}
			text, err := yaml.Marshal(map[string]any{
				"rule_files": []string{rules}, "evaluation_interval": "1m",
				"tests": []any{map[string]any{"interval": "1m", "input_series": input, "promql_expr_test": want}},
			})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "incident.yaml")
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := promtool(t, "", "test", "rules", file); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
