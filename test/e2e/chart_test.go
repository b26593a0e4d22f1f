package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// TestChart is the life of the Helm chart in a real cluster, from the files of releases alone: from install to a pod
// that computes, the next release and the previous one again under a pod, a change of values, and an uninstall that
// leaves no object, label, taint or file. Its parts build on each other.
func TestChart(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1})
	g := n.Guest
	stage.Check(t, s.Source(t.Context(), g))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	clone := cloned(t, s)
	chart := func(version string) string { return published(t, n, makeRelease(t, clone, version), version) }
	one := chart("0.1.0")
	// Whoever installs makes the namespace: its pods may be privileged.
	apply(t, n, []byte(readFile(t, s.File("packaging/manifests/namespace.yaml"))))
	_, err = n.Kubectl(stage.Within(t, soon), nil, "taint", "node", bed.NodeName, kube.TaintKey+"=:NoSchedule")
	stage.Check(t, err)
	// The node's first pod loads what the network of pods needs, which is none of acceld's.
	apply(t, n,
		fmt.Appendf(nil,
			`{apiVersion: v1, kind: Pod, metadata: {name: first, namespace: default}, spec: {restartPolicy: Never,
tolerations: [{operator: Exists}], containers: [{name: main, image: %q, command: ["true"]}]}}`, n.Image("bed/busybox:1")))
	stage.Check(t, n.WaitPod(stage.Within(t, 3*time.Minute), "default", "first", corev1.PodSucceeded))
	remove(t, n, "first")
	settled(t, n)
	before := stateOf(t, n)
	host := snapshot(t, g)

	helm := func(t *testing.T, args ...string) {
		t.Helper()
		out, err := s.Helm(stage.Within(t, 15*time.Minute), n,
			append(args, "-n", agents, "--wait", "--timeout", "10m")...)
		stage.Check(t, err)
		t.Logf("%s", out)
		reaches(t, g, accel.Ready, 10*time.Minute)
	}
	registry := "registry=" + strings.TrimSuffix(n.Image(""), "/")
	timed(t, "helm install -> every state ready, driver built", func() {
		helm(t, "install", "acceld", one, "--set", registry)
	})
	runs(t, n, "0.1.0")
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 1))
	stage.Check(t, n.WaitCondition(stage.Within(t, soon), kube.ConditionType, "True", ""))
	stage.Check(t, n.WaitTaint(stage.Within(t, soon), kube.TaintKey, false))
	stage.Check(t, n.Apply(stage.Within(t, soon), stage.Pod("one", image, 1, "-expect", "1")))
	stage.Check(t, n.WaitPod(stage.Within(t, 5*time.Minute), "default", "one", corev1.PodSucceeded))
	remove(t, n, "one")
	leads(t, n)
	certificates := secretData(t, n)
	if len(certificates) != 6 {
		t.Errorf("the controller's secret has %d entries, want 6", len(certificates))
	}
	driver := facts(t, g)
	t.Run("the next release and the previous one under a pod", func(t *testing.T) {
		stage.Check(t, n.Apply(stage.Within(t, soon), stage.Pod("holder", image, 1, "-expect", "1", "-hold", "2h")))
		stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "holder", corev1.PodRunning))
		two, process := chart("0.2.0"), sh(t, g, "pgrep -x edu-check")
		for _, c := range []struct {
			version string
			args    []string
		}{
			{"0.2.0", []string{"upgrade", "acceld", two, "--set", registry}},
			{"0.1.0", []string{"rollback", "acceld"}},
		} {
			timed(t, "helm "+c.args[0]+" to "+c.version, func() { helm(t, c.args...) })
			runs(t, n, c.version)
			if now := sh(t, g, "pgrep -x edu-check"); now != process { // it ends when it loses its device
				t.Errorf("with %s the pod's process is %q, before %q", c.version, now, process)
			}
			if now := facts(t, g); now != driver {
				t.Errorf("with %s the driver is %q, before %q", c.version, now, driver)
			}
		}
		remove(t, n, "holder")
	})
	apply(t, n, eduPolicy(stage.Version,
		"  partition: {taints: [{key: example.com/edu, effect: NoSchedule}], priorityClasses: {high: {name: edu-high}, low: {name: edu-low}}}\n"))
	stage.Check(t, n.WaitTaint(stage.Within(t, soon), "example.com/edu", true))

	t.Run("other values", func(t *testing.T) {
		helm(t, "upgrade", "acceld", one, "--set", registry+",dra=true,agent.config.logLevel=debug")
		if now := facts(t, g); now != driver {
			t.Errorf("the driver is %q, before %q", now, driver)
		}
		if diff := cmp.Diff(certificates, secretData(t, n)); diff != "" {
			t.Error("the scheduler's copy of the certificates is of no use any more")
		}
		_, err = n.Kubectl(stage.Within(t, soon), nil, "get", "acceleratorpolicy/edu")
		stage.Check(t, err)
		_, err = n.Kubectl(stage.Within(t, soon), nil, "get", "validatingadmissionpolicy/acceld-dra")
		stage.Check(t, err)
	})
	t.Run("uninstall leaves nothing", func(t *testing.T) {
		timed(t, "helm uninstall -> nothing left", func() {
			out, err := s.Helm(stage.Within(t, 10*time.Minute), n, "uninstall", "acceld", "-n", agents, "--wait",
				"--timeout", "8m")
			if err != nil {
				log, _ := n.Kubectl(stage.Within(t, soon), nil, "-n", agents, "logs", "job/acceld-remove")
				t.Fatalf("%v\n%s", err, log)
			}
			t.Logf("%s", out)
		})
		settled(t, n)
		// What an object owned is collected a little later.
		diff := cmp.Diff(before, stateOf(t, n))
		for end := time.Now().Add(soon); diff != "" && time.Now().Before(end); time.Sleep(time.Second) {
			diff = cmp.Diff(before, stateOf(t, n))
		}
		if diff != "" {
			t.Errorf("the cluster is not as it was (-before +after):\n%s", diff)
		}
		if diff := stage.Unlike(host, snapshot(t, g)); diff != "" {
			t.Errorf("the host is not as it was:\n%s", diff)
		}
	})
}

