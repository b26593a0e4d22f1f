package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// TestChanges changes what a node is configured with, in every way and in random order, as fast as the agent takes the
// changes over, under a stream of short pods. The kubelet refuses none of them, whether they get their devices by the
// device plugin or by claims.
//
// ACCELD_CHANGES says how many changes there are in each of the two ways, and ACCELD_SEED repeats an order.
// ACCELD_OTHER_PROGRAMS is a folder with the programs of another version, between which and the tree's own the agent
// goes back and forth.
//
// Pods need fewer devices than there are. When there are fewer replicas of a device than pods hold, the kubelet has
// fewer devices than the scheduler knows of for up to ten seconds, and rightly refuses pods for which there are none.
func TestChanges(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 4})
	c := startChanging(t, n, s)
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	t.Run("by the device plugin", func(t *testing.T) { c.underPods(t, n, image) })
	t.Run("by claims", func(t *testing.T) { c.underClaims(t, n, image) })
}

// settings are what the node is configured with.
type settings struct {
	allocation accel.Allocation
	// the agent's own file: replicas go before the policy's, and 0 says nothing; more often is an option that waits for
	// the agent's next start, which the agent says.
	replicas        int
	often, wasOften bool
	takeover        bool
	title           string // of the definition beside it
	// the policy of the cluster
	shared  int
	enabled bool
	timeout string
	// program is which of two programs of the agent is in place.
	program int
}

func (s settings) file() string {
	text := fmt.Sprintf("kinds:\n  qemu-edu:\n    driver: {takeover: %v}\n", s.takeover)
	if s.replicas > 0 {
		text += fmt.Sprintf("    sharing: {replicas: %d}\n", s.replicas)
	}
	if s.often {
		text += "sampleEvery: 10s\n"
	}
	return fmt.Sprintf("kubernetes: {kubeconfig: /etc/acceld/kubeconfig, allocation: %s}\n", s.allocation) + text
}

// definition is a built-in one with another title, which claims can select by, and another content of containers.
func (s settings) definition(builtIn string) string {
	return strings.NewReplacer(
		"title: QEMU educational device\n", fmt.Sprintf("title: %q\n", s.title),
		"container:\n", fmt.Sprintf("container:\n  env: [%q]\n", "TITLE="+s.title),
	).Replace(builtIn)
}

func (s settings) policy() []byte {
	enabled := ""
	if s.enabled {
		enabled = "enabled: true, "
	}
	return fmt.Appendf(nil, `apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: edu}
spec:
  kinds:
    qemu-edu: {%ssharing: {replicas: %d}, driver: {upgrade: {timeout: %s}}}
`, enabled, s.shared, s.timeout)
}

// inForce reports whether an agent acts by the settings. Of each change there is a part that it shows over TCP.
func (s settings) inForce(m accel.Machine) bool {
	def, pending := m.Want.Kinds[stage.Kind], m.Want.Problem != nil
	return def != nil && def.Sharing != nil && def.AllocatedBy() == s.allocation &&
		def.Sharing.Replicas == cmp.Or(s.replicas, s.shared) && def.Title == s.title &&
		(def.Enabled != nil) == s.enabled && pending == (s.often != s.wasOften)
}

// changing is a node whose settings change.
type changing struct {
	*bed.Node
	settings
	builtIn string // the definition
	random  *rand.Rand
	count   int           // of all changes
	last    accel.Machine // after the last change
}

