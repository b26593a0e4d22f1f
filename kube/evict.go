package kube

import (
	"context"
	"fmt"
	"maps"
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

// Evict asks the API server to evict all pods among holders, and returns without waiting for their end. It respects
// disruption budgets: a pod that may not be disrupted now gives EvictionRefused, and the caller must ask again. It
// ignores holders that are not pods. A pod that is gone is no problem.
func (k *Kube) Evict(ctx context.Context, holders []accel.Holder) *accel.Problem {
	targets, problem := k.resolve(ctx, holders)
	if problem != nil {
		return problem
	}
	var refusals []string
	for _, name := range slices.SortedFunc(maps.Keys(targets), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	}) {
		e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		if uid := types.UID(targets[name]); uid != "" { // another pod may have the name now
			e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		}
		limited, cancel := context.WithTimeout(ctx, deadline)
		err := k.c.Client.Pods.Evict(limited, e)
		cancel()
		switch {
		case err == nil:
			k.c.Log.Info("pod evicted", "namespace", name.Namespace, "pod", name.Name)
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the pod is gone, or another one has its name
		case apierrors.IsTooManyRequests(err):
			refusals = append(refusals, fmt.Sprintf("%s: %v", name, err))
		default:
			return podProblem("evict pod "+name.String(), err)
		}
	}
	if len(refusals) > 0 {
		return accel.Problemf(accel.EvictionRefused, "the API server refuses to evict %s", strings.Join(refusals, "; "))
	}
	return nil
}

// resolve returns the names and UIDs of the pods among holders.
func (k *Kube) resolve(ctx context.Context, holders []accel.Holder) (map[types.NamespacedName]string, *accel.Problem) {
	targets, unnamed := map[types.NamespacedName]string{}, map[string]bool{}
	for _, h := range holders {
		switch {
		case h.Pod != "":
			targets[types.NamespacedName{Namespace: h.Namespace, Name: h.Pod}] = h.PodUID
		case h.PodUID != "":
			unnamed[h.PodUID] = true
		}
	}
	if len(unnamed) == 0 {
		return targets, nil
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	list, err := k.c.Client.Pods.List(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", k.c.Node).String()})
	if err != nil {
		return nil, podProblem("list the pods of node "+k.c.Node, err)
	}
	for _, p := range list.Items {
		if unnamed[string(p.UID)] {
			targets[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = string(p.UID)
		}
	}
	return targets, nil
}

// podProblem gives an error about pods a reason.
func podProblem(attempted string, err error) *accel.Problem {
	if refused(err) {
		return accel.Problemf(accel.APIForbidden, "cannot %s: %v", attempted, err)
	}
	return accel.Problemf(accel.APIUnreachable, "cannot %s: %v", attempted, err)
}
