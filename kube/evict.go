package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/acceld/acceld/accel"
)

// Pods is the part of the pods API that is needed.
type Pods interface {
	List(context.Context, metav1.ListOptions) (*corev1.PodList, error)
	Evict(context.Context, *policyv1.Eviction) error
}

// pods are the pods of every namespace.
type pods struct {
	client rest.Interface
	codec  runtime.ParameterCodec
}

func (p pods) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	err := p.client.Get().Resource("pods").VersionedParams(&o, p.codec).Do(ctx).Into(list)
	return list, err
}

func (p pods) Evict(ctx context.Context, e *policyv1.Eviction) error {
	return p.client.Post().Namespace(e.Namespace).Resource("pods").Name(e.Name).SubResource("eviction").Body(e).Do(
		ctx).Error()
}

// Evictor evicts pods in the course of one upgrade, as long as no device is given out. Use a new one for each.
type Evictor struct {
	kube *Kube
	// first are the UIDs of the pods of the node at the first call; nil before it.
	first map[types.UID]bool
}

// NewEvictor returns an evictor that has listed nothing yet.
func (k *Kube) NewEvictor() *Evictor { return &Evictor{kube: k} }

// Evict asks the API server to evict the pods among the holders that look finds, and returns without waiting for their
// end. It respects disruption budgets: a pod that may not be disrupted now gives EvictionRefused, and the caller must
// ask again. It ignores holders that are not pods. A pod that is gone, or is ending already, is no problem.
//
// The kubelet knows holders by name, and what it says may be old. Evict therefore lists the pods of the node before it
// calls look, and evicts only those that were there at its first call: a pod that was created since, under the name of
// a holder, has got no device and is not evicted.
func (e *Evictor) Evict(ctx context.Context, look func() []accel.Holder) *accel.Problem {
	k := e.kube
	listed, problem := k.podsOfNode(ctx)
	holders := look()
	if problem != nil {
		return forPods(problem, holders)
	}
	if e.first == nil {
		e.first = map[types.UID]bool{}
		for _, p := range listed {
			e.first[p.UID] = true
		}
	}
	listed = slices.DeleteFunc(listed, func(p corev1.Pod) bool { return !e.first[p.UID] || p.DeletionTimestamp != nil })
	var refusals []string
	for _, p := range listed {
		if !slices.ContainsFunc(holders, func(h accel.Holder) bool { return holds(h, p) }) {
			continue
		}
		name := p.Namespace + "/" + p.Name
		err := k.evict(ctx, p)
		switch {
		case err == nil:
			k.c.Log.Info("pod evicted", "namespace", p.Namespace, "pod", p.Name)
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the pod is gone, or another one has its name
		case apierrors.IsTooManyRequests(err):
			refusals = append(refusals, fmt.Sprintf("%s: %v", name, err))
		default:
			return podProblem("evict pod "+name, err)
		}
	}
	if len(refusals) > 0 {
		return accel.Problemf(accel.EvictionRefused, "the API server refuses to evict %s", strings.Join(refusals, "; "))
	}
	return nil
}

// forPods says which of the holders could not be evicted because of a problem. It returns nil if none is a pod.
func forPods(problem *accel.Problem, holders []accel.Holder) *accel.Problem {
	var names []string
	for _, h := range holders {
		if h.Pod != "" || h.PodUID != "" {
			names = append(names, cmp.Or(h.Pod, h.PodUID))
			if h.Namespace != "" {
				names[len(names)-1] = h.Namespace + "/" + h.Pod
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	const most = 3
	if names = slices.Compact(names); len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return accel.Problemf(problem.Reason, "cannot evict pod %s: %s", strings.Join(names, ", "), problem.Message)
}

// evict evicts one pod, and no other one of its name.
func (k *Kube) evict(ctx context.Context, p corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return k.c.Client.Pods.Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
}

// holds reports whether the pod is the holder. The UID decides if it is known: a process may have one that the name of
// its device's pod does not belong to.
func holds(h accel.Holder, p corev1.Pod) bool {
	if h.PodUID != "" {
		return h.PodUID == string(p.UID)
	}
	return h.Pod != "" && h.Pod == p.Name && h.Namespace == p.Namespace
}

// podsOfNode lists the pods of this node, sorted by name.
func (k *Kube) podsOfNode(ctx context.Context) ([]corev1.Pod, *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	list, err := k.c.Client.Pods.List(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", k.c.Node).String()})
	if err != nil {
		return nil, podProblem("list the pods of node "+k.c.Node, err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// podProblem gives an error about pods a reason.
func podProblem(attempted string, err error) *accel.Problem {
	if refused(err) {
		return accel.Problemf(accel.APIForbidden, "cannot %s: %v", attempted, err)
	}
	return accel.Problemf(accel.APIUnreachable, "cannot %s: %v", attempted, err)
}
