package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// withExtender starts the controller as its pods, with a book of the stand-in's cards, and a scheduler that asks it
// where its Service leads, with the certificates that the controller has made for it.
func withExtender(t *testing.T, n *bed.Node, s *stage.Stage) {
	t.Helper()
	stage.StartController(t, n, s,
		"tls: {secret: acceld-controller-tls}\nresources: {prefix: qemu.org/, cards: [edu], allow: true}\n")
	dir, ctx := t.TempDir(), stage.Within(t, soon)
	for {
		secret, err := clientset.Of(n).CoreV1().Secrets(agents).Get(ctx, "acceld-controller-tls", metav1.GetOptions{})
		stage.Check(t, err)
		if len(secret.Data) == 6 {
			for _, name := range []string{"ca.crt", "client.crt", "client.key"} {
				stage.Check(t, os.WriteFile(filepath.Join(dir, name), secret.Data[name], 0o600))
			}
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	address, end, err := n.Forward(agents, stage.ControllerName, "scheduler")
	stage.Check(t, err)
	t.Cleanup(end)
	stage.Check(t, n.Plane().StartScheduler(fmt.Sprintf(`- urlPrefix: https://%s/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: 1
  enableHTTPS: true
  nodeCacheCapable: true
  httpTimeout: 5s
  ignorable: false
  managedResources: [{name: qemu.org/edu, ignoredByScheduler: false}]
  tlsConfig: {serverName: %s.%s.svc, caFile: %q, certFile: %q, keyFile: %q}`, address, stage.ControllerName, agents,
		filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))))
	t.Cleanup(func() { _ = n.Plane().StartScheduler("") })
}

// partly is a pod that asks for a card and so much of its memory. More are further lines of its metadata.
func partly(name, image, memory, more string) []byte {
	return fmt.Appendf(nil, `---
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
%sspec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: main
    image: %s
    args: ["-expect", "1", "-hold", "2h"]
    resources: {limits: {qemu.org/edu: 1, qemu.org/memory: %s}}
`, name, more, image, memory)
}

// chosen is a pod once it runs, with the card that the extender chose; the container must have that one.
func chosen(t *testing.T, n *bed.Node, name string) string {
	t.Helper()
	ctx := stage.Within(t, 2*soon)
	if err := n.WaitPod(ctx, "default", name, corev1.PodRunning); err != nil {
		text, _ := n.Kubectl(stage.Within(t, soon), nil, "get", "pod/"+name, "-o", "yaml")
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	stage.Check(t, err)
	card := p.Annotations[accel.ChosenAnnotation]
	// sysfs is the host's in every container; the nodes in /dev are those that the container was given.
	sees, err := n.Kubectl(ctx, nil, "exec", name, "--", "sh", "-c",
		`for d in /dev/edu[0-9]; do basename $(readlink -f /sys/class/accelerator_edu/$(basename $d)/device); done`)
	stage.Check(t, err)
	if got := accel.CardName(strings.TrimSpace(sees)); card == "" || got != card {
		t.Errorf("pod %s sees %q, and the extender chose %q", name, got, card)
	}
	return card
}

// TestCards is the example of per-card scheduling on real parts: two cards of 8 GiB, three pods of 5 GiB. By the node's
// totals the scheduler places all three; with the extender, and what the agent says of each card, the third waits. Each
// container has the card that was chosen for it, also where the kubelet would take another one, after a restart of
// kubelet and agent, and with an agent that is held to its node. The controller runs as its pods.
func TestCards(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	stage.Check(t, s.SourceOf(t.Context(), n.Guest, stage.Version))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	definition := readFile(t, s.File("vendors/qemu/edu.yaml")) +
		"capacity: [{name: memory, value: 8Gi}]\nsharing: {replicas: 4}\n"
	stage.Check(t, n.WriteFile(t.Context(), "/etc/acceld/definitions.d/edu.yaml", []byte(definition), 0o644))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Deploy(t.Context(), n))
	text, err := n.Kubectl(t.Context(), nil, "kustomize", s.File("packaging/manifests/cards"))
	stage.Check(t, err)
	apply(t, n, []byte(text))
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 8))
	var cards []fit.Card
	stage.Check(t, n.WaitNode(stage.Within(t, soon), "the annotation of its cards", func(node *corev1.Node) bool {
		cards = nil
		return json.Unmarshal([]byte(node.Annotations[accel.CardsAnnotation]), &cards) == nil && len(cards) == 2 &&
			!cards[0].Off && !cards[1].Off
	}))
	for _, c := range cards {
		memory, edu := c.Has["qemu.org/memory"], c.Has["qemu.org/edu"]
		if memory.String() != "8Gi" || edu.String() != "4" {
			t.Errorf("card %+v", c)
		}
	}
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), "qemu.org/memory", 16<<30))
	three := []string{"one", "two", "three"}
	t.Run("without the extender", func(t *testing.T) {
		for _, name := range three {
			apply(t, n, partly(name, image, "5Gi", ""))
		}
		for _, name := range three {
			stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", name, corev1.PodRunning))
		}
		remove(t, n, three...)
	})
	withExtender(t, n, s)
	t.Run("the third waits", func(t *testing.T) {
		for _, name := range three[:2] {
			apply(t, n, partly(name, image, "5Gi", ""))
		}
		first, second := chosen(t, n, "one"), chosen(t, n, "two")
		if first == second {
			t.Errorf("both have %s", first)
		}
		apply(t, n, partly("three", image, "5Gi", ""))
		// What the scheduler says first may be about the plugin, which registers again when its options change.
		toldWhy(t, n, "three", "not enough room on any one accelerator card")
		remove(t, n, "one")
		timed(t, "a pod ends -> the one that waits has its card", func() {
			stage.Check(t, n.WaitPod(stage.Within(t, 3*soon), "default", "three", corev1.PodRunning))
		})
		if third := chosen(t, n, "three"); third != first {
			t.Errorf("the third has %s, and %s is free", third, first)
		}
		remove(t, n, "two", "three")
	})
	t.Run("the leader is killed", func(t *testing.T) {
		apply(t, n, partly("one", image, "5Gi", ""))
		first := chosen(t, n, "one")
		pod, err := stage.KillController(stage.Within(t, soon), n)
		stage.Check(t, err)
		apply(t, n, partly("two", image, "5Gi", ""))
		timed(t, "killed -> the other one knows what is free", func() {
			stage.Check(t, n.WaitPod(stage.Within(t, 2*soon), "default", "two", corev1.PodRunning))
		})
		if second := chosen(t, n, "two"); second == first {
			t.Errorf("both have %s", first)
		}
		if now, err := stage.Leader(stage.Within(t, soon), n); err != nil || now == pod {
			t.Errorf("the leader: %q %v", now, err)
		}
		remove(t, n, "one", "two")
	})
	allow := func(card string) string { return fmt.Sprintf("  annotations: {gas-allow: %q}\n", card) }
	t.Run("not what the kubelet would take", func(t *testing.T) {
		for _, c := range []fit.Card{cards[1], cards[0]} {
			apply(t, n, partly("picky", image, "1Gi", allow(c.Name)))
			if got := chosen(t, n, "picky"); got != c.Name {
				t.Errorf("chosen %s, asked for %s", got, c.Name)
			}
			remove(t, n, "picky")
		}
	})
	t.Run("several at once", func(t *testing.T) {
		var names []string
		var all []byte
		for i := range 6 {
			names = append(names, fmt.Sprintf("crowd-%d", i))
			all = append(all, partly(names[i], image, "2Gi", allow(cards[i%2].Name))...)
		}
		timed(t, "six pods at once, in turn for either card -> all have theirs", func() {
			apply(t, n, all)
			for i, name := range names {
				if got := chosen(t, n, name); got != cards[i%2].Name {
					t.Errorf("%s has %s", name, got)
				}
			}
		})
		remove(t, n, names...)
	})
	t.Run("kubelet and agent away", func(t *testing.T) {
		sh(t, n.Guest, "systemctl stop kubelet")
		apply(t, n, partly("late", image, "1Gi", allow(cards[1].Name)))
		_, err := n.Kubectl(stage.Within(t, soon), nil, "wait", "pod/late", "--for=condition=PodScheduled",
			"--timeout=60s")
		stage.Check(t, err)
		sh(t, n.Guest, `kill -9 "$1"; systemctl start kubelet`, agentPID(t, n.Guest))
		// A kubelet that starts refuses the pods that were bound meanwhile for as long as no plugin has registered.
		// Whoever made such a pod makes it again.
		for ctx, phase := stage.Within(t, 3*soon), corev1.PodPending; phase != corev1.PodRunning; {
			p, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "late", metav1.GetOptions{})
			stage.Check(t, err)
			if phase = p.Status.Phase; p.Status.Reason == "UnexpectedAdmissionError" {
				t.Logf("the kubelet says: %s", p.Status.Message)
				remove(t, n, "late")
				stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 8))
				apply(t, n, partly("late", image, "1Gi", allow(cards[1].Name)))
			}
			time.Sleep(200 * time.Millisecond)
		}
		if got := chosen(t, n, "late"); got != cards[1].Name {
			t.Errorf("chosen %s", got)
		}
		remove(t, n, "late")
	})
	t.Run("another device than the chosen one", func(t *testing.T) {
		// Somebody writes another choice after the kubelet has acted: the container does not start again with the
		// device it has.
		apply(t, n, restarted(partly("moved", image, "1Gi", allow(cards[0].Name))))
		chosen(t, n, "moved")
		_, err := n.Kubectl(stage.Within(t, soon), nil, "annotate", "--overwrite", "pod/moved",
			accel.ChosenAnnotation+"="+cards[1].Name)
		stage.Check(t, err)
		sh(t, n.Guest,
			`for i in $(seq 100); do sed -n "/choices/,\$p" /run/acceld/devices.json | grep -q "$1" && exit 0; sleep 0.2; done; exit 1`,
			strings.ReplaceAll(cards[1].Name, "-", ":"))
		sh(t, n.Guest, "pkill -x edu-check")
		_, err = n.Kubectl(stage.Within(t, 2*soon), nil, "wait", "pod/moved",
			`--for=jsonpath={.status.containerStatuses[0].ready}=false`, "--timeout=120s")
		stage.Check(t, err)
		deadline := stage.Within(t, 2*soon)
		for {
			text, err := n.Kubectl(deadline, nil, "get", "events", "--field-selector", "involvedObject.name=moved",
				"-o", "jsonpath={.items[*].message}")
			stage.Check(t, err)
			if strings.Contains(text, "is not the one that the scheduler chose") {
				break
			}
			select {
			case <-deadline.Done():
				t.Fatalf("no event says why: %s", text)
			case <-time.After(time.Second):
			}
		}
		remove(t, n, "moved")
	})
	t.Run("by the labels of GPU Aware Scheduling", func(t *testing.T) {
		byLabels(t, n, image, strings.Replace(definition, "capacity: [{name: memory, value: 8Gi}]\n", "", 1))
	})
}

