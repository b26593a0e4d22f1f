package policy

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

const (
	inNamespace = "/namespaces/acceld-system/"
	purgeSetAt  = "/apis/apps/v1" + inNamespace + "daemonsets/" + RemovalName
	leasesAt    = "/apis/coordination.k8s.io/v1" + inNamespace + "leases/"
	claimsAt    = "/apis/resource.k8s.io/v1/"
)

// managed returns a managedFields entry: manager has written the labels.
func managed(manager string, labels ...string) object {
	fields := object{}
	for _, l := range labels {
		fields["f:"+l] = object{}
	}
	return object{
		"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
		"fieldsV1": object{"f:metadata": object{"f:labels": fields}},
	}
}

// inUse sets up a cluster: two nodes of a policy with taints, classes and a rollout, one node that is being drained,
// one whose agent is a unit, nodes that have been validated, and the other objects that acceld creates.
func inUse(t *testing.T, s *server) (before map[string]object) {
	t.Helper()
	pci, kernel := "feature.node.kubernetes.io/pci-1234.present", "feature.node.kubernetes.io/kernel-version.full"
	before = map[string]object{}
	for _, name := range []string{"a", "b", "unit"} {
		n := object{
			"metadata": object{"labels": object{"team": "x", kernel: "6.1"}},
			"spec":     object{"taints": []any{object{"key": "theirs", "effect": "NoSchedule"}}},
			"status":   object{"conditions": []any{object{"type": "Ready", "status": "True"}}},
		}
		before[name] = clone(n)
		merge(n, aNode(object{pci: "true"}))
		merge(n, annotate(kube.OriginAnnotation, kube.OriginPod))
		part(n, "metadata")["managedFields"] = []any{managed("acceld", pci, kernel), managed("nfd-master", kernel)}
		if name == "unit" {
			merge(n, annotate(kube.OriginAnnotation, kube.OriginUnit))
			before[name] = clone(n)
		}
		s.edit(nodePath(name), n)
	}
	s.edit(nodePath("a"), annotate(wordKey, "waiting 2", historyKey, "[]"))
	more := object{"partition": object{
		"taints": []any{object{"key": "ours", "effect": "NoSchedule"}},
		"priorityClasses": object{
			"high": object{"name": "edu-high", "value": 5},
			"low":  object{"name": "edu-low", "value": -5},
		},
	}, "nodeSelector": object{"team": "x"}}
	s.edit(policyPath, fleetPolicy("2", object{"cordon": true}, more))
	s.edit(leasesAt+"acceld-build-0123", object{"metadata": object{"namespace": "acceld-system"}})
	s.edit(leasesAt+"theirs", object{"metadata": object{"namespace": "acceld-system"}})
	s.edit(claimsAt+"resourceslices/s1", object{"spec": object{"driver": "qemu-edu.acceld.dev"}})
	s.edit(claimsAt+"resourceslices/s2", object{"spec": object{"driver": "gpu.example.com"}})
	s.edit(claimsAt+"deviceclasses/qemu-edu.acceld.dev",
		object{"metadata": object{"managedFields": []any{managed("acceld")}}})
	s.edit(claimsAt+"deviceclasses/half.qemu-edu.acceld.dev",
		object{"metadata": object{"managedFields": []any{managed("kubectl")}}})
	s.edit(definitionPath, object{})
	s.edit(recordsPath, object{})
	_, stop := start(t, s)
	wait(time.Minute)
	stop()
	a := s.get(nodePath("a"))
	if part(a, "spec")["unschedulable"] != true || len(list(part(a, "spec")["taints"])) != 2 ||
		annotation(a, grantKey) == "" || s.get(classesPath+"/edu-high") == nil {
		t.Fatalf("the cluster is not in use: %v", a)
	}
	for _, name := range []string{"a", "unit"} {
		s.edit(nodePath(name), object{"metadata": object{
			"labels":      object{validationLabel + kind: string(validationPassed)},
			"annotations": object{validationAnnotation + kind: `{"of":"1 0123","outcome":"passed"}`},
		}})
	}
	s.edit(classesPath+"/"+validationClass, object{"metadata": object{"managedFields": []any{managed(fieldManager)}}})
	return before
}

// remove runs a removal; the channel has its error.
func remove(t *testing.T, s *server, timeout time.Duration) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- Remove(ctx, Options{API: s, Namespace: "acceld-system", Log: slog.New(slog.DiscardHandler)})
	}()
	return done
}

// agentAndPurge adds an agent's pod on node a, and the purge set for a number of nodes, one of which is ready. It
// returns the path of the pod.
func agentAndPurge(s *server, nodes int) (agent string) {
	agent = "/api/v1" + inNamespace + "pods/acceld-x"
	s.edit(agent, object{
		"metadata": object{
			"namespace": "acceld-system",
			"labels":    object{"app.kubernetes.io/name": "acceld"},
		},
		"spec": object{"nodeName": "a"},
	})
	s.edit(purgeSetAt, object{
		"metadata": object{"namespace": "acceld-system"},
		"status":   object{"observedGeneration": 1, "desiredNumberScheduled": nodes, "numberReady": 1},
	})
	return agent
}

