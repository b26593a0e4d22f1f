package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

// BoundPod is the part that is read of a pod bound to this node.
type BoundPod struct {
	Meta Meta `json:"metadata"`
	Spec struct {
		InitContainers []BoundContainer `json:"initContainers,omitempty"`
		Containers     []BoundContainer `json:"containers,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase      string     `json:"phase,omitempty"`
		StartTime  *time.Time `json:"startTime,omitempty"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions,omitempty"`
	} `json:"status"`
	ready bool
}

// BoundContainer is a container of a [BoundPod].
type BoundContainer struct {
	Name          string `json:"name"`
	RestartPolicy string `json:"restartPolicy,omitempty"` // "Always" for an init container that keeps running
	Resources     struct {
		Limits map[string]resource.Quantity `json:"limits,omitempty"`
	} `json:"resources"`
}

// Identify returns what tells the pod, and this version of it, from others.
func (p *BoundPod) Identify() Identity { return p.Meta.Identity }

// Adopt takes over the metadata of another version.
func (p *BoundPod) Adopt(m *Meta) { p.Meta = *m }

// UnmarshalJSON reads a pod and drops what is never used.
func (p *BoundPod) UnmarshalJSON(b []byte) error {
	type plain BoundPod
	if err := json.Unmarshal(b, (*plain)(p)); err != nil {
		return err
	}
	p.Meta.Labels, p.Meta.Finalizers = nil, nil
	for _, c := range p.Status.Conditions {
		p.ready = p.ready || c.Type == "Ready" && c.Status == "True"
	}
	p.Status.Conditions = nil
	maps.DeleteFunc(p.Meta.Annotations, func(key, _ string) bool {
		return key != accel.ChosenAnnotation && key != accel.ChosenInitAnnotation && key != accel.ChosenTimeAnnotation
	})
	for _, all := range [][]BoundContainer{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			maps.DeleteFunc(all[i].Resources.Limits, func(name string, _ resource.Quantity) bool {
				return !strings.Contains(name, "/")
			})
		}
	}
	return nil
}

// Same reports whether two versions of a pod make no difference here. The requests of containers never change.
func (p *BoundPod) Same(o *BoundPod) bool {
	return p.Meta.UID == o.Meta.UID && maps.Equal(p.Meta.Annotations, o.Meta.Annotations) && p.over() == o.over() &&
		(p.Status.StartTime == nil) == (o.Status.StartTime == nil)
}

// over reports whether the pod has ended.
func (p *BoundPod) over() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

// Taken reports whether the kubelet has given the pod's containers their devices: its first status comes after that.
func (p *BoundPod) Taken() bool { return p.Status.StartTime != nil }

// Asks returns how much of an extended resource a container requests.
func (c *BoundContainer) Asks(name string) int {
	q := c.Resources.Limits[name]
	return int(q.Value())
}