// byLabels schedules by the labels of GPU Aware Scheduling, where nobody says what each card has and the extender calls
// cards by the names that they have below /dev.
func byLabels(t *testing.T, n *bed.Node, image, definition string) {
	stage.Check(t, n.WriteFile(t.Context(), "/etc/acceld/definitions.d/edu.yaml", []byte(definition), 0o644))
	stage.Check(t, n.WaitNode(stage.Within(t, 2*soon), "nothing to be said of cards", func(node *corev1.Node) bool {
		_, total := node.Status.Allocatable["qemu.org/memory"]
		return node.Annotations[accel.CardsAnnotation] == "" && !total
	}))
	total := []byte(`{"status":{"capacity":{"qemu.org/memory":"16Gi"},"allocatable":{"qemu.org/memory":"16Gi"}}}`)
	_, err := clientset.Of(n).CoreV1().Nodes().Patch(stage.Within(t, soon), n.Name(), types.MergePatchType, total,
		metav1.PatchOptions{}, "status")
	stage.Check(t, err)
	_, err = n.Kubectl(stage.Within(t, soon), nil, "label", "node", n.Name(), "qemu.org/cards=edu0.edu1")
	stage.Check(t, err)
	has := func(name, card string) {
		t.Helper()
		stage.Check(t, n.WaitPod(stage.Within(t, 2*soon), "default", name, corev1.PodRunning))
		p, err := clientset.Of(n).CoreV1().Pods("default").Get(stage.Within(t, soon), name, metav1.GetOptions{})
		stage.Check(t, err)
		sees, err := n.Kubectl(stage.Within(t, soon), nil, "exec", name, "--", "sh", "-c", "cd /dev && echo edu[0-9]")
		stage.Check(t, err)
		if got := p.Annotations[accel.ChosenAnnotation] + " " + strings.TrimSpace(sees); got != card+" "+card {
			t.Errorf("pod %s: the extender's choice, and what it sees: %s, want %s", name, got, card)
		}
	}
	for _, card := range []string{"edu1", "edu0", "edu1"} {
		apply(t, n, partly("numbered", image, "1Gi", fmt.Sprintf("  annotations: {gas-allow: %q}\n", card)))
		has("numbered", card)
		remove(t, n, "numbered")
	}
	apply(t, n, partly("one", image, "5Gi", ""))
	has("one", "edu0")
	apply(t, n, partly("two", image, "5Gi", ""))
	has("two", "edu1")
	apply(t, n, partly("three", image, "5Gi", ""))
	toldWhy(t, n, "three", "not enough room on any one accelerator card")
	remove(t, n, "one", "two", "three")
}

// toldWhy waits until the scheduler says why a pod waits, in these words among others.
func toldWhy(t *testing.T, n *bed.Node, pod, words string) {
	t.Helper()
	for ctx, last := stage.Within(t, soon), ""; ; time.Sleep(300 * time.Millisecond) {
		p, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("pod %s is told %q, want %q: %v", pod, last, words, err)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				last = c.Message
			}
		}
		if strings.Contains(last, words) {
			return
		}
	}
}
