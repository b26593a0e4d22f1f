package kinds

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/vendors/nvidia/pages"
)

// noCheck is what people read of a kind without a check.
const noCheck = "unchecked: its definition has no check"

// TestUncheckedEverywhere renders a kind with a check that has passed, one whose check has not passed yet, and one
// without a check. Nothing that leaves the process calls the last one proven.
func TestUncheckedEverywhere(t *testing.T) {
	const kind, label = "nvidia-gpu", "acceld.dev/driver-container-nvidia-gpu"
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		driver accel.DriverHave
		label  string
		says   map[string][]string // by page
		never  []string            // on no page
	}{
		"passed": {
			accel.DriverHave{Serves: true, Proven: at, Proof: "it computed"},
			"ready",
			map[string][]string{
				"/metrics": {
					`acceld_driver_unchecked{kind="nvidia-gpu"} 0`,
					`acceld_driver_proven_timestamp_seconds{kind="nvidia-gpu"} 1.7`,
				},
				"/metrics/gpu-operator": {
					`cuda_ready{node=""} 1`, `driver_ready{node=""} 1`, `driver_validation{node=""} 1`,
					`driver_validation_last_success_ts_seconds{`,
				},
				"/":           {"<dt>Proven</dt>", "(it computed)", `<li class="good"><b>Self-test <span aria-hidden="true">✓</span></b>done`},
				"/v1/machine": {`"proven": "2026-03-04T12:00:00Z"`},
			},
			[]string{`"unchecked"`, noCheck},
		},
		"not passed": {
			accel.DriverHave{Serves: true},
			"pending",
			map[string][]string{
				"/metrics": {`acceld_driver_unchecked{kind="nvidia-gpu"} 0`},
				"/metrics/gpu-operator": {
					`cuda_ready{node=""} 0`, `driver_ready{node=""} 0`, `driver_validation{node=""} 0`,
				},
				"/": {`aria-current="step"><b>Self-test <span aria-hidden="true">…</span></b>now`},
			},
			[]string{
				`"unchecked"`, noCheck, `"proven"`, "<dt>Proven</dt>", "proven_timestamp_seconds{",
				`driver_validation_last_success_ts_seconds{`,
			},
		},
		"without a check": {
			accel.DriverHave{Serves: true, Unchecked: true},
			"unchecked",
			map[string][]string{
				"/metrics": {`acceld_driver_unchecked{kind="nvidia-gpu"} 1`},
				"/metrics/gpu-operator": {
					`cuda_ready{node=""} 0`, `driver_ready{node=""} 1`, `driver_validation{node=""} 0`,
				},
				"/":           {"<dt>Proof</dt><dd>" + noCheck, `<li class="idle"><b>Self-test <span aria-hidden="true">–</span></b>unchecked`},
				"/v1/machine": {`"unchecked": true`, `"driver-container": "unchecked"`},
			},
			[]string{
				`"proven"`, "<dt>Proven</dt>", "proven_timestamp_seconds{", `driver_validation_last_success_ts_seconds{`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := accel.Machine{
				Taken: at, Facts: accel.Facts{Kernel: accel.Kernel{Release: "6.12.0"}},
				Want: accel.Want{Kinds: map[string]*accel.Definition{kind: definitions(t)[kind]}},
				Have: map[string]accel.Have{kind: {
					Accelerators: []accel.Accelerator{{ID: "0000:01:00.0", Health: accel.Health{State: accel.Healthy}}},
					Driver:       c.driver,
				}},
			}
			m.Status = map[string]accel.Status{kind: loop.Next(m, kind)}
			if got := kube.Labels(m)[label]; got != c.label {
				t.Errorf("label %q, want %q", got, c.label)
			}
			h := exporter.New(exporter.Options{
				Machine: func() accel.Machine { return m }, Now: func() time.Time { return at },
				Pages: []accel.MetricPage{pages.Operator()},
			}).Handler()
			for _, page := range []string{"/metrics", "/metrics/gpu-operator", "/", "/v1/machine"} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+page, nil))
				body := w.Body.String()
				for _, want := range c.says[page] {
					if !strings.Contains(body, want) {
						t.Errorf("%s: no %q in\n%s", page, want, body)
					}
				}
				for _, lie := range c.never {
					if strings.Contains(body, lie) {
						t.Errorf("%s says %q", page, lie)
					}
				}
			}
		})
	}
}
