package policy

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/kube"
)

// validating returns a policy that asks for the validation of the kind.
func validating(alone bool, more object) object {
	w := object{
		"image": "registry.example.com/check:v1", "args": []any{"-expect", "1"}, "resource": "qemu.org/edu",
		"alone": alone,
	}
	v := object{"workloads": object{kind: w}, "timeout": "2m"}
	merge(v, more)
	return object{"spec": object{"kinds": object{kind: object{}}, "validation": v}}
}

// offering returns a node status with what the kubelet offers.
func offering(n string) object {
	return object{"status": object{"allocatable": object{"qemu.org/edu": n}}}
}

// user returns a pod of the node that has n devices.
func user(phase, n string) object {
	return object{
		"spec": object{
			"nodeName":   "a",
			"containers": []any{object{"resources": object{"limits": object{"qemu.org/edu": n}}}},
		},
		"status": object{"phase": phase},
	}
}

// phase returns a pod status, with the message of its container if that has ended.
func phase(name, message string) object {
	o := object{"spec": object{"nodeName": "a"}, "status": object{"phase": name}}
	if message != "" {
		part(o, "status")["containerStatuses"] = []any{object{"state": object{"terminated": object{"exitCode": 3, "message": message}}}}
	}
	return o
}

// ended returns the status of a pod that failed, and whose container was killed.
func ended(reason, message, container string) object {
	return object{"spec": object{"nodeName": "a"}, "status": object{
		"phase": "Failed", "reason": reason, "message": message,
		"containerStatuses": []any{object{
			"state": object{"terminated": object{"exitCode": 137, "reason": container}},
		}},
	}}
}

// trialsOf returns the paths of the pods that validate.
func trialsOf(s *server) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for name := range s.objects {
		if strings.HasPrefix(name, trialsPath+"/") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func outcomeOf(t *testing.T, s *server) validated {
	t.Helper()
	var n Node
	b, err := json.Marshal(s.get(nodePath("a")))
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	v := n.validated(kind)
	if label := n.Labels.get(validationLabel + kind); label != string(v.Outcome) {
		t.Errorf("the label says %q, the annotation %q", label, v.Outcome)
	}
	return v
}

// TestValidation: a node is validated once for each driver, alone and with a device, and the outcome is written to
// the node.
func TestValidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), offering("2"))
		s.edit("/api/v1/namespaces/x/pods/over", user("Succeeded", "2"))
		s.edit(policyPath, validating(true, nil))
		_, stop := start(t, s)
		defer stop()
		only := func(does check) string {
			t.Helper()
			wait(10 * time.Second)
			all := trialsOf(s)
			if len(all) != 1 || !strings.Contains(all[0], "/validate-"+string(does)+"-") {
				t.Fatalf("pods %v, want one of %s", all, does)
			}
			return all[0]
		}
		pod := only(checkAlone)
		spec := part(s.get(pod), "spec")
		container := spec["containers"].([]any)[0].(object)
		if part(container, "securityContext")["privileged"] != true || container["resources"] != nil ||
			spec["priorityClassName"] != validationClass || spec["nodeName"] != nil {
			t.Errorf("%v", spec)
		}
		if s.get(classesPath + "/" + validationClass)["preemptionPolicy"] != "Never" {
			t.Error("a validation may preempt somebody")
		}
		s.edit(pod, phase("Running", ""))
		only(checkAlone)
		s.edit(pod, phase("Succeeded", ""))
		pod = only(checkDevice)
		container = part(s.get(pod), "spec")["containers"].([]any)[0].(object)
		if diff := cmp.Diff(object{"limits": object{"qemu.org/edu": "1"}}, part(container, "resources")); diff != "" ||
			part(container, "securityContext")["privileged"] != nil {
			t.Errorf("%v %s", container, diff)
		}
		s.edit(pod, phase("Succeeded", ""))
		wait(10 * time.Second)
		if v := outcomeOf(t, s); v.Outcome != validationPassed || v.Alone != "passed" ||
			!strings.HasPrefix(v.Of, "1 ") || len(trialsOf(s)) != 0 {
			t.Errorf("%+v, pods %v", v, trialsOf(s))
		}
		writes := len(s.written())
		wait(3 * time.Hour)
		if len(s.written()) != writes {
			t.Errorf("validated again for nothing: %v", s.written()[writes:])
		}
		// Another driver, which fails the check. The pod stays, for its log.
		s.edit(nodePath("a"), object{"metadata": object{"labels": object{versionKey: "2"}}})
		pod = only(checkAlone)
		s.edit("/api/v1/namespaces/x/pods/busy", user("Running", "1")) // after it began
		s.edit(pod, phase("Failed", "11! is\n wrong"))
		wait(10 * time.Second)
		if v := outcomeOf(t, s); v.Outcome != validationFailed || v.Why != "exit status 3: 11! is wrong" ||
			v.Alone != "failed" || len(trialsOf(s)) != 1 {
			t.Errorf("%+v, pods %v", v, trialsOf(s))
		}
		wait(3 * time.Hour)
		only(checkAlone)
		// Another workload: one device is in use, so the check alone is skipped.
		s.edit(policyPath, validating(true,
			object{"workloads": object{kind: object{"image": "registry.example.com/check:v2"}}}))
		only(checkDevice)
		s.edit(nodePath("a"), object{"metadata": object{"labels": object{servesKey: "pending"}}})
		wait(10 * time.Second)
		if all := trialsOf(s); len(all) != 0 {
			t.Errorf("the driver is on its way, and there are %v", all)
		}
		s.edit(nodePath("a"), object{"metadata": object{"labels": object{servesKey: "ready"}}})
		pod = only(checkDevice)
		s.edit(pod, phase("Succeeded", ""))
		wait(10 * time.Second)
		if v := outcomeOf(t, s); v.Outcome != validationPassed || !strings.HasPrefix(v.Alone, "skipped: 1 of 2") {
			t.Errorf("%+v", v)
		}
		s.edit(policyPath, object{"spec": object{"validation": nil}})
		wait(10 * time.Second)
		if v := outcomeOf(t, s); v.Outcome != "" {
			t.Errorf("nobody asks, and the node says %+v", v)
		}
	})
}