// startChanging starts an agent with first settings.
func startChanging(t *testing.T, n *bed.Node, s *stage.Stage) *changing {
	t.Helper()
	c := &changing{
		Node: n, random: rand.New(rand.NewPCG(seed(t), 0)), builtIn: readFile(t, s.File("vendors/qemu/edu.yaml")),
		settings: settings{
			allocation: accel.AllocateByPlugin, title: "change 0", shared: 1, timeout: "30m",
		},
	}
	stage.Check(t, s.Units(t.Context(), n.Guest, c.file()))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	c.putPrograms(t, s)
	stage.Check(t, n.Apply(t.Context(), []byte(readFile(t, s.File("packaging/manifests/controller/crd.yaml")))))
	_, err := n.Kubectl(stage.Within(t, soon), nil, "wait", "--for=condition=Established",
		"crd/acceleratorpolicies.acceld.dev", "--timeout=60s")
	stage.Check(t, err)
	c.define(t)
	c.order(t)
	stage.Check(t, s.Enable(t.Context(), n.Guest))
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	c.taken(t, "the first settings", time.Time{})
	return c
}

// putPrograms puts two programs of the agent beside the one that is run: the tree's, and either another version's or
// another build of the same, which is a byte longer. What the other version has as a definition, the tree's reads too.
func (c *changing) putPrograms(t *testing.T, s *stage.Stage) {
	t.Helper()
	own := s.Program("acceld")
	other := filepath.Join(os.Getenv("ACCELD_OTHER_PROGRAMS"), "acceld")
	if other == "acceld" {
		other = filepath.Join(t.TempDir(), "acceld")
		stage.Check(t, os.WriteFile(other, []byte(readFile(t, own)+"\n"), 0o755))
	} else {
		c.builtIn = command(t, ".", other, "definition", "show", stage.Kind)
	}
	for i, program := range []string{own, other} {
		stage.Check(t, c.Put(t.Context(), program, fmt.Sprint("/opt/acceld-", i), 0o755))
	}
}

// sorts are what may change: each changes the settings and tells the node.
func (c *changing) sorts() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"sharing": func(t *testing.T) {
			c.replicas = c.another(c.replicas, 0, 1, 2, 4)
			c.configure(t)
		},
		"options": func(t *testing.T) {
			c.takeover, c.often = !c.takeover, !c.often
			c.configure(t)
		},
		"definition": func(t *testing.T) {
			c.title = fmt.Sprint("change ", c.count)
			c.define(t)
		},
		"policy": func(t *testing.T) {
			c.shared, c.enabled, c.timeout = c.another(c.shared, 1, 2, 4), !c.enabled, fmt.Sprint(c.count, "m")
			c.order(t)
		},
		"agent": func(t *testing.T) {
			c.program, c.wasOften = 1-c.program, c.often
			sh(t, c.Guest, `cp "$1" /usr/bin/acceld.next; mv /usr/bin/acceld.next /usr/bin/acceld
				systemctl restart acceld.service; systemctl reset-failed acceld.service`, fmt.Sprint("/opt/acceld-", c.program))
		},
	}
}

// another returns one of all that differs from now.
func (c *changing) another(now int, all ...int) int {
	all = slices.DeleteFunc(all, func(x int) bool { return x == now })
	return all[c.random.IntN(len(all))]
}

func (c *changing) configure(t *testing.T) {
	t.Helper()
	stage.Check(t, c.WriteFile(stage.Within(t, soon), "/etc/acceld/config.yaml", []byte(c.file()), 0o644))
}

func (c *changing) define(t *testing.T) {
	t.Helper()
	stage.Check(t, c.WriteFile(stage.Within(t, soon), "/etc/acceld/definitions.d/edu.yaml",
		[]byte(c.definition(c.builtIn)), 0o644))
}

func (c *changing) order(t *testing.T) {
	t.Helper()
	stage.Check(t, c.Apply(stage.Within(t, soon), c.policy()))
}

// taken waits until an agent that started after a moment acts by the settings and is registered with the kubelet.
func (c *changing) taken(t *testing.T, what string, after time.Time) {
	t.Helper()
	m, err := stage.WaitMachine(stage.Within(t, 2*soon), c.Guest, what, func(m accel.Machine) bool {
		return m.Agent.Started.After(after) && c.inForce(m) && m.Have[stage.Kind].Plugin.Registered
	})
	stage.Check(t, err)
	c.last = m
}

