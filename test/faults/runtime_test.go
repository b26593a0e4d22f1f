package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// served is a scene on a node of a cluster, whose agent has made two devices ready.
type served struct {
	*scene
	n *bed.Node
}

// node is shared: each test leaves it ready. One that fails takes it down with it, and the next gets a fresh one.
func node(t *testing.T) *served {
	t.Helper()
	sh := enter(t)
	fresh := sh.node == nil
	if fresh {
		n, err := sh.bed.StartNode(t.Context(), bed.Options{Accelerators: 2})
		if err != nil {
			t.Fatal(err)
		}
		sh.node = n
	}
	c := &served{&scene{T: t, g: sh.node.Guest, s: sh.stage}, sh.node}
	t.Cleanup(func() {
		if t.Failed() {
			stop(t, sh.node)
			sh.node = nil
		}
	})
	if fresh {
		c.must(sh.stage.Units(t.Context(), c.g, ""))
		c.must(sh.stage.Source(t.Context(), c.g))
		_, err := sh.stage.Workload(t.Context(), c.n)
		c.must(err)
		c.store(stage.Version)
		c.must(sh.stage.Enable(t.Context(), c.g))
	}
	c.usable("node", 2)
	return c
}

// usable waits until the node's kubelet offers so many devices.
func (c *served) usable(what string, n int) {
	c.Helper()
	c.await(what+" -> usable", soon, func(m accel.Machine) bool {
		return healthy(n)(m) && m.Have[stage.Kind].Plugin.Allocatable.Is(n)
	})
}

// pod starts a pod with some devices, none for 0, that computes on them, and returns its name.
func (c *served) pod(name string, devices int) string {
	c.Helper()
	if devices == 0 {
		return c.plain(name, "none: none")
	}
	return c.apply(name, stage.Pod(name, c.n.Image("edu-check:test"), devices, "-expect", fmt.Sprint(devices)))
}

// plain starts a pod that asks for no device, with an annotation, and says which it sees.
func (c *served) plain(name, annotation string) string {
	c.Helper()
	return c.apply(name, fmt.Appendf(nil,
		`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default, annotations: {%s}}, spec: {
restartPolicy: Never, containers: [{name: main, image: %q, command: ["sh", "-c", "ls /dev/edu* 2>/dev/null; echo done"]}]}}`, name, annotation, c.n.Image("bed/busybox:1")))
}

func (c *served) apply(name string, manifest []byte) string {
	c.Helper()
	c.must(c.n.Apply(c.Context(), manifest))
	c.Cleanup(func() {
		// The context of the test has ended by then.
		_, _ = c.n.Kubectl(context.Background(), nil, "-n", "default", "delete", "pod", "--wait=false",
			"--grace-period=0", "--force", name)
	})
	return name
}

// holding starts a pod that holds a device and is restarted when it ends: the kubelet gives it the same device again
// and asks nobody.
func (c *served) holding(name string) string {
	c.Helper()
	manifest := string(stage.Pod(name, c.n.Image("edu-check:test"), 1, "-expect", "1", "-hold", "2h"))
	c.apply(name, []byte(strings.Replace(manifest, "restartPolicy: Never", "restartPolicy: Always", 1)))
	c.must(c.n.WaitPod(c.within(soon), "default", name, corev1.PodRunning))
	return name
}