// TestValidationSkipped: no pod loses its device to a validation. A skipped validation is reported and tried again.
func TestValidationSkipped(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *server)
		pod  object // the status that the pod gets; nil if there is no pod
		why  string
	}{
		{"all are in use", func(s *server) {
			s.edit("/api/v1/namespaces/x/pods/busy", user("Pending", "2"))
		}, nil, "all 2 of qemu.org/edu are in use"},
		{"the node gives none out", func(s *server) {
			s.edit(nodePath("a"), offering("0"))
		}, nil, "the kubelet offers no qemu.org/edu"},
		{"the manifests are missing", func(s *server) {
			s.refuse = func(method, path string, _ object) error {
				if method == http.MethodPost && path == trialsPath {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
				}
				return nil
			}
		}, nil, "forbidden"},
		{
			"somebody was faster at the scheduler", func(*server) {},
			object{"status": object{"phase": "Pending", "conditions": []any{
				object{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"},
			}}},
			"no device was free: 0/1 nodes are available",
		},
		{
			"somebody was faster at the kubelet", func(*server) {},
			object{
				"spec": object{"nodeName": "a"},
				"status": object{
					"phase": "Failed", "reason": "UnexpectedAdmissionError",
					"message": "no healthy devices",
				},
			},
			"UnexpectedAdmissionError no healthy devices",
		},
		{"the node shut down", func(*server) {}, ended("NodeShutdown", "it shuts down", "Error"), "it shuts down"},
		{"the pod was evicted", func(*server) {}, ended("Evicted", "low on memory", "Error"), "low on memory"},
		{"the node restarted", func(*server) {}, ended("", "", "Unknown"), "exit status 137: Unknown"},
		{
			"the kubelet lost the container", func(*server) {}, ended("", "", "ContainerStatusUnknown"),
			"ContainerStatusUnknown",
		},
		{
			"somebody more important needed the place", func(*server) {},
			func() object {
				o := ended("", "preempted", "Error")
				part(o, "status")["conditions"] = []any{object{"type": "DisruptionTarget", "status": "True"}}
				return o
			}(),
			"preempted",
		},
		{
			"the registry is away", func(*server) {},
			object{
				"spec": object{"nodeName": "a"},
				"status": object{
					"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": []any{object{
						"state": object{"waiting": object{"reason": "ImagePullBackOff"}},
					}},
				},
			},
			"DeadlineExceeded",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(1)
				s.edit(nodePath("a"), aNode(nil))
				s.edit(nodePath("a"), offering("2"))
				c.do(s)
				s.edit(policyPath, validating(false, nil))
				_, stop := start(t, s)
				defer stop()
				wait(5 * time.Second)
				if all := trialsOf(s); (c.pod != nil) != (len(all) == 1) {
					t.Fatalf("pods %v", all)
				} else if c.pod != nil {
					s.edit(all[0], c.pod)
				}
				wait(unscheduled + 10*time.Second)
				if v := outcomeOf(t, s); v.Outcome != validationSkipped || !strings.Contains(v.Why, c.why) ||
					len(trialsOf(s)) != 0 {
					t.Errorf("%+v, pods %v", v, trialsOf(s))
				}
				writes := len(s.written())
				wait(skippedFor / 2)
				if len(s.written()) != writes {
					t.Errorf("tried again too soon: %v", s.written()[writes:])
				}
				s.mu.Lock()
				s.refuse = nil
				s.put("/api/v1/namespaces/x/pods/busy", "DELETED",
					object{"metadata": object{"name": "busy", "namespace": "x"}})
				s.mu.Unlock()
				s.edit(nodePath("a"), offering("2"))
				wait(skippedFor)
				if again := s.written()[writes:]; !slices.Contains(again, "POST "+trialsPath) {
					t.Errorf("not tried again: %v", again)
				}
			})
		})
	}
}