// published puts the images of a release into the registry, each under its version, and returns the chart's file.
func published(t *testing.T, n *bed.Node, dir, version string) string {
	t.Helper()
	for _, name := range []string{"acceld", "acceld-controller"} {
		unpacked := t.TempDir()
		command(t, dir, "tar", "-xf", name+"-image-"+version+".tar", "-C", unpacked)
		stage.Check(t, n.Bed().PushLayout(t.Context(), name+":"+version, unpacked))
	}
	return filepath.Join(dir, "acceld-chart-"+version+".tgz")
}

// runs checks which release the cluster runs: what the agent says of itself, and the images of all pods.
func runs(t *testing.T, n *bed.Node, version string) {
	t.Helper()
	text, _, err := stage.Get(stage.Within(t, soon), n.Guest, "/metrics")
	stage.Check(t, err)
	if !regexp.MustCompile(`acceld_build_info\{[^}]*version="v?` + regexp.QuoteMeta(version) + `"`).MatchString(text) {
		t.Errorf("the agent is not of release %s", version)
	}
	images, err := n.Kubectl(stage.Within(t, soon), nil, "-n", agents, "get", "pods", "-o",
		"jsonpath={range .items[*]}{.spec.containers[*].image}{\"\\n\"}{end}")
	stage.Check(t, err)
	if lines := strings.Fields(images); len(lines) < 3 || slices.ContainsFunc(lines, func(image string) bool {
		return !strings.HasSuffix(image, ":"+version)
	}) {
		t.Errorf("the images of pods are %q, want the agent's and two of the controller, of %s", lines, version)
	}
}

