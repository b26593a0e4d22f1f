package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/exporter/remote"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/docs"
	"github.com/acceld/acceld/vendors"
)

const monitoring = "../../packaging/monitoring"

// programs returns the folder of the programs, where they are asked for.
func programs(t *testing.T) string {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_TESTBED=1 is not set: Debian's Prometheus would be fetched")
	}
	dir, err := Programs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// promtool runs promtool with an input.
func promtool(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs(t), "promtool"), args...)
	cmd.Dir, cmd.Stdin = monitoring, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestRules: promtool takes the rules, their tests pass, and would not without the rules.
func TestRules(t *testing.T) {
	if out, err := promtool(t, "", "check", "rules", "rules.yaml"); err != nil {
		t.Errorf("check rules: %v\n%s", err, out)
	}
	if out, err := promtool(t, "", "test", "rules", "rules_test.yaml"); err != nil {
		t.Errorf("test rules: %v\n%s", err, out)
	}
	// The same tests with one alert that fires too early.
	dir := t.TempDir()
	for _, name := range []string{"rules.yaml", "rules_test.yaml"} {
		data, err := os.ReadFile(filepath.Join(monitoring, name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), "    for: 2m\n", "", 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := promtool(t, "", "test", "rules", filepath.Join(dir, "rules_test.yaml")); err == nil {
		t.Errorf("the tests of the rules pass whatever the rules say:\n%s", out)
	}
}

// TestMetricsHaveNoLint: promtool has nothing to say about the page with everything on it.
func TestMetricsHaveNoLint(t *testing.T) {
	n := newNode()
	w := httptest.NewRecorder()
	n.exporter.Handler().ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil))
	if out, err := promtool(t, w.Body.String(), "check", "metrics"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("check metrics: %v\n%s", err, out)
	}
	w = httptest.NewRecorder()
	replica(t).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if out, err := promtool(t, w.Body.String(), "check", "metrics"); err != nil || strings.TrimSpace(out) != "" ||
		!strings.Contains(w.Body.String(), "acceld_policy_nodes") {
		t.Errorf("check metrics of the controller: %v\n%s", err, out)
	}
	if _, err := promtool(t, "# TYPE badName counter\nbadName 1\n", "check", "metrics"); err == nil {
		t.Error("promtool has nothing to say about anything")
	}
}

// node is an agent's endpoint over a machine with everything, whose pods come and go.
type node struct {
	exporter *exporter.Exporter
	mu       sync.Mutex
	holdings exporter.Holdings
}

func newNode() *node {
	n := &node{}
	m := machine()
	n.exporter = exporter.New(exporter.Options{
		Machine: func() accel.Machine {
			now := m
			now.Taken = time.Now()
			return now
		}, Process: true, Pages: vendors.MetricPages(),
		Holders: func() exporter.Holdings { n.mu.Lock(); defer n.mu.Unlock(); return n.holdings },
	})
	n.exporter.Observe("example-gpu", accel.DriverMissing, accel.Ready, time.Second)
	n.exporter.ObserveFailure("example-gpu", accel.StepDriver, accel.BuildFailed)
	return n
}

// gives lets a pod hold an accelerator, or nobody with an empty name.
func (n *node) gives(id, pod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holdings = exporter.Holdings{
		Told: time.Now(), By: map[string][]exporter.Holder{},
		Revision: n.holdings.Revision + 1,
	}
	if pod != "" {
		n.holdings.By[id] = []exporter.Holder{{
			Namespace: "ml", Pod: pod, UID: "uid-of-" + pod, Container: "main",
			Resource: "example.com/gpu",
		}}
	}
}