// After a removal the cluster is as it was before, except for what others have created or written since, and for
// agents that are no pods.
func TestRemove(t *testing.T) {
	for name, faults := range map[string]int{"as it should be": 0, "with an API server that fails": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(3)
				before := inUse(t, s)
				s.edit(nodePath("b"), annotate(wordKey, "upgrading 2")) // its agent vanished during an upgrade
				agent := agentAndPurge(s, 2)
				s.faults = faults
				done := remove(t, s, time.Hour)
				wait(10 * time.Minute)
				if s.get(policyPath) != nil || s.get(classesPath+"/edu-high") != nil ||
					part(s.get(nodePath("a")), "spec")["unschedulable"] == true {
					t.Errorf("the policy is not undone: %v", s.get(policyPath))
				}
				if part(part(s.get(nodePath("a")), "metadata"), "labels")[servesKey] == nil {
					t.Error("labels went while there was an agent that writes them")
				}
				s.mu.Lock()
				s.put(agent, "DELETED", clone(s.objects[agent]))
				s.mu.Unlock()
				wait(10 * time.Minute)
				if part(part(s.get(nodePath("a")), "metadata"), "labels")[servesKey] == nil {
					t.Error("labels went before the nodes were taken back")
				}
				s.edit(purgeSetAt, object{"status": object{"numberReady": 2}})
				wait(10 * time.Minute)
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Fatal("it has not ended")
				}
				for node, want := range before {
					n := s.get(nodePath(node))
					for _, key := range []string{"labels", "annotations"} {
						if diff := cmp.Diff(part(part(want, "metadata"), key),
							part(part(n, "metadata"), key)); diff != "" {
							t.Errorf("%s of %s (-before +after):\n%s", key, node, diff)
						}
					}
					if diff := cmp.Diff(clone(part(want, "spec")), clone(part(n, "spec"))); diff != "" {
						t.Errorf("%s (-before +after):\n%s", node, diff)
					}
					if diff := cmp.Diff(clone(part(want, "status")), clone(part(n, "status"))); diff != "" {
						t.Errorf("%s (-before +after):\n%s", node, diff)
					}
				}
				left := slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(name string) bool {
					return strings.HasPrefix(name, nodesPath) || strings.Contains(name, "/events")
				})
				want := []string{
					purgeSetAt, leasesAt + "theirs", claimsAt + "deviceclasses/half.qemu-edu.acceld.dev",
					claimsAt + "resourceslices/s2",
				}
				if diff := cmp.Diff(want, left); diff != "" {
					t.Errorf("objects (-want +left):\n%s", diff)
				}
			})
		})
	}
}

// A removal that cannot end says what blocks it.
func TestRemoveSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(4)
		agentAndPurge(s, 3)
		for node, status := range map[string]object{
			"well": {"conditions": []any{object{"type": "Ready", "status": "True"}}},
			"inuse": {"initContainerStatuses": []any{object{"lastState": object{"terminated": object{
				"exitCode": 1,
				"message":  "left  /sys/module/edu  held by pod train\n",
			}}}}},
			"down": {},
		} {
			s.edit("/api/v1"+inNamespace+"pods/purge-"+node,
				object{
					"metadata": object{
						"namespace": "acceld-system",
						"labels":    object{"app.kubernetes.io/component": "acceld-purge"},
					}, "spec": object{"nodeName": node},
					"status": status,
				})
		}
		err := <-remove(t, s, time.Minute)
		if err == nil {
			t.Fatal("it says that nothing is left")
		}
		for _, want := range []string{
			"the agent on node a (pod acceld-system/acceld-x)",
			"node inuse: left  /sys/module/edu  held by pod train", "node down: it has not begun",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v lacks %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "node well") {
			t.Error(err)
		}
	})
}

// TestRemoveUnread: a removal that may not read policies does not take that for none.
func TestRemoveUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(4)
		s.edit(policyPath, fleetPolicy("2", object{}, nil))
		s.edit(definitionPath, object{})
		s.refuse = func(_, path string, _ object) error {
			if path == kube.PoliciesPath {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "acceleratorpolicies"}, "", nil)
			}
			return nil
		}
		err := <-remove(t, s, 5*time.Minute)
		if err == nil || !strings.Contains(err.Error(), "cannot read policies: ") || s.get(definitionPath) == nil {
			t.Errorf("it ended with %v; the definition of policies: %v", err, s.get(definitionPath))
		}
	})
}

// Annotations of grants and reports are recognised by name.
func TestPassing(t *testing.T) {
	for key, want := range map[string]bool{
		accel.ReportAnnotation + "x": true, accel.GrantAnnotation + "x": true,
		kube.OriginAnnotation: false, "acceld.dev/cards": false, "other": false,
	} {
		if passing(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
}