// TestDisturbed: a pod whose container ran too long or ended by itself was not disturbed.
func TestDisturbed(t *testing.T) {
	for name, o := range map[string]object{
		"it hung and was killed": ended("DeadlineExceeded", "", "Error"),
		"it hangs still": {"status": object{
			"phase": "Failed", "reason": "DeadlineExceeded",
			"containerStatuses": []any{object{"state": object{"running": object{}}}},
		}},
		"it failed": ended("", "", "Error"),
	} {
		b, err := json.Marshal(o)
		p := &pod{}
		if err == nil {
			err = json.Unmarshal(b, p)
		}
		if err != nil || p.disturbed() {
			t.Errorf("%s: disturbed %v, %v", name, p.disturbed(), err)
		}
	}
}

// TestValidationOfferedLate: the kubelet reports its devices a little after the agent reports that it serves. The
// delay does not count as "none".
func TestValidationOfferedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), offering("0"))
		s.edit(policyPath, validating(false, nil))
		_, stop := start(t, s)
		defer stop()
		wait(unscheduled / 2)
		if all := s.written(); len(trialsOf(s)) != 0 || slices.Contains(all, "PATCH "+nodePath("a")) {
			t.Errorf("pods %v, written %v", trialsOf(s), all)
		}
		s.edit(nodePath("a"), offering("2"))
		wait(unscheduled / 5)
		if len(trialsOf(s)) != 1 {
			t.Error("no pod, and the kubelet offers two")
		}
	})
}

// TestValidationParallel: at most so many nodes are validated at a time.
func TestValidationParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for _, name := range []string{"a", "b", "c"} {
			s.edit(nodePath(name), aNode(nil))
			s.edit(nodePath(name), offering("1"))
		}
		s.edit(policyPath, validating(false, object{"maxParallel": 2}))
		_, stop := start(t, s)
		defer stop()
		wait(10 * time.Second)
		if all := trialsOf(s); len(all) != 2 {
			t.Errorf("pods %v", all)
		}
		wait(4 * time.Minute) // no node runs them: they stay unscheduled
		if got := status(t, s); got.Nodes.Matched != 3 {
			t.Errorf("%+v", got)
		}
		for _, name := range []string{"a", "b", "c"} {
			label, _ := part(part(s.get(nodePath(name)), "metadata"), "labels")[kube.Prefix+"validation-"+kind].(string)
			if label != string(validationSkipped) {
				t.Errorf("%s is %q", name, label)
			}
		}
	})
}

// TestValidationUnprivileged: if privileged pods are not admitted, the check with a device still runs.
func TestValidationUnprivileged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), offering("1"))
		s.refuse = func(method, path string, sent object) error {
			if method != http.MethodPost || path != trialsPath {
				return nil
			}
			if name, _ := part(sent, "metadata")["name"].(string); strings.HasPrefix(name, "validate-alone-") {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name,
					errors.New("violates PodSecurity"))
			}
			return nil
		}
		s.edit(policyPath, validating(true, nil))
		_, stop := start(t, s)
		defer stop()
		wait(10 * time.Second)
		all := trialsOf(s)
		if len(all) != 1 {
			t.Fatalf("pods %v", all)
		}
		s.edit(all[0], phase("Succeeded", ""))
		wait(10 * time.Second)
		if v := outcomeOf(t, s); v.Outcome != validationPassed || !strings.HasPrefix(v.Alone, "skipped: ") ||
			!strings.Contains(v.Alone, "violates PodSecurity") {
			t.Errorf("%+v", v)
		}
	})
}