// machine has a device that is well, one that is not, one that is gone and one that is withheld, and every reading.
func machine() accel.Machine {
	began := time.Now().Add(-time.Hour)
	metrics := map[string]float64{}
	for i, name := range exporter.MetricNames() {
		metrics[name] = float64(i + 1)
	}
	fault := accel.Fault{Code: "79", Title: "it does not answer", Count: 2, Last: began}
	return accel.Machine{
		Agent: accel.Agent{
			Version: "0", Started: began, Node: "n1",
			Problems: []accel.PartProblem{{Part: "local port", Problem: accel.Problem{Reason: accel.PermissionDenied}}},
		},
		Facts: accel.Facts{PCI: []accel.PCIDevice{{
			Address: "0000:01:00.0",
			Link:    accel.Link{SpeedGTs: 8, MaxSpeedGTs: 16, Width: 8, MaxWidth: 16},
			SRIOV:   accel.SRIOV{TotalVFs: 8, NumVFs: 2},
		}}, Maintenance: []accel.Maintenance{{Condition: accel.Drained}}},
		Want: accel.Want{
			Kubernetes: true, Labels: true,
			Kinds: map[string]*accel.Definition{"example-gpu": {Kind: "example-gpu", Title: "Example"}},
		},
		Have: map[string]accel.Have{"example-gpu": {
			Accelerators: []accel.Accelerator{
				{
					ID: "0000:01:00.0", Health: accel.Health{State: accel.Healthy, Since: began}, Metrics: metrics,
					Faults:      []accel.Fault{fault},
					Settings:    []accel.SettingHave{{Name: "powerLimitWatts", Want: "250", State: accel.SettingApplied, Drifts: 1}},
					Handover:    &accel.HandoverHave{State: accel.HandoverUsed, Cleaned: 1, Seconds: 1, Killed: 1},
					Unrequested: &accel.UnrequestedHave{Count: 1},
					Use: &accel.UseHave{Users: []accel.User{{
						PodUID: "u", Namespace: "ml", Pod: "train-0", Container: "main", NamedContainer: true,
						MemoryBytes: accel.Known[int64](1), EngineSeconds: map[string]float64{"compute": 1},
					}}},
				},
				{ID: "0000:02:00.0", Health: accel.Health{
					State: accel.Unhealthy, Reason: accel.DeviceFault,
					Action: accel.ActionReboot, Since: began,
				}, Repair: &accel.RepairHave{State: accel.RepairWaits, Attempts: 1}},
				{ID: "0000:03:00.0", Health: accel.Health{State: accel.Gone, Reason: accel.DeviceGone, Since: began}},
				{
					ID: "0000:04:00.0", Health: accel.Health{State: accel.Healthy, Since: began},
					Withheld: &accel.Withheld{Reason: accel.NotProven, By: accel.ByProof},
					Switched: &accel.Switched{Use: accel.UseVFIO},
				},
			},
			Driver: accel.DriverHave{
				Version: "1", Proven: began, Next: map[string]accel.Readiness{"6.1": {}},
				Upgrade: &accel.Upgrade{
					Phase:   accel.UpgradeWaiting,
					Failure: &accel.Failure{Problem: accel.Problem{Reason: accel.InUse}},
				},
			},
			Work: []accel.Progress{{
				Kind: "example-gpu", Stage: accel.StagePull, What: "registry.example/gpu:1", Done: 1, Total: 2, Since: began,
			}},
			Runtime:    accel.RuntimeHave{LibraryMissing: accel.Problemf(accel.LibraryMissing, "no libgpu.so.1")},
			Plugin:     accel.PluginHave{Registered: true, Registrations: 1, Allocatable: accel.Known(1)},
			Monitoring: accel.Monitoring{Collected: time.Now(), Labelled: true},
		}},
		Status: map[string]accel.Status{"example-gpu": {
			State: accel.Ready, Since: began, Blocked: &accel.Failure{
				Problem: accel.Problem{Reason: accel.InUse},
				Since:   began,
			},
			Took: map[accel.State]time.Duration{accel.DriverMissing: time.Second},
		}},
	}
}

// replica is the page of a controller that has every metric which its packages describe, each with a value.
func replica(t *testing.T) http.Handler {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, m := range docs.ControllerMetrics() {
		values := slices.Repeat([]string{"x"}, len(m.Labels))
		var c prometheus.Collector
		switch m.Type {
		case "counter":
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
			v.WithLabelValues(values...).Inc()
			c = v
		case "histogram":
			v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help}, m.Labels)
			v.WithLabelValues(values...).Observe(1)
			c = v
		default:
			v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
			v.WithLabelValues(values...).Set(1)
			c = v
		}
		registry.MustRegister(c)
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// token is what Prometheus proves itself with.
const token = "a scraper's token"

// serve serves the pages of metrics as the agent does for other machines, and returns the address.
func (n *node) serve(t *testing.T) string {
	t.Helper()
	files, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	gate, problem := remote.New(remote.Options{Files: files, Name: "n1", Review: func(_ context.Context, got,
		path string,
	) (known, allowed bool, err error) {
		return got == token, strings.HasPrefix(path, "/metrics"), nil
	}})
	if problem != nil {
		t.Fatal(problem)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	endpoint := agent.NewRemoteEndpoint(gate.Handler(n.exporter.Metrics()),
		func(context.Context) (net.Listener, error) { return l, nil }, gate.TLS(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- endpoint.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return address
}

// start starts Prometheus on the node's endpoint, and on a controller's, and returns its own address.
func start(t *testing.T, target string) string {
	t.Helper()
	dir := t.TempDir()
	controller := httptest.NewServer(replica(t))
	t.Cleanup(controller.Close)
	rules, err := filepath.Abs(filepath.Join(monitoring, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	job := func(name, path string) string {
		return fmt.Sprintf(`- job_name: %s
  scheme: https
  metrics_path: %s
  honor_labels: true
  authorization: {credentials: %q}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: [%q], labels: {instance: n1}}]
`, name, path, token, target)
	}
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [" + rules + "]\nscrape_configs:\n" +
		job("acceld", "/metrics") + job("others", "/metrics/dcgm") + job("operator", "/metrics/gpu-operator") +
		strings.Replace(job("stranger", "/metrics"), token, "somebody else's token", 1) +
		fmt.Sprintf("- job_name: acceld-controller\n  static_configs: [{targets: [%q], labels: {instance: c1}}]\n",
			controller.Listener.Addr())
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	cmd := exec.Command(filepath.Join(programs(t), "prometheus"), "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", log.String())
		}
	})
	return address
}

// series asks Prometheus and returns what it answers, as label sets.
func series(t *testing.T, address, expr string) ([]map[string]string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/query?query="+
		url.QueryEscape(expr), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%w: %s", err, body)
	}
	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}
	var all []map[string]string
	for _, r := range answer.Data.Result {
		all = append(all, r.Metric)
	}
	return all, nil
}

