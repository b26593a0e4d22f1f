package extender

import (
	"maps"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/acceld/acceld/controller/fit"
)

// facts are what the cache needs of a node.
type facts struct{ fit.Facts }

// GetObjectMeta names the node for client-go's store.
func (f *facts) GetObjectMeta() metav1.Object { return &metav1.ObjectMeta{Name: f.Name} }

// GetObjectMeta names the pod for client-go's store.
func (p *Pod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}
}

// nothing stands for every object that the cache does not need.
const nothing = cache.ExplicitKey("")

// Facts extracts from a node what the rules read.
func Facts(r *fit.Rules, n *corev1.Node) fit.Facts {
	f := fit.Facts{Name: n.Name, Labels: map[string]string{}, Allocatable: map[string]int64{}}
	for key, value := range n.Labels {
		if strings.HasPrefix(key, r.LabelPrefix) || strings.HasPrefix(key, r.Telemetry) {
			f.Labels[key] = value
		}
	}
	for name, q := range n.Status.Allocatable {
		if _, ok := r.Resource(string(name)); ok {
			f.Allocatable[string(name)] = fit.Floor(q)
		}
	}
	if text, ok := n.Annotations[fit.InventoryAnnotation]; ok {
		cards, err := fit.ParseInventory(text)
		if f.Inventory = cards; err != nil {
			f.Broken = err.Error()
		}
	}
	return f
}

// sameCard reports whether two cards of an inventory are equal.
func sameCard(a, b fit.Card) bool {
	return a.Name == b.Name && a.Off == b.Off && (a.NUMA == nil) == (b.NUMA == nil) &&
		(a.NUMA == nil || *a.NUMA == *b.NUMA) && maps.EqualFunc(a.Has, b.Has, resource.Quantity.Equal)
}

// Trim extracts from a pod what the cache needs; nil if the pod asks for no tracked resource.
func (b *Cache) Trim(p *corev1.Pod) *Pod {
	asked := asks(b.rules, p.Spec.InitContainers, p.Spec.Containers)
	if asked == nil {
		return nil
	}
	shape := b.shape(asked)
	if !shape.Wants() && len(shape.Wide) == 0 {
		return nil
	}
	a := &b.rules.Annotations
	return &Pod{
		Record: fit.Record{
			UID: string(p.UID), Namespace: once(p.Namespace), Name: p.Name, Shape: shape,
			Cards: once(choice(p, a.Cards)), Tiles: choice(p, a.Tiles),
			InitCards: choice(p, a.InitCards), InitTiles: choice(p, a.InitTiles),
		},
		Node: once(p.Spec.NodeName),
		// the first status comes after admission
		Taken: p.Status.StartTime != nil || p.Status.Phase == corev1.PodRunning,
		Over:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
}

// maxChoice is the size in bytes of the longest choice of cards that is read. Whoever creates a pod can write one, and
// each is read again whenever a pod of the node ends.
const maxChoice = 16 << 10

// choice returns an annotation of a pod that names its cards. One that is too long names none.
func choice(p *corev1.Pod, key string) string {
	if text := p.Annotations[key]; len(text) <= maxChoice {
		return text
	}
	return ""
}

// once keeps one copy of a string that many pods share.
func once(s string) string { return unique.Make(s).Value() }

// annotations returns the annotations that a request is read from.
func annotations(r *fit.Rules, all map[string]string) map[string]string {
	a := &r.Annotations
	keep := map[string]string{}
	for _, key := range []string{a.Allow, a.Deny, a.Same, a.Linked, a.SingleNUMA} {
		if value, ok := all[key]; ok {
			keep[key] = value
		}
	}
	return keep
}

// asks returns what the containers of a pod ask for, in the order in which they start; nil if none asks for a
// resource with the prefix. If a container has a limit but no request for a resource, it asks for the limit, like the
// API's defaults.
func asks(r *fit.Rules, inits, apps []corev1.Container) []fit.Asked {
	var out []fit.Asked
	some := false
	one := func(c *corev1.Container, when fit.When) {
		a := fit.Asked{Name: c.Name, When: when}
		for _, amounts := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
			for name, q := range amounts {
				if _, ok := r.Resource(string(name)); ok {
					if a.Amounts == nil {
						a.Amounts = map[string]int64{}
					}
					a.Amounts[string(name)], some = fit.Ceil(q), true
				}
			}
		}
		out = append(out, a)
	}
	for i := range inits {
		when := fit.Init
		if p := inits[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			when = fit.Sidecar
		}
		one(&inits[i], when)
	}
	for i := range apps {
		one(&apps[i], fit.App)
	}
	if !some {
		return nil
	}
	return out
}
