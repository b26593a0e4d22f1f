package prometheus

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/cluster"
	"github.com/acceld/acceld/test/vm/parts"
	"github.com/acceld/acceld/test/vm/process"
	"github.com/acceld/acceld/test/vm/progress"
)

// askedFor is what a user of the operator writes for a Prometheus. It runs beside the cluster, so it is told where the
// API server is.
const askedFor = `apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus-k8s, namespace: monitoring}
---
# What the operator's own examples give a Prometheus.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus-k8s}
rules:
- apiGroups: [""]
  resources: [services, endpoints, pods, nodes]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus-k8s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus-k8s}
subjects:
- {kind: ServiceAccount, name: prometheus-k8s, namespace: monitoring}
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: k8s, namespace: monitoring}
spec:
  version: v3.12.0
  replicas: 1
  scrapeInterval: 1s
  evaluationInterval: 1s
  serviceAccountName: prometheus-k8s
  serviceMonitorSelector: {}
  serviceMonitorNamespaceSelector: {}
  podMonitorSelector: {}
  podMonitorNamespaceSelector: {}
  ruleSelector: {}
  ruleNamespaceSelector: {}
  apiserverConfig:
    host: HOST
    authorization: {credentialsFile: /var/run/secrets/kubernetes.io/serviceaccount/token}
    tlsConfig: {caFile: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}
`

