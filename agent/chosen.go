package agent

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/runtime"
	"github.com/acceld/acceld/runtime/gate"
)

// cards returns the cards that an annotation gives to the pod's containers: "card0,card1|card2". Those of which ids has
// the name are called by their [accel.CardName].
func cards(annotation string, ids map[string]string) [][]string {
	var all [][]string
	for part := range strings.SplitSeq(annotation, "|") {
		var names []string
		for name := range strings.SplitSeq(part, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			if id, known := ids[name]; known {
				name = accel.CardName(id)
			}
			names = append(names, name)
		}
		all = append(all, names)
	}
	return all
}

// needPods begins to read the pods of the node once the scheduler may choose cards for them: by what this agent says of
// its cards, or by the labels that GPU Aware Scheduling goes by. A definition's own steps may wait for pods, too.
func (a *Agent) needPods(m accel.Machine) {
	if a.pods == nil {
		return
	}
	awaited := func(def *accel.Definition) bool { return def.WaitsForPods() }
	if slices.ContainsFunc(slices.Collect(maps.Values(m.Want.Kinds)), awaited) || kube.Cards(m) != "" ||
		numbered(m, a.kube.State().NodeLabels) {
		a.pods.Need()
	}
}

// numbered reports whether labels of the node number the cards of one of its kinds.
func numbered(m accel.Machine, labels map[string]string) bool {
	for kind := range m.Have {
		def := m.Want.Kinds[kind]
		if def == nil || def.AllocatedBy() != accel.AllocateByPlugin {
			continue
		}
		domain, _, _ := strings.Cut(def.Resource, "/")
		if labels[domain+"/gpu-numbers"] != "" || labels[domain+"/cards"] != "" {
			return true
		}
	}
	return false
}

// portion is a container with the cards that were chosen for it.
type portion struct {
	*kube.BoundContainer
	cards   []string
	passing bool // it ends before others begin
}

// portions returns the containers of a pod in the order in which the kubelet gives them devices: init containers,
// then the others. The annotation for init containers lists those that keep running (restartPolicy Always) first.
func portions(p *kube.BoundPod, ids map[string]string) []portion {
	at := func(all [][]string, i int) []string {
		if i < len(all) {
			return all[i]
		}
		return nil
	}
	apps, inits := cards(p.Meta.Annotations[accel.ChosenAnnotation], ids),
		cards(p.Meta.Annotations[accel.ChosenInitAnnotation], ids)
	stays := func(c kube.BoundContainer) bool { return c.RestartPolicy == "Always" }
	beside, passing := 0, 0
	for _, c := range p.Spec.InitContainers {
		if stays(c) {
			passing++ // the index of the first that does not stay
		}
	}
	var out []portion
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if stays(*c) {
			out = append(out, portion{c, at(inits, beside), false})
			beside++
			continue
		}
		out = append(out, portion{c, at(inits, passing), true})
		passing++
	}
	for i := range p.Spec.Containers {
		out = append(out, portion{&p.Spec.Containers[i], at(apps, i), false})
	}
	return out
}

// cardIDs returns the ids of the machine's devices and partitions by the names of their cards.
func cardIDs(m accel.Machine) map[string]string {
	var all []accel.Accelerator
	for _, have := range m.Have {
		all = append(all, accel.Flat(have.Accelerators)...)
	}
	return accel.CardIDs(all)
}

// asking returns the containers of pods that ask for a resource, with the cards that were chosen for them.
func asking(pods []*kube.BoundPod, ids map[string]string, resource string) []deviceplugin.Bound {
	var all []deviceplugin.Bound
	for _, p := range pods {
		for _, c := range portions(p, ids) {
			if n := c.Asks(resource); n > 0 {
				all = append(all, deviceplugin.Bound{
					PodRef: deviceplugin.PodRef{Namespace: p.Meta.Namespace, Pod: p.Meta.Name, Container: c.Name},
					UID:    p.Meta.UID, Count: n, Cards: c.cards, Taken: p.Taken(), Passing: c.passing,
				})
			}
		}
	}
	return all
}

// choices returns what the gate checks: the devices chosen for each container, as far as this host knows them. Whoever
// creates a pod can write the annotation, and the hook reads no file that is too long. So a container with more chosen
// devices than it asks for has no choice.
func choices(pods []*kube.BoundPod, m accel.Machine, ids map[string]string) []gate.Choice {
	var names []string
	for kind, have := range m.Have {
		if def := m.Want.Kinds[kind]; def != nil {
			names = append(names, resourceNames(def, have.Accelerators)...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var all []gate.Choice
	for _, p := range pods {
		for _, c := range portions(p, ids) {
			asked := 0
			for _, name := range names {
				asked += c.Asks(name)
			}
			x := gate.Choice{Pod: p.Meta.UID, Container: c.Name}
			for _, name := range c.cards {
				if id, known := ids[name]; known {
					x.Devices = append(x.Devices, id)
				}
			}
			slices.Sort(x.Devices)
			x.Devices = slices.Compact(x.Devices)
			if n := len(x.Devices); n > 0 && n <= asked {
				all = append(all, x)
			}
		}
	}
	return all
}

// hookGate publishes what the hook decides on: the devices that containers may have, and those chosen for them.
type hookGate struct {
	runtime *runtime.Runtime
	// pods are the pods of this node; nil without credentials.
	pods *kube.BoundPods
	log  *slog.Logger
	// ids are those of the newest machine, see cardIDs.
	ids atomic.Pointer[map[string]string]
	mu  sync.Mutex
}

// bound returns the containers of this node's pods that ask for a resource; see deviceplugin.Config.
func (g *hookGate) bound(resource string) (all []deviceplugin.Bound, changed <-chan struct{}, known bool) {
	if g.pods == nil {
		return nil, nil, false
	}
	pods, changed, known := g.pods.Now()
	var ids map[string]string
	if p := g.ids.Load(); p != nil {
		ids = *p
	}
	return asking(pods, ids, resource), changed, known
}

// open publishes the devices of the machine and the pods as they are now. The kubelet is told that a claim is prepared
// only after that: a container may start at once, and the agent may be killed before it publishes the next machine.
func (g *hookGate) open(machine func() accel.Machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := machine() // under the lock, so that the older machine is written first
	ids := cardIDs(m)
	g.ids.Store(&ids)
	kinds := map[string][]accel.Accelerator{}
	for kind := range m.Have {
		kinds[kind] = accel.Startable(m, kind)
	}
	var chosen []gate.Choice
	if g.pods != nil {
		pods, _, _ := g.pods.Now() // the last known pods while the API server does not answer
		chosen = choices(pods, m, ids)
	}
	if problem := g.runtime.PublishReadiness(m.Want.Kinds, kinds, chosen...); problem != nil {
		g.log.Warn("readiness not published", "reason", problem.Reason, "message", problem.Message)
	}
}
