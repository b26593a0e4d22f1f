// Package fleet is an API server in memory with as many nodes as one likes, for tests and measurements of the
// controller: lists, watches and single reads of nodes and pods, bindings, leases. It knows neither rights nor
// admission, and keeps no history: a watch starts with what there is.
package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Server is the API server. Make it with [New]; it is safe for concurrent use.
type Server struct {
	// Delay is how long a binding takes. Lost makes it answer with an error although it has bound, and Refuse without.
	Delay        time.Duration
	Lost, Refuse func(pod string) bool

	mu       sync.Mutex
	version  int
	nodes    map[string]*corev1.Node
	pods     map[string]*corev1.Pod // by namespace/name
	leases   map[string]*coordinationv1.Lease
	watchers map[*watcher]bool
	// Lists counts lists and watches that were begun, Writes what was written but leases.
	lists, writes int
}

// watcher is one open watch.
type watcher struct {
	kind   string
	events chan []byte
	gone   chan struct{}
}

// New returns a server with these objects.
func New(nodes []*corev1.Node, pods []*corev1.Pod) *Server {
	s := &Server{
		nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{},
		leases: map[string]*coordinationv1.Lease{}, watchers: map[*watcher]bool{}, version: 1,
	}
	for _, n := range nodes {
		s.SetNode(n)
	}
	for _, p := range pods {
		s.SetPod(p)
	}
	return s
}

// SetNode makes or changes a node.
func (s *Server) SetNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, had := s.nodes[n.Name]
	s.nodes[n.Name] = n
	s.tell("nodes", n, had)
}

// SetPod makes or changes a pod.
func (s *Server) SetPod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPod(p)
}

func (s *Server) setPod(p *corev1.Pod) {
	key := p.Namespace + "/" + p.Name
	before := s.pods[key]
	s.pods[key] = p
	switch {
	case bound(p):
		s.tell("pods", p, before != nil && bound(before))
	case before != nil && bound(before):
		s.send("pods", "DELETED", p)
	}
}

// DeletePod removes a pod at once.
func (s *Server) DeletePod(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[namespace+"/"+name]
	if delete(s.pods, namespace+"/"+name); p != nil && bound(p) {
		s.send("pods", "DELETED", p)
	}
}

// Pod returns a copy of a pod; nil when there is none.
func (s *Server) Pod(namespace, name string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[namespace+"/"+name].DeepCopy()
}

// Lease returns a copy of a lease; nil when there is none.
func (s *Server) Lease(namespace, name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[namespace+"/"+name].DeepCopy()
}

// Counts returns how many lists and watches were begun, and how many writes there were but of leases.
func (s *Server) Counts() (lists, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.writes
}

// Cut ends every watch, as an API server that restarts does.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		close(w.gone)
		delete(s.watchers, w)
	}
}

// bound is the field selector that the controller asks with.
func bound(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func (s *Server) tell(kind string, o metav1.Object, had bool) {
	verb := "ADDED"
	if had {
		verb = "MODIFIED"
	}
	s.send(kind, verb, o)
}

// send gives an object its version and tells the watchers. mu is held.
func (s *Server) send(kind, verb string, o metav1.Object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	if len(s.watchers) == 0 {
		return
	}
	data := event(verb, o)
	for w := range s.watchers {
		if w.kind != kind {
			continue
		}
		select {
		case w.events <- data:
		default: // too slow: it lists again
			close(w.gone)
			delete(s.watchers, w)
		}
	}
}

func event(verb string, o any) []byte {
	switch o := o.(type) {
	case *corev1.Node:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	case *corev1.Pod:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	}
	data, err := json.Marshal(map[string]any{"type": verb, "object": o})
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/api/v1/nodes" || r.URL.Path == "/api/v1/pods":
		s.collection(w, r, path[2])
	case len(path) == 6 && path[4] == "pods" && r.Method == http.MethodGet:
		s.answer(w, s.Pod(path[3], path[5]), path[5])
	case len(path) == 7 && path[6] == "binding" && r.Method == http.MethodPost:
		s.binding(w, r, path[3], path[5])
	case len(path) >= 6 && path[5] == "leases":
		s.lease(w, r, path)
	default:
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: r.URL.Path}, ""))
	}
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	_ = json.NewEncoder(w).Encode(status)
}

// answer sends an object; nil is not found.
func (s *Server) answer(w http.ResponseWriter, o runtime.Object, name string) {
	switch x := o.(type) {
	case *corev1.Pod:
		if x == nil {
			refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name))
			return
		}
		x.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	case *coordinationv1.Lease:
		if x == nil {
			refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name))
			return
		}
		x.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