// change makes all changes and returns how many there were of each sort.
func (c *changing) change(t *testing.T) map[string]int {
	t.Helper()
	changes := wanted("ACCELD_CHANGES", 20)
	sorts := c.sorts()
	names := slices.Sorted(maps.Keys(sorts))
	made := map[string]int{}
	for done := 0; done < changes; {
		line := ""
		for _, i := range c.random.Perm(len(names)) {
			if done == changes {
				break
			}
			begin, after := time.Now(), time.Time{}
			if names[i] == "agent" {
				after = c.last.Agent.Started
			}
			done, c.count = done+1, c.count+1
			sorts[names[i]](t)
			c.taken(t, fmt.Sprintf("change %d (%s) to be taken over: %+v", c.count, names[i], c.settings), after)
			made[names[i]]++
			line += fmt.Sprintf(" %s %.2f s,", names[i], time.Since(begin).Seconds())
		}
		t.Logf("changes to %3d:%s %+v", c.count, line, c.settings)
	}
	return made
}

// underPods changes the settings under pods that get devices by the device plugin. Nothing but another process of the
// agent registers again, and that before the kubelet hears of the end of the one before.
func (c *changing) underPods(t *testing.T, n *bed.Node, image string) {
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 4))
	said := sh(t, n.Guest, "journalctl -u kubelet -n 0 --show-cursor | sed -n 's/^-- cursor: //p'")
	made := c.under(t, func(name string) []byte { return stage.Pod("plugin-"+name, image, 1, "-expect", "1") })
	if ends := offered(t, n.Guest, said); ends != made["agent"] {
		t.Errorf("%d streams ended, and the agent was restarted %d times", ends, made["agent"])
	}
}

// underClaims changes the settings under pods that get devices by claims.
func (c *changing) underClaims(t *testing.T, n *bed.Node, image string) {
	c.allocation = accel.AllocateByDRA
	c.configure(t)
	offers(t, n, 4)
	apply(t, n, stage.ClaimTemplate("short"))
	c.under(t, func(name string) []byte {
		return stage.ClaimPod("claim-"+name, image, "resourceClaimTemplateName: short", "-expect", "1")
	})
	given(t, n, 0)
}

// under changes the settings under a stream of pods, and returns how many changes there were of each sort.
func (c *changing) under(t *testing.T, pod func(name string) []byte) map[string]int {
	t.Helper()
	s := newPodStream(c.Node, pod)
	s.start(t, 1)
	defer s.end()
	begin := time.Now()
	made := c.change(t)
	took := time.Since(begin)
	s.end()
	t.Logf("%v changes in %.0f s; %d pods admitted, %d refused, %.1f s each, %.1f s at most", made, took.Seconds(),
		s.admitted, s.refused, s.sum.Seconds()/float64(max(1, s.admitted)), s.longest.Seconds())
	if s.admitted == 0 {
		t.Error("no pod was admitted")
	}
	return made
}

// podStream is short pods: when one has ended, the next one is created. It is done when it is over and no pod is left.
type podStream struct {
	*bed.Node
	pod     func(name string) []byte
	running map[string]time.Time // since when
	over    atomic.Bool
	done    chan struct{}
	created atomic.Int32

	admitted, refused int
	sum, longest      time.Duration
	// failed is told of a pod that has failed; it is an error of the test if nil.
	failed func(pod *corev1.Pod)
}

func newPodStream(n *bed.Node, pod func(name string) []byte) *podStream {
	return &podStream{Node: n, pod: pod, running: map[string]time.Time{}, done: make(chan struct{})}
}

