package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
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

// TestUnrequested: whoever uses a device that nobody gave to them is named in the status, the metric and an event: a
// privileged pod, a pod that uses others than its own, a process of the host. Pods that use what they were given, by
// the device plugin and by claims, never are, however short they live.
//
// ACCELD_PODS says how many short pods there are each time.
func TestUnrequested(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: strangers})
	stage.Check(t, s.Units(t.Context(), n.Guest, byDevicePlugin))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), n.Guest))
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, strangers))
	inOrder(
		t, n, image,
		part{"a privileged pod, a pod that uses others, a process of the host", strangersNamed},
		part{"a kubelet that is away", strangersUnknown},
		part{"pods by the device plugin are never named", podsNeverNamed},
		part{"pods by claims are never named", claimantsNeverNamed},
	)
}

// strangers is how many devices the node has.
const strangers = 3

// privileged makes the containers of a pod privileged: they see every device of the host.
func privileged(pod []byte) []byte {
	return bytes.Replace(pod, []byte("    args:"), []byte("    securityContext: {privileged: true}\n    args:"), 1)
}

// unasked waits until the devices are used without a request by so many, each as the number of its node says, and
// returns their users.
func unasked(t *testing.T, n *bed.Node, counts ...int) (users []accel.UnrequestedUser) {
	t.Helper()
	_, err := stage.WaitMachine(stage.Within(t, 2*time.Minute), n.Guest, fmt.Sprintf("%v users without a request", counts),
		func(m accel.Machine) bool {
			var got []int
			users = nil
			for _, a := range m.Have[stage.Kind].Accelerators {
				if a.Unrequested == nil || a.Unrequested.Unknown != "" {
					return false
				}
				got = append(got, a.Unrequested.Count)
				users = append(users, a.Unrequested.Users...)
			}
			return slices.Equal(got, counts)
		})
	stage.Check(t, err)
	return users
}

// useEvents returns the notes of the events about use without a request.
func useEvents(t *testing.T, n *bed.Node) (notes []string) {
	t.Helper()
	events, err := clientset.Of(n).EventsV1().Events("default").List(stage.Within(t, soon),
		metav1.ListOptions{FieldSelector: "reason=" + string(accel.UnrequestedUse)})
	stage.Check(t, err)
	for _, e := range events.Items {
		notes = append(notes, e.Note)
	}
	return notes
}

func strangersNamed(t *testing.T, n *bed.Node, image string) {
	g := n.Guest
	nodes := strings.Fields(sh(t, g, `cd /sys/bus/pci/devices; for d in $*; do echo /dev/$(ls $d/accelerator_edu); done`,
		addresses(t, g)...))
	unasked(t, n, 0, 0, 0)
	begin := time.Now()
	// The first device by a pod that asks for none, the second by a process of the host. The third pod asks for one,
	// gets any, and uses all.
	apply(t, n, privileged(bytes.Replace(stage.Pod("look", image, 1, "-devices", nodes[0], "-hold", "2h"),
		fmt.Appendf(nil, "%s: 1", stage.Resource), []byte("memory: 64Mi"), 1)))
	sh(t, g, "systemd-run --unit=stranger /usr/bin/edu-check -devices "+nodes[1]+" -hold 2h")
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "look", corev1.PodRunning))
	users := unasked(t, n, 1, 1, 0)
	t.Logf("named after %.0f s", time.Since(begin).Seconds())
	if users[0].Pod != "look" || users[0].Comm != "edu-check" || len(users[0].Given) > 0 ||
		users[1].Comm != "edu-check" || users[1].PodUID != "" || users[1].Unit != "" { // TCP names no services
		t.Errorf("%+v", users)
	}
	apply(t, n, privileged(stage.Pod("others", image, 1, "-devices", strings.Join(nodes, ","), "-hold", "2h")))
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "others", corev1.PodRunning))
	var given string
	_, err := stage.WaitMachine(stage.Within(t, 6*time.Minute), g, "the pod to be named on the others", func(m accel.Machine) bool {
		on := 0
		for _, a := range m.Have[stage.Kind].Accelerators {
			for _, u := range a.Unrequested.Users {
				if u.Pod == "others" && len(u.Given) == 1 && u.Given[0] != a.ID {
					on++
					given = u.Given[0]
				}
			}
		}
		return on == strangers-1
	})
	stage.Check(t, err)
	status := sh(t, g, "acceld status")
	t.Logf("acceld status:\n%s", status)
	for _, want := range []string{
		"pod default/look, to which no device of the kind is given", "(of the host, in stranger.service)",
		"pod default/others, to which " + given + " is given",
	} {
		if !strings.Contains(strings.Join(strings.Fields(status), " "), want) {
			t.Errorf("the status does not say %q", want)
		}
	}
	if sum := sh(t, g, unrequestedUsers); sum != "4" {
		t.Errorf("the metric counts %s, want 4", sum)
	}
	for deadline := time.Now().Add(soon); ; time.Sleep(time.Second) {
		notes := strings.Join(useEvents(t, n), "\n")
		if strings.Contains(notes, "default/look") && strings.Contains(notes, "stranger.service") &&
			strings.Contains(notes, "default/others") {
			t.Logf("events:\n%s", notes)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("events:\n%s", notes)
		}
	}
	before := len(useEvents(t, n))
	time.Sleep(90 * time.Second) // three looks
	if now := useEvents(t, n); len(now) != before {
		t.Errorf("events about what is known:\n%s", strings.Join(now, "\n"))
	}
	if healthy := sh(t, g, "acceld status -o json | grep -c '\"state\": \"healthy\"'"); healthy != strconv.Itoa(strangers) {
		t.Errorf("%s devices are healthy", healthy)
	}
}

