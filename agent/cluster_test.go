package agent

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host/hosttest"
)

// apiServer returns a kubeconfig for an API server that knows only the node, and reports its version when it has one.
func apiServer(t *testing.T, version *atomic.Pointer[string]) (kubeconfig string) {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch v := version.Load(); {
		case r.URL.Path == "/version" && v == nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/version":
			fmt.Fprintf(w, `{"major":"1","minor":"37","gitVersion":%q}`, *v)
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
			fmt.Fprint(w,
				`{"kind":"Node","apiVersion":"v1","metadata":{"name":"node-a","uid":"u","resourceVersion":"1"},
				"status":{"conditions":[{"type":"MaintenancePlanned","status":"True","reason":"Fan"}]}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(srv.Close)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
			"users: [{name: u, user: {token: secret}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		srv.URL, base64.StdEncoding.EncodeToString(cert))
}

// clustered returns the agent of a machine with that API server. It runs until the test ends, without its endpoint
// and its file watches.
func clustered(t *testing.T, m *hosttest.Machine, version *atomic.Pointer[string]) *Agent {
	t.Helper()
	credentials := filepath.Join(t.TempDir(), "kubeconfig")
	save(t, credentials, apiServer(t, version))
	a := assembled(t, m, "node: node-a\nkubernetes: {enabled: on, kubeconfig: "+credentials+
		", policies: off}\nendpoint: {listen: ''}\n")
	a.group.Go(func() { _ = a.loop.Run(t.Context()) })
	a.group.Go(func() { _ = a.kube.Run(t.Context()) })
	t.Cleanup(a.group.Wait)
	return a
}

// TestClusterVersion: the cluster's version gets from the API server into what a definition does. Until it is known,
// what needs it waits and says so; then it continues by itself.
func TestClusterVersion(t *testing.T) {
	const address = "0000:01:00.0"
	var version atomic.Pointer[string]
	m := hosttest.New(t)
	m.AddPCI(accel.PCIDevice{Address: address, Class: "120000", Vendor: "f00d", Device: "0001"})
	m.SetAttribute(address, "made_for", "nobody")
	m.File("/etc/acceld/definitions.d/npu.yaml",
		"kind: example-npu\nresource: example.com/npu\nmatch: [{vendor: f00d, device: '0001'}]\n"+
			"driver: {binds: npu, modules: [{name: npu}]}\n"+
			"steps: {driver-container: {before: [{name: made-for, validate: {file: made_for, want: 'version {{.ClusterVersion}}'}}]}}\n")
	a := clustered(t, m, &version)
	eventually := func(what string, reason accel.Reason, says string) {
		t.Helper()
		var last *accel.Failure
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			if last = a.loop.Machine().Status["example-npu"].Blocked; last != nil && last.Reason == reason &&
				strings.Contains(last.Message, says) {
				return
			}
		}
		t.Fatalf("%s: %+v, %+v", what, last, a.loop.Machine().Facts.Cluster)
	}
	eventually("before the API server has said it", accel.APIUnreachable,
		"the API server has not said the version of the cluster")
	select {
	case <-a.watcher.moved: // from the first look
	default:
	}
	first := "v1.37.1+k3s1"
	version.Store(&first)
	eventually("when it has", accel.StepFailed, `is "nobody", wanted is "version 1.37"`)
	select {
	case <-a.watcher.moved: // sources whose names contain it are followed
	case <-time.After(20 * time.Second):
		t.Error("nobody follows other files than before")
	}
	if got := a.loop.Machine().Facts.Cluster; got != (accel.Cluster{Version: "1.37"}) {
		t.Errorf("%+v", got)
	}
	if got := a.loop.Machine().Facts; len(got.Maintenance) != 1 || got.Maintenance[0].Reason != "Fan" ||
		got.MaintenanceUnknown {
		t.Errorf("who else works on the node: %v, unknown %v", got.Maintenance, got.MaintenanceUnknown)
	}
}

// TestClusterVersionIsNews: on a machine where nothing else happens, the version is known as soon as it is reported,
// not only at the next resync.
func TestClusterVersionIsNews(t *testing.T) {
	var version atomic.Pointer[string]
	a := clustered(t, hosttest.New(t), &version)
	said := "v1.37.1"
	version.Store(&said)
	for until := time.Now().Add(20 * time.Second); a.loop.Machine().Facts.Cluster.Version != "1.37"; time.Sleep(
		10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%+v", a.loop.Machine().Facts.Cluster)
		}
	}
}

// TestClusterKnown: which hosts have a cluster, and for which of them the version can be known.
func TestClusterKnown(t *testing.T) {
	for _, c := range []struct {
		kubernetes string
		kubelet    bool
		want       accel.Cluster
	}{
		{"auto", false, accel.Cluster{}},
		{"auto", true, accel.Cluster{Unknown: true}},
		{"on", false, accel.Cluster{Unknown: true}},
		{"off", true, accel.Cluster{}},
	} {
		m := hosttest.New(t)
		if c.kubelet {
			m.Dir("/var/lib/kubelet/device-plugins")
		}
		a := &Agent{
			Setup:  opened(t, m.Host.Root(), "kubernetes: {enabled: "+c.kubernetes+"}\n"),
			around: newSurroundings(m.Host, time.Hour, nil, slog.New(slog.DiscardHandler)),
			reader: detect.NewTimeoutReader(m.Host, nil),
		}
		a.around.survey(t.Context())
		if got := a.facts().Cluster; got != c.want {
			t.Errorf("kubernetes %s, kubelet %v: %+v", c.kubernetes, c.kubelet, got)
		}
	}
	for version, want := range map[string]string{
		"v1.37.1": "1.37", "v1.30.2-gke.100": "1.30", "v1.29.3+k3s1": "1.29", "1.31": "1.31", "v1.32+": "1.32", "": "",
		"v1": "", "main": "",
	} {
		if got := minor(version); got != want {
			t.Errorf("of %q: %q, want %q", version, got, want)
		}
	}
}