// start creates the first pods, as many as there are at a time.
func (s *podStream) start(t *testing.T, atATime int) {
	t.Helper()
	ctx := t.Context()
	pods := clientset.Of(s.Node).CoreV1().Pods("default")
	list, err := pods.List(ctx, metav1.ListOptions{})
	stage.Check(t, err)
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	stage.Check(t, err)
	go func() {
		defer close(s.done)
		defer w.Stop()
		for range atATime {
			s.next(ctx, t)
		}
		for len(s.running) > 0 {
			select {
			case e, open := <-w.ResultChan():
				pod, is := e.Object.(*corev1.Pod)
				if !open || !is {
					t.Errorf("the pods are not watched any more: %v", e.Object)
					return
				}
				if e.Type == watch.Deleted {
					delete(s.running, pod.Name)
				}
				s.see(ctx, t, pod)
			case <-time.After(2 * soon):
				t.Errorf("no pod has ended for a long time: %v", s.running)
				return
			}
		}
	}()
}

// reach waits until that many pods have been created, and calls meanwhile once a second. It fails if no more come.
func (s *podStream) reach(t *testing.T, pods int, meanwhile func()) {
	t.Helper()
	for last, since := s.created.Load(), time.Now(); int(last) < pods; time.Sleep(time.Second) {
		meanwhile()
		switch now := s.created.Load(); {
		case now != last:
			last, since = now, time.Now()
		case time.Since(since) > soon:
			t.Fatalf("%d pods, want %d, and no other one for %s", last, pods, soon)
		}
	}
}

// end waits until the last pods have ended.
func (s *podStream) end() {
	s.over.Store(true)
	<-s.done
}

// stuck creates no more pods, waits until only pods are left whose containers cannot be created, and deletes and counts
// them.
func (s *podStream) stuck(t *testing.T) (stuck int) {
	t.Helper()
	s.over.Store(true)
	ctx, pods := stage.Within(t, 2*soon), clientset.Of(s.Node).CoreV1().Pods("default")
	for {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		stage.Check(t, err)
		running, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		stage.Check(t, err)
		waits := slices.DeleteFunc(slices.Clone(list.Items), goesOn)
		if len(running.Items) == 0 && len(waits) == len(list.Items) {
			for _, p := range waits {
				t.Logf("pod %s: %s", p.Name, p.Status.ContainerStatuses[0].State.Waiting.Message)
				stage.Check(t, pods.Delete(ctx, p.Name, metav1.DeleteOptions{}))
			}
			return len(waits)
		}
		time.Sleep(time.Second)
	}
}

// goesOn reports whether a pod is not stuck.
func goesOn(p corev1.Pod) bool {
	all := p.Status.ContainerStatuses
	return len(all) == 0 || all[0].State.Waiting == nil || all[0].State.Waiting.Reason != "CreateContainerError"
}

func (s *podStream) next(ctx context.Context, t *testing.T) {
	if s.over.Load() {
		return
	}
	var pod corev1.Pod
	err := yaml.Unmarshal(s.pod(fmt.Sprint(s.created.Add(1))), &pod)
	if err == nil {
		_, err = clientset.Of(s.Node).CoreV1().Pods("default").Create(ctx, &pod, metav1.CreateOptions{})
	}
	if err != nil {
		t.Errorf("cannot create pod %q: %v", pod.Name, err)
		return
	}
	s.running[pod.Name] = time.Now()
}

// see counts a pod that has ended, and creates the next one in its place.
func (s *podStream) see(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	since, running := s.running[pod.Name]
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if !running || !ended {
		return
	}
	delete(s.running, pod.Name)
	switch {
	case pod.Status.Phase == corev1.PodFailed && s.failed != nil:
		s.failed(pod)
	case pod.Status.Phase == corev1.PodFailed:
		s.refused++
		t.Errorf("pod %s: %s: %s %+v", pod.Name, pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
	default:
		s.admitted++
		s.sum += time.Since(since)
		s.longest = max(s.longest, time.Since(since))
	}
	if err := clientset.Of(s.Node).CoreV1().Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("cannot delete pod %q: %v", pod.Name, err)
	}
	s.next(ctx, t)
}
