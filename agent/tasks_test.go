package agent

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/host/hosttest"
)

// TestTasks: the tasks of an agent, on a bare host and in a cluster.
func TestTasks(t *testing.T) {
	var version atomic.Pointer[string]
	credentials := filepath.Join(t.TempDir(), "kubeconfig")
	save(t, credentials, apiServer(t, &version))
	bare := []string{
		"machine loop", "kernel preflight", "health engine", "holders of accelerators", "probe programs",
		"watchdog", "self-restart", "hot restart", "surroundings", "work in progress", "kernel events", "device resets",
		"device history", "device handover", "device repair", "device settings", "devices given back",
		"devices in another use", "devices divided for claims", "use without a request", "hooks", "configuration",
		"local endpoint",
	}
	cluster := append(append([]string{}, bare...), "remote endpoint", "node node-a", "pods of the node",
		"policies of the cluster")
	for name, c := range map[string]struct {
		config string
		want   []string
	}{
		"with a topology": {
			"node: node-a\nkubernetes: {enabled: on, resourceTopology: on, policies: off, kubeconfig: " + credentials + "}\n" +
				"endpoint: {listen: ''}\n",
			append(append([]string{}, bare...), "node node-a", "pods of the node", "resource topology"),
		},
		"on a bare host": {"endpoint: {listen: ''}\n", bare},
		"in a cluster": {
			"node: node-a\nkubernetes: {enabled: on, kubeconfig: " + credentials + "}\n" +
				"endpoint: {listen: '', remote: {listen: '127.0.0.1:0', tokens: true}}\n",
			cluster,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, task := range assembled(t, hosttest.New(t), c.config).tasks {
				got = append(got, task.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the tasks (-want +got):\n%s", diff)
			}
		})
	}
}
