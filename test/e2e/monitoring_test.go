package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/prometheus"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// monitored is the configuration of an agent that others may scrape.
const monitored = `
endpoint:
  compatible: [dcgm, gpu-operator]
  remote: {listen: "0.0.0.0:9481", tokens: true}
`

// scrapes configures a Prometheus on the node that scrapes the agent locally and over TLS, at the given interval.
const scrapes = `
global: {scrape_interval: %[1]s, evaluation_interval: %[1]s}
rule_files: [/etc/prometheus/rules.yaml]
scrape_configs:
- job_name: acceld
  scheme: https
  honor_labels: true
  authorization: {credentials_file: /etc/prometheus/token}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["127.0.0.1:9481"], labels: {instance: bed}}]
- job_name: others
  scheme: https
  metrics_path: /metrics/dcgm
  honor_labels: true
  authorization: {credentials_file: /etc/prometheus/token}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["127.0.0.1:9481"], labels: {instance: bed}}]
- job_name: stranger
  scheme: https
  authorization: {credentials_file: /etc/prometheus/weak}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["127.0.0.1:9481"]}]
- job_name: local
  static_configs: [{targets: ["127.0.0.1:9480"]}]
`

// TestMonitoring scrapes the agent with Debian's Prometheus, by tokens that the real API server knows, while pods come
// and go through the device plugin and by claims. Its parts build on each other.
func TestMonitoring(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"+monitored))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 5*time.Minute)
	startPrometheus(t, n, s, "1s")
	inOrder(t, n, image,
		part{"who may scrape", whoScrapes},
		part{"promtool has nothing to say", promtoolAgrees},
		part{"a pod's life", podsFollowed},
		part{"the kubelet restarts under a pod", podOverKubelet},
		part{"a pod's life by a claim", claimsFollowed},
	)
}

// startPrometheus installs Prometheus in the guest with the tokens of two accounts, and starts it. Every is the scrape
// interval, such as "1s".
func startPrometheus(t *testing.T, n *bed.Node, s *stage.Stage, every string) {
	t.Helper()
	ctx := stage.Within(t, 10*time.Minute)
	dir, err := prometheus.Programs(ctx)
	stage.Check(t, err)
	for _, p := range []string{"prometheus", "promtool"} {
		stage.Check(t, n.Put(ctx, filepath.Join(dir, p), "/usr/bin/"+p, 0o755))
	}
	apply(t, n, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: monitoring}\n"))
	for _, account := range []string{"prometheus-k8s", "stranger"} {
		apply(t, n,
			fmt.Appendf(nil, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: monitoring}\n",
				account))
	}
	apply(t, n, []byte(readFile(t, s.File("packaging/monitoring/rbac.yaml"))))
	for file, account := range map[string]string{"token": "prometheus-k8s", "weak": "stranger"} {
		token, err := n.Kubectl(ctx, nil, "-n", "monitoring", "create", "token", account)
		stage.Check(t, err)
		stage.Check(t, n.WriteFile(ctx, "/etc/prometheus/"+file, []byte(strings.TrimSpace(token)), 0o600))
	}
	stage.Check(t, n.Put(ctx, s.File("packaging/monitoring/rules.yaml"), "/etc/prometheus/rules.yaml", 0o644))
	stage.Check(t, n.WriteFile(ctx, "/etc/prometheus/prometheus.yml", fmt.Appendf(nil, scrapes, every), 0o644))
	sh(t, n.Guest, `promtool check config /etc/prometheus/prometheus.yml
systemd-run --unit=prometheus prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/var/tmp/prometheus --web.listen-address=127.0.0.1:9090`)
}

// query returns the label sets that Prometheus answers with; nil while it does not answer.
func query(t *testing.T, n *bed.Node, expr string) []map[string]string {
	t.Helper()
	out := sh(t, n.Guest, `curl -s --get --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query || true`, expr)
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil // it is starting
	}
	var all []map[string]string
	for _, r := range answer.Data.Result {
		all = append(all, r.Metric)
	}
	return all
}