// chosenAt returns when the cards of the pod were chosen, in Unix nanoseconds; 0 if none were.
func (p *BoundPod) chosenAt() int64 {
	at, err := strconv.ParseInt(p.Meta.Annotations[accel.ChosenTimeAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return at
}

// BoundPods is the task that follows the pods of this node once they are needed. RBAC cannot restrict a right to the
// pods of one node, so BoundPods requests only those.
type BoundPods struct {
	api       API
	reflector *Reflector[BoundPod, *BoundPod]
	query     url.Values
	log       *slog.Logger
	tell      func()

	needed chan struct{}
	once   sync.Once
	ready  chan struct{}
	mu     sync.Mutex
	moved  chan struct{} // closed when the pods change
	may    bool          // the pods may be read
	news   chan struct{}
}

// podsPath is the path of pods in the API.
const podsPath = "/api/v1/pods"

// NewBoundPods returns a task that requests nothing before [BoundPods.Need]. It calls tell when the pods have
// changed.
func NewBoundPods(api API, node string, log *slog.Logger, tell func()) *BoundPods {
	p := &BoundPods{
		api: api, query: url.Values{"fieldSelector": {fields.OneTermEqualSelector("spec.nodeName", node).String()}},
		log: log, tell: tell,
		needed: make(chan struct{}), ready: make(chan struct{}), moved: make(chan struct{}),
		news: make(chan struct{}, 1),
	}
	close(p.ready) // nothing waits for it
	p.reflector = &Reflector[BoundPod, *BoundPod]{API: api, Path: podsPath, Query: p.query, Changed: p.changed}
	return p
}

// String names the task.
func (p *BoundPods) String() string { return "pods of the node" }

// Ready is closed from the beginning: without the pods, the kubelet alone chooses devices.
func (p *BoundPods) Ready() <-chan struct{} { return p.ready }

// Need makes the task follow the pods from now on.
func (p *BoundPods) Need() { p.once.Do(func() { close(p.needed) }) }

func (p *BoundPods) changed() {
	p.mu.Lock()
	close(p.moved)
	p.moved = make(chan struct{})
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// Now returns the pods that have not ended, in the order in which their devices were chosen. changed is closed when
// the pods change; it is nil if they are not followed. known is false while the API server does not answer; the pods
// are then the last known ones.
func (p *BoundPods) Now() (pods []*BoundPod, changed <-chan struct{}, known bool) {
	p.mu.Lock()
	if p.may {
		changed = p.moved
	}
	p.mu.Unlock()
	all, synced := p.reflector.All()
	for _, x := range all {
		if !x.over() {
			pods = append(pods, x)
		}
	}
	slices.SortFunc(pods, func(a, b *BoundPod) int {
		return cmp.Or(cmp.Compare(a.chosenAt(), b.chosenAt()),
			a.Meta.CreationTimestamp.Compare(b.Meta.CreationTimestamp), cmp.Compare(a.Meta.UID, b.Meta.UID))
	})
	return pods, changed, synced && p.reflector.Err() == nil
}

// All returns every pod of the node, also those that have ended. The error says why they are not known.
func (p *BoundPods) All() ([]accel.NodePod, error) {
	p.mu.Lock()
	may := p.may
	p.mu.Unlock()
	all, synced := p.reflector.All()
	if err := p.reflector.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the pods of this node: %w", err)
	}
	switch {
	case !may:
		return nil, errors.New("the agent may not read the pods of this node: packaging/manifests/cards lets it")
	case !synced:
		return nil, errors.New("the pods of this node have not been read yet")
	}
	var out []accel.NodePod
	for _, x := range all {
		pod := accel.NodePod{
			Namespace: x.Meta.Namespace, Name: x.Meta.Name, UID: x.Meta.UID, Phase: x.Status.Phase, Ready: x.ready,
		}
		for _, o := range x.Meta.OwnerReferences {
			if o.Controller && o.Kind == "DaemonSet" {
				pod.DaemonSet = o.Name
			}
		}
		out = append(out, pod)
	}
	return out, nil
}

// Run follows the pods until ctx ends.
func (p *BoundPods) Run(ctx context.Context) error {
	select {
	case <-p.needed:
	case <-ctx.Done():
		return nil
	}
	if !p.permitted(ctx) {
		return nil
	}
	p.mu.Lock()
	p.may = true
	p.mu.Unlock()
	return guard.Together(ctx, p.reflector.Run, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-p.news:
				p.tell()
			}
		}
	})
}

// permitted waits until the pods may be read; false if ctx ended first. After a refusal it asks rarely, because most
// clusters never choose single devices.
func (p *BoundPods) permitted(ctx context.Context) bool {
	query := url.Values{"limit": {"1"}}
	maps.Copy(query, p.query)
	for said := false; ctx.Err() == nil; {
		limited, cancel := context.WithTimeout(ctx, deadline)
		err := p.api.Do(limited, http.MethodGet, podsPath, query, nil, nil)
		cancel()
		if !apierrors.IsForbidden(err) {
			return ctx.Err() == nil // the reflector handles every other error
		}
		if !said {
			p.log.Info("the pods of this node may not be read; a choice of the scheduler's extender is not looked at",
				"error", err)
			said = true
		}
		_ = pace.Sleep(ctx, seldom+rand.N(seldom/10))
	}
	return false
}