// operated is a cluster with the operator, and what stands in it. The control plane, the operator, its reloader of
// configurations, Prometheus and the agent are the real programs, as processes of this machine; there is no kubelet, so
// the test says of the DaemonSet's pod that it runs, and puts files where the kubelet would. The agent's host is a root
// with nothing in it. Prometheus is not Debian's, which finds nothing by Kubernetes: it is built without.
type operated struct {
	t       *testing.T
	dir     string
	set     parts.Set
	plane   *cluster.Plane
	starter *process.Starter
	address string // of this machine, as a pod in the host's network has it
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (o *operated) kubectl(in string, args ...string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), o.set.Path("kubectl"),
		append([]string{"--kubeconfig=" + o.plane.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("kubectl %v: %v\n%s%s", args, err, out, said.String())
	}
	return string(out)
}

// until waits for something that several programs have a part in, on a machine that may be busy.
func (o *operated) until(what string, is func() bool) {
	o.t.Helper()
	for began := time.Now(); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Since(began) > 3*time.Minute {
			o.t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// begin starts a program until the end of the test, and shows what it said when that has failed.
func (o *operated) begin(name string, cmd *exec.Cmd) {
	o.t.Helper()
	log, err := os.Create(filepath.Join(o.dir, name+".log"))
	must(o.t, err)
	defer log.Close()
	child, err := o.starter.Start(name, log, cmd)
	must(o.t, err)
	o.t.Cleanup(func() {
		child.Stop(5 * time.Second)
		if text, err := os.ReadFile(log.Name()); err == nil && o.t.Failed() {
			o.t.Logf("%s said: …%s", name, text[max(0, len(text)-4000):])
		}
	})
}

// token is one of an account, with a file for who reads it there.
func (o *operated) token(namespace, account string, more ...string) string {
	o.t.Helper()
	return strings.TrimSpace(o.kubectl("",
		append([]string{"-n", namespace, "create", "token", account, "--duration=1h"}, more...)...))
}

// newOperated starts the control plane and the operator, with what the operator's own bundle gives it and no more.
func newOperated(t *testing.T) *operated {
	t.Helper()
	if os.Getenv("ACCELD_TESTBED") != "1" {
		t.Skip("ACCELD_TESTBED=1 is not set: a control plane and the Prometheus operator would be built")
	}
	o := &operated{t: t, dir: t.TempDir()}
	c, err := cache.Open(nil)
	must(t, err)
	o.set, err = parts.Build(t.Context(), c, progress.New(os.Stderr),
		append(parts.Cluster(), parts.PrometheusOperator)...)
	must(t, err)
	all, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			o.address = n.IP.String()
		}
	}
	if o.address == "" {
		t.Fatal("this host has no address of IPv4 but the loopback's, which no EndpointSlice takes")
	}
	o.plane, err = cluster.Here(t.Context(), o.dir, cluster.Config{Program: o.set.Path})
	must(t, err)
	t.Cleanup(o.plane.Stop)
	o.starter, err = process.NewStarter(filepath.Join(o.dir, "beside"))
	must(t, err)
	module, err := Operator(t.Context())
	must(t, err)
	o.kubectl("", "apply", "--server-side", "-f", filepath.Join(module, "bundle.yaml"))
	o.kubectl("", "wait", "--for=condition=Established", "crd", "--all", "--timeout=2m")
	config := filepath.Join(o.dir, "operator.kubeconfig")
	must(t, cluster.WriteKubeconfig(config, o.plane.REST(), o.token("default", "prometheus-operator")))
	ports, err := cluster.FreePorts(1)
	must(t, err)
	operator := exec.Command(o.set.Path("operator"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", ports[0]))
	operator.Env = append(os.Environ(), "KUBECONFIG="+config)
	o.begin("operator", operator)
	return o
}

// agent starts the real agent for the pod that the DaemonSet has, with that pod's own token.
func (o *operated) agent(root string) {
	o.t.Helper()
	client, err := kubernetes.NewForConfig(o.plane.REST())
	must(o.t, err)
	o.kubectl(`{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {}}`, "apply", "-f", "-")
	o.kubectl("", "patch", "node", "n1", "--subresource=status", "-p",
		`{"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}`)
	o.kubectl("", "apply", "-k", filepath.Join(root, "packaging/manifests"))
	var pod corev1.Pod
	o.until("the DaemonSet's pod is bound to the node", func() bool {
		pods, err := client.CoreV1().Pods("acceld-system").List(o.t.Context(),
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=acceld"})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].Spec.NodeName == "" {
			return false
		}
		pod = pods.Items[0]
		return true
	})
	o.kubectl("", "-n", pod.Namespace, "patch", "pod", pod.Name, "--subresource=status", "-p", fmt.Sprintf(
		`{"status": {"phase": "Running", "hostIP": %[1]q, "podIP": %[1]q, "podIPs": [{"ip": %[1]q}], "conditions": [{"type": "Ready", "status": "True"}]}}`,
		o.address))
	token := o.token(pod.Namespace, "acceld", "--bound-object-kind=Pod", "--bound-object-name="+pod.Name,
		"--bound-object-uid="+string(pod.UID))
	host := filepath.Join(o.dir, "host")
	for _, dir := range strings.Fields("etc proc sys/bus/pci/devices run var/lib usr/bin dev lib/modules") {
		must(o.t, os.MkdirAll(filepath.Join(host, dir), 0o755))
	}
	api := o.plane.REST()
	must(o.t, rest.LoadTLSFiles(api))
	api.CAFile = "" // which is not in that root
	must(o.t, cluster.WriteKubeconfig(filepath.Join(host, "etc/kubeconfig"), api, token))
	ports, err := cluster.FreePorts(1)
	must(o.t, err)
	must(o.t, os.WriteFile(filepath.Join(host, "etc/acceld.yaml"), fmt.Appendf(nil,
		"node: n1\nkubernetes: {kubeconfig: /etc/kubeconfig}\nendpoint: {listen: \"127.0.0.1:%d\", remote: {listen: \"%s:9481\", tokens: true}}\n",
		ports[0], o.address), 0o600))
	program := filepath.Join(host, "usr/bin/acceld")
	build := exec.CommandContext(o.t.Context(), "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o",
		program, "./cmd/acceld")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		o.t.Fatalf("%v\n%s", err, out)
	}
	const enter = `mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/acceld run --config /etc/acceld.yaml`
	o.begin("agent", exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, host))
}

// mounts writes what the operator has made for its Prometheus where a kubelet would have put it, below dir, and tells
// whether it is there.
func (o *operated) mounts(dir string) bool {
	o.t.Helper()
	client, err := kubernetes.NewForConfig(o.plane.REST())
	must(o.t, err)
	secret, err := client.CoreV1().Secrets("monitoring").Get(o.t.Context(), "prometheus-k8s", metav1.GetOptions{})
	if err != nil {
		return false
	}
	rules, err := client.CoreV1().ConfigMaps("monitoring").Get(o.t.Context(), "prometheus-k8s-rulefiles-0",
		metav1.GetOptions{})
	if err != nil {
		return false
	}
	api := o.plane.REST()
	must(o.t, rest.LoadTLSFiles(api))
	files := map[string]string{
		"run/secrets/kubernetes.io/serviceaccount/token":  o.token("monitoring", "prometheus-k8s"),
		"run/secrets/kubernetes.io/serviceaccount/ca.crt": string(api.CAData),
		"etc/prometheus/config_out/.keep":                 "",
	}
	for name, data := range secret.Data {
		files["etc/prometheus/config/"+name] = string(data)
	}
	for name, data := range rules.Data {
		files["etc/prometheus/rules/prometheus-k8s-rulefiles-0/"+name] = data
	}
	for name, data := range files {
		must(o.t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(o.t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	return len(secret.Data) > 0 && len(rules.Data) > 0
}

// within is a program that sees etc and run of dir as its own.
func within(dir string, argv ...string) *exec.Cmd {
	const enter = `mount --bind "$0/etc" /etc && mount --bind "$0/run" /run && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", enter, dir}, argv...)...)
	// As the operator's StatefulSet has them.
	cmd.Env = append(os.Environ(), "POD_NAME=prometheus-k8s-0", "SHARD=0")
	return cmd
}

// reload has the operator's reloader make the file that Prometheus reads of what is mounted in dir, and returns it.
func (o *operated) reload(dir string) string {
	o.t.Helper()
	const from, to = "/etc/prometheus/config/prometheus.yaml.gz", "/etc/prometheus/config_out/prometheus.env.yaml"
	if out, err := within(dir, o.set.Path("prometheus-config-reloader"), "--watch-interval=0", "--config-file="+from,
		"--config-envsubst-file="+to).CombinedOutput(); err != nil {
		o.t.Fatalf("the reloader: %v\n%s", err, out)
	}
	if out, err := within(dir, o.set.Path("promtool"), "check", "config", to).CombinedOutput(); err != nil {
		o.t.Fatalf("promtool: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, to))
	must(o.t, err)
	return string(text)
}

// prometheus starts Prometheus on what is in dir and returns its address.
func (o *operated) prometheus(name, dir string) string {
	o.t.Helper()
	ports, err := cluster.FreePorts(1)
	must(o.t, err)
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	o.begin(name, within(dir, o.set.Path("prometheus"), "--config.file=/etc/prometheus/config_out/prometheus.env.yaml",
		"--storage.tsdb.path="+filepath.Join(o.dir, name), "--web.listen-address="+address))
	return address
}

// TestOperator: the monitors and the rules are what the Prometheus operator's own definitions take; the configuration
// that the real operator makes of them is one that promtool and Prometheus take; with it Prometheus finds the agent
// through the API server, proves itself with the token of its account, and has the alerts.
func TestOperator(t *testing.T) {
	o := newOperated(t)
	root, err := parts.ModuleRoot(t.Context())
	must(t, err)
	o.kubectl(strings.Replace(askedFor, "HOST", o.plane.REST().Host, 1), "apply", "-f", "-")
	o.agent(root)
	o.kubectl("", "apply", "--validate=strict", "-k", filepath.Join(root, "packaging/monitoring"))

	const byService, byPod = "serviceMonitor/acceld-system/acceld/0", "podMonitor/acceld-system/acceld/0"
	made := func(job string) (dir, config string) {
		dir = filepath.Join(o.dir, strings.ReplaceAll(job, "/", "-"))
		o.until("the operator has made a configuration with "+job, func() bool {
			if !o.mounts(dir) {
				return false
			}
			config = o.reload(dir)
			return strings.Contains(config, "job_name: "+job+"\n")
		})
		return dir, config
	}
	dir, config := made(byService)
	if !strings.Contains(config, "job_name: podMonitor/acceld-system/acceld-controller/0\n") {
		t.Errorf("the controller's monitor is not in the configuration:\n%s", config)
	}
	address := o.prometheus("prometheus", dir)
	scraped(t, address, byService)
	alerts(t, address)

	// The other way to find the agents, in its place.
	o.kubectl("", "-n", "acceld-system", "delete", "servicemonitor/acceld", "service/acceld-metrics")
	o.kubectl(
		"{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: prometheus-token, namespace: acceld-system, annotations: {kubernetes.io/service-account.name: prometheus-k8s}}}",
		"apply", "-f", "-")
	o.kubectl(
		fmt.Sprintf(
			"{apiVersion: v1, kind: Secret, metadata: {name: prometheus-token, namespace: acceld-system}, stringData: {token: %q}}",
			o.token("monitoring", "prometheus-k8s")), "apply", "-f", "-")
	o.kubectl("", "apply", "--validate=strict", "-f", filepath.Join(root, "packaging/monitoring/podmonitor.yaml"))
	dir, config = made(byPod)
	if strings.Contains(config, byService) {
		t.Error("the ServiceMonitor that was deleted is in the configuration")
	}
	scraped(t, o.prometheus("prometheus-by-pod", dir), byPod)
}

// scraped waits until Prometheus has the agent's numbers by a job, as those of the node.
func scraped(t *testing.T, address, pool string) {
	t.Helper()
	eventually(t, address, `up{job="acceld"} == 1`, func(all []map[string]string) bool {
		return len(all) == 1 && all[0]["instance"] == "n1" && all[0]["pod"] == "" && all[0]["namespace"] == ""
	})
	eventually(t, address, `acceld_build_info{job="acceld", instance="n1"}`, some)
	var answer struct {
		Data struct {
			ActiveTargets []struct{ ScrapePool, ScrapeURL, Health, LastError string }
		}
	}
	get(t, "http://"+address+"/api/v1/targets", &answer)
	if !slices.ContainsFunc(answer.Data.ActiveTargets,
		func(x struct{ ScrapePool, ScrapeURL, Health, LastError string }) bool {
			return x.ScrapePool == pool && x.Health == "up" && strings.HasSuffix(x.ScrapeURL, ":9481/metrics")
		}) {
		t.Errorf("no target of %s is up: %+v", pool, answer.Data.ActiveTargets)
	}
}

// alerts fails unless Prometheus has exactly the rules of the file.
func alerts(t *testing.T, address string) {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health string }
			}
		}
	}
	get(t, "http://"+address+"/api/v1/rules", &answer)
	var has []string
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			has = append(has, r.Name)
			if r.Health == "err" {
				t.Errorf("rule %s cannot be evaluated", r.Name)
			}
		}
	}
	var want []string
	data, err := os.ReadFile(filepath.Join(monitoring, "rules.yaml"))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "- "))
		if len(fields) == 2 && (fields[0] == "alert:" || fields[0] == "record:") {
			want = append(want, fields[1])
		}
	}
	slices.Sort(has)
	slices.Sort(want)
	if diff := cmp.Diff(want, has); diff != "" || len(has) == 0 {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func get(t *testing.T, url string, into any) {
	t.Helper()
	answer, err := http.Get(url)
	must(t, err)
	defer answer.Body.Close()
	must(t, json.NewDecoder(answer.Body).Decode(into))
}