// read decodes the body of a request, protobuf or JSON.
func read(r *http.Request, into runtime.Object) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	_, _, err = scheme.Codecs.UniversalDeserializer().Decode(data, nil, into)
	return err
}

// collection lists or watches.
func (s *Server) collection(w http.ResponseWriter, r *http.Request, kind string) {
	q := r.URL.Query()
	if q.Get("watch") == "" {
		s.mu.Lock()
		s.lists++
		data, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": map[string]string{"nodes": "NodeList", "pods": "PodList"}[kind],
			"metadata": map[string]string{"resourceVersion": strconv.Itoa(s.version)}, "items": s.objects(kind),
		})
		s.mu.Unlock()
		if err != nil {
			refuse(w, apierrors.NewInternalError(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
		return
	}
	s.watch(w, r, kind, q.Get("sendInitialEvents") == "true", q.Get("resourceVersion"))
}

// objects are those of a kind that a list shows. mu is held.
func (s *Server) objects(kind string) []any {
	out := []any{}
	if kind == "nodes" {
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			out = append(out, s.nodes[name])
		}
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if bound(s.pods[name]) {
			out = append(out, s.pods[name])
		}
	}
	return out
}

// watch streams what there is, where that is asked for, and then what changes. One from a version that is not the
// newest is refused as expired: there is no history.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, kind string, initial bool, from string) {
	own := &watcher{kind: kind, events: make(chan []byte, 100000), gone: make(chan struct{})}
	s.mu.Lock()
	s.lists++
	if !initial && from != strconv.Itoa(s.version) && from != "" && from != "0" {
		s.mu.Unlock()
		refuse(w, apierrors.NewResourceExpired("there is no history"))
		return
	}
	var first [][]byte
	if initial {
		for _, o := range s.objects(kind) {
			first = append(first, event("ADDED", o))
		}
	}
	version := s.version
	s.watchers[own] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, own)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	for _, data := range first {
		if _, err := w.Write(data); err != nil {
			return
		}
	}
	if initial {
		fmt.Fprintf(w,
			`{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":%q,"metadata":{"resourceVersion":%q,"annotations":{%q:"true"}}}}`+"\n",
			map[string]string{"nodes": "Node", "pods": "Pod"}[kind], strconv.Itoa(version),
			metav1.InitialEventsAnnotationKey)
	}
	flush := http.NewResponseController(w)
	for {
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-own.gone:
			return
		case data := <-own.events:
			if _, err := w.Write(data); err != nil {
				return
			}
		}
	}
}

// binding binds a pod as the API server does: its annotations go to the pod.
func (s *Server) binding(w http.ResponseWriter, r *http.Request, namespace, name string) {
	var b corev1.Binding
	if err := read(r, &b); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	time.Sleep(s.Delay)
	if s.Refuse != nil && s.Refuse(name) {
		refuse(w, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name, fmt.Errorf("refused")))
		return
	}
	s.mu.Lock()
	p := s.pods[namespace+"/"+name].DeepCopy()
	switch {
	case p == nil:
		s.mu.Unlock()
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name))
		return
	case b.UID != "" && b.UID != p.UID, p.Spec.NodeName != "":
		s.mu.Unlock()
		refuse(w, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name,
			fmt.Errorf("pod %s is already assigned to node %q", name, p.Spec.NodeName)))
		return
	}
	s.writes++
	p.Spec.NodeName, p.Status.Phase = b.Target.Name, corev1.PodRunning
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, b.Annotations)
	s.setPod(p)
	s.mu.Unlock()
	if s.Lost != nil && s.Lost(name) {
		refuse(w, apierrors.NewInternalError(fmt.Errorf("the answer was lost")))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusSuccess,
	})
}

// lease reads, makes or changes a lease, with its version as a precondition.
func (s *Server) lease(w http.ResponseWriter, r *http.Request, path []string) {
	resource := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	var l coordinationv1.Lease
	if r.Method != http.MethodGet {
		if err := read(r, &l); err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := l.Name
	if len(path) == 7 {
		name = path[6]
	}
	key := path[4] + "/" + name
	had := s.leases[key]
	switch {
	case r.Method == http.MethodGet:
		s.answer(w, had.DeepCopy(), name)
		return
	case r.Method == http.MethodPost && had != nil:
		refuse(w, apierrors.NewAlreadyExists(resource, name))
		return
	case r.Method == http.MethodPut && (had == nil || had.ResourceVersion != l.ResourceVersion):
		refuse(w, apierrors.NewConflict(resource, name, fmt.Errorf("it has changed")))
		return
	}
	s.version++
	l.ResourceVersion = strconv.Itoa(s.version)
	s.leases[key] = &l
	s.answer(w, l.DeepCopy(), name)
}