// answers waits until Prometheus answers as it should.
func answers(t *testing.T, n *bed.Node, d time.Duration, expr string, right func([]map[string]string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for {
		all := query(t, n, expr)
		if right(all) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v\nwhat is scraped: %v\n%s", expr, all, query(t, n, "up"),
				sh(t, n.Guest, "journalctl -u prometheus | tail -20"))
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func some(all []map[string]string) bool { return len(all) > 0 }
func none(all []map[string]string) bool { return len(all) == 0 }

func whoScrapes(t *testing.T, n *bed.Node, _ string) {
	for _, expr := range []string{
		`up{job="acceld"} == 1`, `up{job="others"} == 1`, `up{job="local"} == 1`,
		`up{job="stranger"} == 0`,
	} {
		answers(t, n, soon, expr, some)
	}
	for _, c := range []struct{ name, script, want string }{
		{"no token", "curl -ks -o /dev/null -w '%{http_code}' https://127.0.0.1:9481/metrics", "401"},
		{
			"a made-up token",
			"curl -ks -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer x' https://127.0.0.1:9481/metrics",
			"401",
		},
		{
			"an account without the right",
			"curl -ks -o /dev/null -w '%{http_code}' -H \"Authorization: Bearer $(cat /etc/prometheus/weak)\" https://127.0.0.1:9481/metrics",
			"403",
		},
		{
			"the scraper's account",
			"curl -ks -o /dev/null -w '%{http_code}' -H \"Authorization: Bearer $(cat /etc/prometheus/token)\" https://127.0.0.1:9481/metrics",
			"200",
		},
		{
			"another page",
			"curl -ks -o /dev/null -w '%{http_code}' -H \"Authorization: Bearer $(cat /etc/prometheus/token)\" https://127.0.0.1:9481/v1/machine",
			"403",
		},
		{
			"writing",
			"curl -ks -o /dev/null -w '%{http_code}' -X POST -H \"Authorization: Bearer $(cat /etc/prometheus/token)\" https://127.0.0.1:9481/metrics",
			"405",
		},
		{"without TLS", "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9481/metrics", "400"},
	} {
		if got := sh(t, n.Guest, c.script); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func promtoolAgrees(t *testing.T, n *bed.Node, _ string) {
	if out := sh(t, n.Guest, "curl -fsS http://127.0.0.1:9480/metrics | promtool check metrics 2>&1"); out != "" {
		t.Errorf("promtool: %s", out)
	}
	if out := sh(t, n.Guest,
		"curl -fsS -H 'Accept: application/openmetrics-text; version=1.0.0' http://127.0.0.1:9480/metrics | tail -1"); out != "# EOF" {
		t.Errorf("OpenMetrics ends in %q", out)
	}
	for _, expr := range []string{
		"accelerator_temperature_celsius", "accelerator_gpu_utilization", "DCGM_FI_DEV_GPU_TEMP",
		"DCGM_FI_DEV_GPU_UTIL",
		`acceld_kind_state{kind="qemu-edu", state="ready"} == 1`,
	} {
		answers(t, n, soon, expr, some)
	}
	answers(t, n, soon, `ALERTS{alertstate="firing"}`, none)
}

// heldBy waits until exactly this pod is shown to hold devices, with its UID, on both pages.
func heldBy(t *testing.T, n *bed.Node, pod string, devices int) {
	t.Helper()
	p, err := clientset.Of(n).CoreV1().Pods("default").Get(stage.Within(t, soon), pod, metav1.GetOptions{})
	stage.Check(t, err)
	right := func(all []map[string]string) bool {
		return len(all) == devices && !slices.ContainsFunc(all, func(m map[string]string) bool {
			return m["pod"] != pod || m["namespace"] != "default" || m["pod_uid"] != string(p.UID) ||
				m["container"] != "compute"
		})
	}
	answers(t, n, soon, `accelerator_allocation_info{job="acceld"}`, right)
	answers(t, n, soon, `DCGM_FI_DEV_GPU_TEMP{pod!=""}`, right)
}

// oneSeries fails when a pod has had more than one series for each device: its identity must not change.
func oneSeries(t *testing.T, n *bed.Node, pod string, devices int) {
	t.Helper()
	all := query(t, n, fmt.Sprintf(`count_over_time(accelerator_allocation_info{job="acceld", pod=%q}[1h])`, pod))
	if len(all) != devices {
		t.Errorf("the pod has had these series, want %d: %v", devices, all)
	}
}

func podsFollowed(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("held", image, 2, "-expect", "2", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "held", corev1.PodRunning))
	timed(t, "pod running -> its name on the series", func() { heldBy(t, n, "held", 2) })
	oneSeries(t, n, "held", 2)
	remove(t, n, "held")
	timed(t, "pod deleted -> its name on no series", func() {
		answers(t, n, soon, "accelerator_allocation_info", none)
	})
	stage.Check(t, n.Apply(ctx, stage.Pod("short", image, 1, "-expect", "1", "-hold", "20s")))
	stage.Check(t, n.WaitPod(ctx, "default", "short", corev1.PodRunning))
	heldBy(t, n, "short", 1)
	stage.Check(t, n.WaitPod(ctx, "default", "short", corev1.PodSucceeded))
	timed(t, "pod completed -> its name on no series", func() {
		answers(t, n, soon, "accelerator_allocation_info", none)
	})
	remove(t, n, "short")
}

func podOverKubelet(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("over", image, 1, "-expect", "1", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "over", corev1.PodRunning))
	heldBy(t, n, "over", 1)
	since := time.Now()
	for range 3 {
		stage.Check(t, n.RestartKubelet(ctx))
		reaches(t, n.Guest, accel.Ready, soon)
	}
	time.Sleep(40 * time.Second) // a kubelet that has come back is believed at once only about who is there
	heldBy(t, n, "over", 1)
	oneSeries(t, n, "over", 1)
	// On each page that was scraped since then the device had its holder.
	gaps := query(t, n, strings.ReplaceAll(
		`count_over_time(accelerator_up{job="acceld"}[SINCE]) - on (accelerator_id) count_over_time(accelerator_allocation_info{job="acceld", pod="over"}[SINCE]) > 0`,
		"SINCE", fmt.Sprintf("%ds", int(time.Since(since).Seconds()))))
	if len(gaps) > 0 {
		t.Errorf("the series had gaps: %v", gaps)
	}
	remove(t, n, "over")
	answers(t, n, soon, "accelerator_allocation_info", none)
}

func claimsFollowed(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(byClaims+monitored), 0o644))
	offers(t, n, 2)
	apply(t, n, stage.Claim("claims"), stage.ClaimPod("claims", image, "resourceClaimName: claims", "-expect", "1",
		"-hold", "2h"))
	stage.Check(t, n.WaitPod(ctx, "default", "claims", corev1.PodRunning))
	timed(t, "pod with a claim running -> its name on the series", func() { heldBy(t, n, "claims", 1) })
	answers(t, n, soon, fmt.Sprintf(`accelerator_allocation_info{job="acceld", claim="claims", resource=%q}`,
		stage.Class), some)
	oneSeries(t, n, "claims", 1)
	removeClaims(t, n, "claims")
	answers(t, n, soon, "accelerator_allocation_info", none)
}
