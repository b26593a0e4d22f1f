package policy

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// trialsPath is the path of the pods of validations.
const trialsPath = "/api/v1/namespaces/" + ValidationNamespace + "/pods"

// create creates the pod of a validation. Alone is the result of the check without the resource.
func (c *Controller) create(ctx context.Context, x task, does check, alone string) {
	if !c.classed {
		// A validation preempts nobody, and any other pod may preempt it.
		err := c.api.create(ctx, classesPath, object{
			"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": object{"name": validationClass},
			"value": -1000, "preemptionPolicy": "Never",
			"description": "Of the pods with which acceld validates nodes.",
		}, nil)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			c.failed(ctx, "making a priority class", validationClass, err)
			return
		}
		c.classed = true
	}
	answer := &pod{}
	err := c.api.create(ctx, trialsPath, x.manifest(does, alone), answer)
	switch {
	case err == nil:
		c.trials.Put(answer)
		c.o.Log.Info("node is being validated", "node", x.node.Name, "kind", x.kind, "check", does)
	case apierrors.IsAlreadyExists(err): // the previous one is still being deleted
	case apierrors.IsForbidden(err) && does == checkAlone: // the namespace admits no privileged pods
		c.create(ctx, x, checkDevice, shorten("skipped: "+err.Error()))
	// packaging/manifests/validation is missing
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		c.conclude(ctx, x, validated{Outcome: validationSkipped, Why: err.Error()})
	default:
		c.failed(ctx, "making a pod of a validation", x.pod(does), err)
	}
}

// manifest returns the pod of a check.
func (x task) manifest(does check, alone string) object {
	container := object{
		"name": "validate", "image": x.workload.Image, "terminationMessagePolicy": "FallbackToLogsOnError",
		"resources":       object{"limits": object{x.workload.Resource: "1"}},
		"securityContext": object{"allowPrivilegeEscalation": false},
	}
	if len(x.workload.Command) > 0 {
		container["command"] = x.workload.Command
	}
	if len(x.workload.Args) > 0 {
		container["args"] = x.workload.Args
	}
	if does == checkAlone {
		container["securityContext"] = object{"privileged": true}
		delete(container, "resources")
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": x.pod(does), "namespace": ValidationNamespace,
			"labels":      object{"app.kubernetes.io/name": "acceld-validation", "acceld.dev/kind": x.kind},
			"annotations": object{"of": x.of, "check": string(does), "alone": alone, "node": x.node.Name},
		},
		"spec": object{
			"restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
			"activeDeadlineSeconds":        int(x.timeout.Seconds()),
			"automountServiceAccountToken": false, "enableServiceLinks": false, "priorityClassName": validationClass,
			"tolerations": []object{{"operator": "Exists"}},
			// Let the scheduler bind the pod, because it counts devices. A pod that names its node would take a
			// device that the scheduler has given to another pod.
			"affinity": object{"nodeAffinity": object{
				"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{{
					"matchFields": []object{{
						"key": "metadata.name", "operator": "In",
						"values": []string{x.node.Name},
					}},
				}}},
			}},
			"containers": []object{container},
		},
	}
}