// runsAgain waits for a pod's container to have been restarted.
func (c *served) runsAgain(name string) {
	c.Helper()
	begin, ctx := time.Now(), c.within(2*soon)
	for {
		pod, err := clientset.Of(c.n).CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		c.must(err)
		if s := pod.Status.ContainerStatuses; len(s) == 1 && s[0].State.Running != nil && s[0].RestartCount > 0 {
			c.Logf("%-70s %6.2f s", "pod "+name+" runs again, the kubelet's back-off included",
				time.Since(begin).Seconds())
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// succeeds waits for a pod to end well and returns what it said.
func (c *served) succeeds(name string) string {
	c.Helper()
	begin := time.Now()
	c.must(c.n.WaitPod(c.within(soon), "default", name, corev1.PodSucceeded))
	c.Logf("%-70s %6.2f s", "pod "+name+" has ended well", time.Since(begin).Seconds())
	log, err := c.n.PodLog(c.within(soon), "default", name)
	c.must(err)
	return log
}

// event waits for an event of a pod that has all the words, and returns its message.
func (c *served) event(pod string, words ...string) string {
	c.Helper()
	begin, ctx := time.Now(), c.within(soon)
	for {
		events, err := clientset.Of(c.n).CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		c.must(err)
	next:
		for _, e := range events.Items {
			for _, w := range words {
				if !strings.Contains(e.Message, w) {
					continue next
				}
			}
			c.Logf("%-70s %6.2f s\n  %s", "event of pod "+pod, time.Since(begin).Seconds(), e.Message)
			return e.Message
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// hook is the program that the CDI spec names.
func (c *served) hook() string {
	c.Helper()
	return c.sh(`grep -o '"/[^"]*/acceld-hook"' /var/run/cdi/qemu.org-edu.json | head -1 | tr -d '"'`)
}

// written is every file of acceld that a container runtime reads, with inode and time: a rewrite shows.
func (c *served) written() string {
	c.Helper()
	return c.sh(
		`find /var/run/cdi /etc/cdi /usr/share/containers/oci/hooks.d /etc/crio /usr/local/lib/acceld /var/lib/acceld/bin -type f -exec stat -c '%n %i %Y %Z %s' {} + 2>/dev/null | sort`)
}

// Test02_HookProgram: the hook's program is deleted or truncated.
func Test02_HookProgram(t *testing.T) {
	c := node(t)
	hook := c.hook()
	for _, spoil := range []string{`rm "$1"`, `: > "$1"`, `chmod 600 "$1"`} {
		c.sh(spoil, hook)
		c.until("after "+spoil+" it is whole", `test "$(stat -c %a "$1")" = 755 && cmp -s "$1" /usr/bin/acceld-hook`,
			hook)
	}
	holds := c.holding("holds")
	c.halt()
	c.sh(`rm "$1"; pkill -KILL edu-check`, hook)
	c.event(holds, "acceld-hook") // its container does not start again without the gate
	c.succeeds(c.pod("plain", 0))
	c.start()
	c.usable("agent started", 2)
	c.runsAgain(holds)
}

// Test05_HookHangs: the hook says no, or says nothing at all.
func Test05_HookHangs(t *testing.T) {
	c := node(t)
	holds, hook := c.holding("refused"), c.hook()
	c.halt()
	c.sh(`mv /run/acceld/devices.json /run/devices.json; pkill -KILL edu-check`)
	c.event(holds, "acceld", "/run/acceld/devices.json")
	c.sh(`mv /run/devices.json /run/acceld/; printf '#!/bin/sh\nexec sleep 600\n' > "$1"`, hook)
	c.succeeds(c.pod("beside", 0))
	c.event(holds, "timeout")
	c.start()
	c.usable("agent started", 2)
	c.runsAgain(holds)
}

// Test06_RuntimeRestarts: the runtime is restarted, told to reload and killed; nothing is written for it.
func Test06_RuntimeRestarts(t *testing.T) {
	c := node(t)
	before, agent := c.written(), c.sh("systemctl show -p MainPID --value acceld")
	for i := range max(3, 10) { // each of the three at least once
		c.sh([]string{"systemctl restart crio", "systemctl reload crio", "systemctl kill -s KILL crio"}[i%3])
		c.until("", "systemctl is-active -q crio && test -S /var/run/crio/crio.sock")
		c.sh("systemctl reset-failed crio")
	}
	c.usable("ten times later", 2)
	if after := c.written(); after != before {
		t.Errorf("files before:\n%s\nafter:\n%s", before, after)
	}
	if now := c.sh("systemctl show -p MainPID --value acceld"); now != agent {
		t.Errorf("the agent was restarted: pid %s, before %s", now, agent)
	}
	c.succeeds(c.pod("after", 2))
}

// Test07_DuplicateDevice: somebody else's CDI spec names one of our devices.
func Test07_DuplicateDevice(t *testing.T) {
	c := node(t)
	c.sh(`cat > /var/run/cdi/other.json <<EOF
{"cdiVersion": "0.5.0", "kind": "qemu.org/edu", "devices": [{"name": "0000:01:00.0", "containerEdits": {"deviceNodes": [{"path": "/dev/edu0"}]}}]}
EOF`)
	f := c.blocked("duplicate written", accel.SpecConflict, soon)
	if !strings.Contains(f.Message, "other.json") || !strings.Contains(f.Message, "0000:01:00.0") {
		t.Errorf("the sentence does not name file and device: %s", f.Message)
	}
	c.must(c.n.WaitAllocatable(c.within(soon), stage.Resource, 0))
	c.sh("rm /var/run/cdi/other.json")
	c.usable("duplicate removed", 2)
	c.must(c.n.WaitAllocatable(c.within(soon), stage.Resource, 2))
}

// Test08_OldCDILibrary: CRI-O 1.34 has CDI v1.0.1, which sees a renamed file only within one directory. A device that
// was just plugged can be used.
func Test08_OldCDILibrary(t *testing.T) {
	c := node(t)
	c.must(c.g.Plug(c.within(soon), 5))
	c.usable("third device plugged", 3)
	c.must(c.n.WaitAllocatable(c.within(soon), stage.Resource, 3))
	c.succeeds(c.pod("three", 3))
	c.must(c.g.Unplug(c.within(soon), 5))
	c.await("third device pulled", soon, healthy(2))
}

// Test25_SpoofedAnnotation: a pod says in its annotations that it has a device.
func Test25_SpoofedAnnotation(t *testing.T) {
	c := node(t)
	if said := c.succeeds(c.plain("spoof", `acceld.dev/devices: "0000:01:00.0"`)); said != "done\n" {
		t.Errorf("the pod saw: %s", said)
	}
}

// Test03_MalformedHook: somebody else's hook file is broken. The runtime runs on with it and would not start again.
func Test03_MalformedHook(t *testing.T) {
	c := node(t)
	c.sh(`printf '{"version": "1.0.0", "hook"' > /usr/share/containers/oci/hooks.d/10-foreign.json`)
	if said, _ := c.says("acceld runtime check"); !strings.Contains(said, "will not start again while") ||
		!strings.Contains(said, "10-foreign.json") {
		t.Errorf("nobody is warned: %s", said)
	}
	c.succeeds(c.pod("meanwhile", 1))
	if text := c.sh("cat /usr/share/containers/oci/hooks.d/10-foreign.json"); text != `{"version": "1.0.0", "hook"` {
		t.Errorf("the file was changed: %s", text)
	}
	c.sh("rm /usr/share/containers/oci/hooks.d/10-foreign.json")
	if said, _ := c.says("acceld runtime check"); strings.Contains(said, "will not start") {
		t.Errorf("the warning stays: %s", said)
	}
}

// Test04_HooksUnwatched: the hooks' directory is made again, and the running runtime does not read it any more.
func Test04_HooksUnwatched(t *testing.T) {
	c := node(t)
	c.sh("rm -r /usr/share/containers/oci/hooks.d; mkdir /usr/share/containers/oci/hooks.d")
	c.until("the hook's file is back", "test -s /usr/share/containers/oci/hooks.d/50-acceld.json")
	if said, _ := c.says("acceld runtime check"); !strings.Contains(said, "does not read it until it is restarted") {
		t.Errorf("nobody is warned: %s", said)
	}
	c.succeeds(c.pod("gated", 1)) // the spec carries the gate too
	c.must(c.n.RestartEngine(c.within(soon)))
	c.usable("runtime restarted", 2)
	if said, _ := c.says("acceld runtime check"); strings.Contains(said, "until it is restarted") {
		t.Errorf("the warning stays: %s", said)
	}
}