// unrequestedUsers prints the sum of the metric over all devices.
const unrequestedUsers = `curl -fsS http://127.0.0.1:9480/metrics | awk '/^accelerator_unrequested_users/ {n += $2} END {print n+0}'`

// strangersUnknown goes on where strangersNamed ends.
func strangersUnknown(t *testing.T, n *bed.Node, _ string) {
	sh(t, n.Guest, "systemctl stop kubelet")
	_, err := stage.WaitMachine(stage.Within(t, 2*time.Minute), n.Guest, "it not to be known", func(m accel.Machine) bool {
		return !slices.ContainsFunc(m.Have[stage.Kind].Accelerators, func(a accel.Accelerator) bool {
			return a.Unrequested.Unknown == "" || a.Unrequested.Count > 0
		})
	})
	stage.Check(t, err)
	if series := sh(t, n.Guest, "curl -fsS http://127.0.0.1:9480/metrics | grep -c ^accelerator_unrequested_users || true"); series != "0" {
		t.Errorf("%s series say what is not known", series)
	}
	before := len(useEvents(t, n))
	sh(t, n.Guest, "systemctl start kubelet")
	_, err = stage.WaitMachine(stage.Within(t, 3*time.Minute), n.Guest, "it to be known again", func(m accel.Machine) bool {
		sum := 0
		for _, a := range m.Have[stage.Kind].Accelerators {
			sum += a.Unrequested.Count
		}
		return sum == 4
	})
	stage.Check(t, err)
	if now := useEvents(t, n); len(now) != before {
		t.Errorf("events about what was known before:\n%s", strings.Join(now, "\n"))
	}
	sh(t, n.Guest, "systemctl stop stranger")
	remove(t, n, "look", "others")
	unasked(t, n, 0, 0, 0)
	if sum := sh(t, n.Guest, unrequestedUsers); sum != "0" {
		t.Errorf("the metric counts %s, want 0", sum)
	}
}

// neverNamed runs a stream of short pods, and holds that none is ever named.
func neverNamed(t *testing.T, n *bed.Node, pod func(name string) []byte) {
	t.Helper()
	pods := wanted("ACCELD_PODS", 40)
	before := len(useEvents(t, n))
	s := newPodStream(n, pod)
	s.start(t, 2)
	defer s.end()
	s.reach(t, pods, func() {
		if sum := sh(t, n.Guest, unrequestedUsers); sum != "0" {
			t.Errorf("%s are named:\n%s", sum, sh(t, n.Guest, "acceld status"))
		}
	})
	s.end()
	t.Logf("%d pods, none named", s.admitted)
	if now := useEvents(t, n); len(now) != before {
		t.Errorf("events:\n%s", strings.Join(now, "\n"))
	}
}

func podsNeverNamed(t *testing.T, n *bed.Node, image string) {
	apply(t, n, stage.Pod("long", image, 1, "-expect", "1", "-hold", "2h"))
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "long", corev1.PodRunning))
	neverNamed(t, n, func(name string) []byte { return stage.Pod("short-"+name, image, 1, "-expect", "1", "-hold", "12s") })
	remove(t, n, "long")
}

func claimantsNeverNamed(t *testing.T, n *bed.Node, image string) {
	stage.Check(t, n.WriteFile(stage.Within(t, soon), "/etc/acceld/config.yaml", []byte(byClaims), 0o644))
	offers(t, n, strangers)
	// A claim of two pods is prepared once: the second pod is on no record of this host.
	apply(t, n, stage.ClaimTemplate("short"), stage.Claim("both"))
	for _, name := range []string{"one", "two"} {
		apply(t, n, stage.ClaimPod(name, image, "resourceClaimName: both", "-expect", "1", "-hold", "2h"))
		stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", name, corev1.PodRunning))
	}
	neverNamed(t, n, func(name string) []byte {
		return stage.ClaimPod("claim-"+name, image, "resourceClaimTemplateName: short", "-expect", "1", "-hold", "12s")
	})
	removeClaims(t, n, "one", "two", "both")
}