// eventually waits until an expression answers as it should.
func eventually(t *testing.T, address, expr string, right func([]map[string]string) bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		all, err := series(t, address, expr)
		if err == nil && right(all) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s: %v, %v", expr, all, err)
		}
	}
}

func some(all []map[string]string) bool { return len(all) > 0 }

// TestScrape: the real Prometheus gets every page by TLS with its token, and a stranger gets none; the labels of pods
// follow the pods; every expression of rules and dashboard is one that it can answer, and none about a reading is
// without an answer.
func TestScrape(t *testing.T) {
	n := newNode()
	n.gives("0000:01:00.0", "first")
	address := start(t, n.serve(t))
	for _, job := range []string{"acceld", "others", "operator", "acceld-controller"} {
		eventually(t, address, fmt.Sprintf(`up{job=%q} == 1`, job), some)
	}
	eventually(t, address, `up{job="stranger"} == 0`, some)
	holder := func(pod string) func([]map[string]string) bool {
		return func(all []map[string]string) bool {
			return len(all) == 1 && all[0]["pod"] == pod && all[0]["pod_uid"] == "uid-of-"+pod &&
				all[0]["namespace"] == "ml"
		}
	}
	for _, pod := range []string{"first", "second", "third"} {
		n.gives("0000:01:00.0", pod)
		eventually(t, address, "accelerator_allocation_info", holder(pod))
		eventually(t, address, `DCGM_FI_DEV_GPU_TEMP{gpu="0"}`, holder(pod))
		eventually(t, address, "namespace_pod:accelerator_utilization_ratio:avg", func(all []map[string]string) bool {
			return len(all) == 1 && all[0]["pod"] == pod
		})
	}
	// The names of others are not bent to OpenMetrics, which Prometheus asks for first.
	eventually(t, address, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", some)
	eventually(t, address, "gpu_operator_node_driver_ready", some)
	for _, s := range exporter.Table() {
		for _, m := range s.Metrics {
			if all, err := series(t, address, m.Name); err != nil || !some(all) {
				t.Errorf("%s: %v, %v", m.Name, all, err)
			}
		}
	}
	for where, exprs := range map[string][]string{"the dashboard": dashboard(t), "the rules": rules(t)} {
		for _, expr := range exprs {
			all, err := series(t, address, expr)
			// A rate needs a change, and what a comparison finds may be nothing.
			none := regexp.MustCompile(`increase\(|rate\(|==|<`).MatchString(expr)
			if err != nil || where == "the dashboard" && !none && !some(all) {
				t.Errorf("%s asks for %s: %v, %v", where, expr, all, err)
			}
		}
	}
	n.gives("", "")
	eventually(t, address, "count(accelerator_up) unless count(accelerator_allocation_info)", some)
}

// dashboard returns the expressions of the dashboard.
func dashboard(t *testing.T) []string {
	type panel struct {
		Targets []struct{ Expr string }
		Panels  []panel
	}
	var board panel
	data, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	if err == nil {
		err = json.Unmarshal(data, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	var exprs []string
	var add func(p panel)
	add = func(p panel) {
		for _, target := range p.Targets {
			exprs = append(exprs, strings.NewReplacer("$node", ".*", "$accelerator", ".*", "$__rate_interval",
				"1m").Replace(target.Expr))
		}
		for _, inside := range p.Panels {
			add(inside)
		}
	}
	add(board)
	return exprs
}

// rules returns the expressions of the rules.
func rules(t *testing.T) []string {
	var file struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	data, err := os.ReadFile(filepath.Join(monitoring, "rules.yaml"))
	if err == nil {
		err = yaml.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var exprs []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			exprs = append(exprs, r.Expr)
		}
	}
	return slices.Compact(exprs)
}
