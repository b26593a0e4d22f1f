package e2e

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// What is played of another operator: the DaemonSets by which one knows it, the label that the operator gives to nodes
// for one of them, and a label of Node Feature Discovery, with a value that acceld would never write.
const (
	theirs    = "gpu-operator"
	deployed  = "nvidia.com/gpu.deploy.driver"
	theirName = "feature.node.kubernetes.io/kernel-version.full"
	theirFact = "written-by-nfd"
)

// peers are the objects of the old one. Their pods do nothing.
func peers(image string) []byte {
	set := func(namespace, name, more string) string {
		return fmt.Sprintf(`---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
%[4]s      containers: [{name: main, image: %[3]q, command: [sleep, "36000"]}]
`, namespace, name, image, more)
	}
	return []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + theirs + "}\n" +
		set(theirs, "nvidia-driver-daemonset", "      nodeSelector: {"+deployed+": \"true\"}\n") + set("kube-system",
		"nvidia-device-plugin-daemonset", ""))
}

// migrationStops are what happens beside the commands of the page: the old one is there, acts, and has gone.
func migrationStops() []stop {
	return []stop{
		{"helm install", func(r *reader) {
			r.must(
				r.here(
					"make image PUSH=registry.example.com/acceld:v1 && make image CONTROLLER=1 PUSH=registry.example.com/acceld-controller:v1"))
			r.must("kubectl label --overwrite node " + bed.NodeName + " " + deployed + "=true")
			r.must("kubectl label --overwrite --field-manager=nfd-master node " + bed.NodeName + " " + theirName + "=" +
				theirFact)
			apply(r.t, r.n, peers(r.n.Image("bed/busybox:1")))
			r.must("kubectl -n " + theirs +
				" rollout status daemonset/nvidia-driver-daemonset --timeout=3m && kubectl -n kube-system rollout status daemonset/nvidia-device-plugin-daemonset --timeout=3m")
		}},
		// The operator's part: it takes its pods off a node with the label.
		{"kubectl get pods -A", func(r *reader) {
			r.must("kubectl label --overwrite node " + bed.NodeName + " " + deployed + "=false")
		}},
		{"kubectl label node node-7 --overwrite accelerators=acceld", func(r *reader) {
			r.must(
				`timeout 180 bash -c 'while kubectl get pods -A -o name -l "app in (nvidia-driver-daemonset, nvidia-device-plugin-daemonset)" | grep -q .; do sleep 1; done'`)
		}},
		{"kubectl get node node-7", func(r *reader) {
			nodes := clientset.Of(r.n).CoreV1().Nodes()
			node, err := nodes.Get(stage.Within(r.t, soon), bed.NodeName, metav1.GetOptions{})
			stage.Check(r.t, err)
			if node.Labels[theirName] != theirFact {
				r.t.Errorf("the label of another is %q now", node.Labels[theirName])
			}
		}},
		{"kubectl logs -l", func(r *reader) {
			r.setUp("test ! -e /sys/module/edu; test ! -e /var/lib/acceld; ! ls /var/run/cdi | grep -i edu")
		}},
		// The agents are everywhere again.
		{"kubectl label nodes --all accelerators-", func(r *reader) {
			r.must("kubectl -n " + agents + " rollout status daemonset/acceld --timeout=10m")
			nodeReady(r)
		}},
	}
}

// noPeers takes the old one away, and what the page has written.
func noPeers(r *reader) {
	if _, err := r.n.Kubectl(r.t.Context(), strings.NewReader(string(peers("none"))), "delete", "--ignore-not-found",
		"-f", "-"); err != nil {
		r.t.Logf("left behind: %v", err)
	}
	for _, label := range []string{theirName, deployed, "accelerators", "nvidia.com/gpu.deploy.operands"} {
		if _, err := r.n.Kubectl(r.t.Context(), nil, "label", "node", bed.NodeName, label+"-"); err != nil {
			r.t.Logf("left behind: %v", err)
		}
	}
	if _, err := r.n.Kubectl(r.t.Context(), nil, "uncordon", bed.NodeName); err != nil {
		r.t.Logf("left behind: %v", err)
	}
}
