package extender

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/acceld/acceld/controller/fit"
)

// Facts are what the cache needs of a node, as others have written it. Most nodes of a cluster have the same ones but
// for the name.
type Facts struct {
	Name string
	// Labels and Allocatable are those of [fit.Facts].
	Labels      map[string]string
	Allocatable map[string]int64
	// Cards is the annotation that describes each card, if Described.
	Cards     string
	Described bool
}

// GetObjectMeta names the node for client-go's store.
func (f *Facts) GetObjectMeta() metav1.Object { return &metav1.ObjectMeta{Name: f.Name} }

// GetObjectMeta names the pod for client-go's store.
func (p *Pod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.Namespace(), Name: p.Name}
}

// nothing stands for every object that the cache does not need.
const nothing = cache.ExplicitKey("")

// TrimNode extracts from a node what the rules read.
func TrimNode(r *fit.Rules, n *corev1.Node) *Facts {
	f := &Facts{Name: n.Name}
	for key, value := range n.Labels {
		if strings.HasPrefix(key, r.LabelPrefix) || strings.HasPrefix(key, r.Telemetry) {
			if f.Labels == nil {
				f.Labels = map[string]string{}
			}
			f.Labels[once(key)] = once(value)
		}
	}
	for name, q := range n.Status.Allocatable {
		if _, ok := r.Resource(string(name)); ok {
			if f.Allocatable == nil {
				f.Allocatable = map[string]int64{}
			}
			f.Allocatable[once(string(name))] = fit.Floor(q)
		}
	}
	if text, ok := n.Annotations[fit.InventoryAnnotation]; ok {
		f.Cards, f.Described = once(text), true
	}
	return f
}

// share makes f use the maps of o that are equal to its own. Nobody changes them.
func (f *Facts) share(o *Facts) {
	if maps.Equal(f.Labels, o.Labels) {
		f.Labels = o.Labels
	}
	if maps.Equal(f.Allocatable, o.Allocatable) {
		f.Allocatable = o.Allocatable
	}
}

// read returns the facts in the form in which a node is built from them.
func (f *Facts) read() fit.Facts {
	out := fit.Facts{Name: f.Name, Labels: f.Labels, Allocatable: f.Allocatable}
	if f.Described {
		cards, err := fit.ParseInventory(f.Cards)
		if out.Inventory = cards; err != nil {
			out.Broken = err.Error()
		}
	}
	return out
}

// digest identifies facts but for the name.
type digest [sha256.Size]byte

func (f *Facts) digest() (d digest) {
	sum := sha256.New()
	// writing to a hash cannot fail
	for _, key := range slices.Sorted(maps.Keys(f.Labels)) {
		_, _ = fmt.Fprintf(sum, "%q=%q,", key, f.Labels[key])
	}
	for _, name := range slices.Sorted(maps.Keys(f.Allocatable)) {
		_, _ = fmt.Fprintf(sum, "%q:%d,", name, f.Allocatable[name])
	}
	_, _ = fmt.Fprintf(sum, "%t %s", f.Described, f.Cards)
	sum.Sum(d[:0])
	return d
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
	out := &Pod{
		Record: fit.NewRecord(fit.NewUID(string(p.UID)), p.Namespace, p.Name, shape),
		Node:   once(p.Spec.NodeName),
		// the first status comes after admission
		Taken: p.Status.StartTime != nil || p.Status.Phase == corev1.PodRunning,
		Over:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	out.Choose(fit.Choice{
		Cards: choice(p, a.Cards), Tiles: choice(p, a.Tiles), InitCards: choice(p, a.InitCards),
		InitTiles: choice(p, a.InitTiles),
	})
	return out
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