// leads is about the controller's replicas: both are ready, and the Service leads to the leader alone.
func leads(t *testing.T, n *bed.Node) {
	t.Helper()
	d, err := clientset.Of(n).AppsV1().Deployments(agents).Get(stage.Within(t, soon), "acceld-controller", metav1.GetOptions{})
	stage.Check(t, err)
	led, err := clientset.Of(n).DiscoveryV1().EndpointSlices(agents).List(stage.Within(t, soon),
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=acceld-controller"})
	stage.Check(t, err)
	lease, err := clientset.Of(n).CoordinationV1().Leases(agents).Get(stage.Within(t, soon), "acceld-controller",
		metav1.GetOptions{})
	stage.Check(t, err)
	if d.Status.ReadyReplicas != 2 || len(led.Items) != 1 || len(led.Items[0].Endpoints) != 1 {
		t.Fatalf("%d replicas are ready, want 2; the Service leads to %+v", d.Status.ReadyReplicas, led.Items)
	}
	if e := led.Items[0].Endpoints[0]; !strings.HasPrefix(*lease.Spec.HolderIdentity, e.TargetRef.Name+"_") ||
		len(led.Items[0].Ports) != 2 {
		t.Errorf("%s is the leader, and the Service leads to %+v", *lease.Spec.HolderIdentity, e)
	}
}

// secretData is what the controller's Secret has.
func secretData(t *testing.T, n *bed.Node) map[string][]byte {
	t.Helper()
	secret, err := clientset.Of(n).CoreV1().Secrets(agents).Get(stage.Within(t, soon), "acceld-controller-tls",
		metav1.GetOptions{})
	stage.Check(t, err)
	return secret.Data
}

// settled waits until no pod is on its way out, so that what is collected with its owner is gone.
func settled(t *testing.T, n *bed.Node) {
	t.Helper()
	_, err := n.Kubectl(stage.Within(t, 3*time.Minute), nil, "-n", agents, "wait", "pods", "--all", "--for=delete",
		"--timeout=150s")
	if err != nil && !strings.Contains(err.Error(), "no matching resources") {
		t.Fatal(err)
	}
}

// state is what a cluster has: the names of all objects but those that come and go by themselves, and of the node what
// acceld may write.
type state struct {
	Objects             []string
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	Conditions          []string
}

// stateOf reads the state of a cluster with one node.
func stateOf(t *testing.T, n *bed.Node) state {
	t.Helper()
	ctx := stage.Within(t, 5*time.Minute)
	kinds, err := n.Kubectl(ctx, nil, "api-resources", "--verbs=list", "-o", "name")
	stage.Check(t, err)
	var s state
	for _, kind := range strings.Fields(kinds) {
		if kind == "events" || kind == "events.events.k8s.io" || kind == "componentstatuses" {
			continue
		}
		names, err := n.Kubectl(ctx, nil, "get", kind, "-A", "-o",
			`jsonpath={range .items[*]}{.kind}{" "}{.metadata.namespace}{"/"}{.metadata.name}{"\n"}{end}`)
		stage.Check(t, err)
		for _, name := range strings.Split(strings.TrimSpace(names), "\n") {
			if name != "" {
				s.Objects = append(s.Objects, kind+": "+name)
			}
		}
	}
	slices.Sort(s.Objects)
	node, err := clientset.Of(n).CoreV1().Nodes().Get(ctx, bed.NodeName, metav1.GetOptions{})
	stage.Check(t, err)
	s.Labels, s.Annotations, s.Taints = node.Labels, node.Annotations, node.Spec.Taints
	// The startup taint was put there for the test, and the agent has taken it away, as it must.
	s.Taints = slices.DeleteFunc(s.Taints, func(t corev1.Taint) bool { return t.Key == kube.TaintKey })
	if len(s.Taints) == 0 {
		s.Taints = nil
	}
	for _, c := range node.Status.Conditions {
		s.Conditions = append(s.Conditions, string(c.Type))
	}
	slices.Sort(s.Conditions)
	return s
}
