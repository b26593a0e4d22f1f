package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/pace"
)

// server is a small API server: objects by path, one version that counts up, merge patches that are conditional on a
// version, and watches that start at a version. It answers late and, if a test asks for it, wrongly.
type server struct {
	mu      sync.Mutex
	objects map[string]object
	version int
	history []change
	streams map[*stream]bool
	writes  []string // method and path of every accepted write
	reads   int
	// faults is how many of a hundred requests fail, and late the most that one takes.
	faults int
	late   time.Duration
	r      *rand.Rand
	// refuse, if it returns an error, answers a request instead. check is called after each write.
	refuse func(method, path string, body object) error
	check  func()
}

type change struct {
	version int
	path    string
	kind    string
	object  []byte
}

func newServer(seed uint64) *server {
	return &server{
		objects: map[string]object{}, streams: map[*stream]bool{}, r: rand.New(rand.NewPCG(seed, 1)),
		check: func() {},
	}
}

// part returns a part of an object and creates it if it does not exist.
func part(o object, name string) object {
	p, ok := o[name].(object)
	if !ok {
		p = object{}
		o[name] = p
	}
	return p
}

func clone(o object) object {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var c object
	if err := json.Unmarshal(b, &c); err != nil {
		panic(err)
	}
	return c
}

// merge is RFC 7386.
func merge(into, patch object) {
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(into, key)
		case object:
			merge(part(into, key), v)
		default:
			into[key] = value
		}
	}
}

// put stores an object as it is; the caller holds the lock.
func (s *server) put(name, kind string, o object) object {
	s.version++
	m := part(o, "metadata")
	m["resourceVersion"] = strconv.Itoa(s.version)
	if kind == "DELETED" {
		delete(s.objects, name)
	} else {
		s.objects[name] = o
	}
	b, err := json.Marshal(object{"type": kind, "object": o})
	if err != nil {
		panic(err)
	}
	c := change{s.version, name, kind, append(b, '\n')}
	s.history = append(s.history, c)
	for w := range s.streams {
		w.offer(c)
	}
	s.check()
	return o
}

// edit creates or changes an object, as people and agents do.
func (s *server) edit(name string, patch object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.editLocked(name, patch)
}

func (s *server) editLocked(name string, patch object) {
	old, there := s.objects[name]
	o := object{"metadata": object{
		"name": path.Base(name), "uid": "uid-" + path.Base(name), "generation": 1,
		"creationTimestamp": "2026-03-04T12:00:00Z",
	}}
	kind := "ADDED"
	if there {
		o, kind = clone(old), "MODIFIED"
	}
	o = clone(o)
	merge(o, clone(patch))
	if _, spec := patch["spec"]; spec && there {
		m := part(o, "metadata")
		m["generation"] = m["generation"].(float64) + 1
	}
	s.put(name, kind, o)
}

// written returns the accepted writes.
func (s *server) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// get returns a copy of an object; nil if there is none.
func (s *server) get(name string) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[name] == nil {
		return nil
	}
	return clone(s.objects[name])
}

func (s *server) chance(percent int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.IntN(100) < percent
}

// travel is the way of a request or of an answer: it may take time or fail.
func (s *server) travel(ctx context.Context) error {
	s.mu.Lock()
	late := time.Duration(0)
	if s.late > 0 {
		late = time.Duration(s.r.Int64N(int64(s.late)))
	}
	s.mu.Unlock()
	if pace.Sleep(ctx, late) != nil {
		return ctx.Err()
	}
	return nil
}

// Do answers a request.
func (s *server) Do(ctx context.Context, method, name string, query url.Values, body, into any) error {
	if err := s.travel(ctx); err != nil {
		return err
	}
	if s.faults > 0 && s.chance(s.faults) {
		return apierrors.NewInternalError(fmt.Errorf("injected before"))
	}
	answer, err := s.answer(method, name, query, body)
	if err != nil {
		return err
	}
	if err := s.travel(ctx); err != nil {
		return err
	}
	if s.faults > 0 && s.chance(s.faults) {
		return apierrors.NewTimeoutError("injected after", 1)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

func (s *server) answer(method, name string, query url.Values, body any) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sent object
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &sent); err != nil {
			return nil, err
		}
	}
	if s.refuse != nil {
		if err := s.refuse(method, name, sent); err != nil {
			return nil, err
		}
	}
	if method == http.MethodGet {
		s.reads++
		return s.list(name, query)
	}
	o, err := s.write(method, name, sent)
	if err != nil {
		return nil, err
	}
	s.writes = append(s.writes, method+" "+name)
	return json.Marshal(o)
}

func (s *server) write(method, name string, sent object) (object, error) {
	resource := schema.GroupResource{Resource: path.Base(path.Dir(name))}
	switch method {
	case http.MethodPost:
		if pod, ok := strings.CutSuffix(name, "/eviction"); ok {
			if s.objects[pod] == nil {
				return nil, apierrors.NewNotFound(resource, name)
			}
			s.put(pod, "DELETED", clone(s.objects[pod]))
			return object{}, nil
		}
		m := part(sent, "metadata")
		id, _ := m["name"].(string)
		if id == "" {
			id = fmt.Sprint(m["generateName"], s.version)
		}
		if s.objects[name+"/"+id] != nil {
			return nil, apierrors.NewAlreadyExists(resource, id)
		}
		m["name"], m["uid"], m["creationTimestamp"] = id, fmt.Sprint("uid-", s.version),
			time.Now().UTC().Format(time.RFC3339)
		m["generation"] = 1.0
		return s.put(name+"/"+id, "ADDED", sent), nil
	case http.MethodDelete:
		if s.objects[name] == nil {
			return nil, apierrors.NewNotFound(resource, name)
		}
		gone := clone(s.objects[name])
		if len(list(part(gone, "metadata")["finalizers"])) > 0 {
			part(gone, "metadata")["deletionTimestamp"] = "2026-03-04T12:00:00Z"
			return s.put(name, "MODIFIED", gone), nil
		}
		return s.put(name, "DELETED", gone), nil
	}
	target, status := strings.CutSuffix(name, "/status")
	old := s.objects[target]
	if old == nil {
		return nil, apierrors.NewNotFound(resource, target)
	}
	m := part(sent, "metadata")
	if v, asked := m["resourceVersion"]; asked && v != part(old, "metadata")["resourceVersion"] {
		return nil, apierrors.NewConflict(resource, target, fmt.Errorf("it is another one"))
	}
	delete(m, "resourceVersion")
	o := clone(old)
	if status {
		// A strategic merge patch deletes from this one list.
		if c, ok := part(sent, "status")["conditions"].([]any); ok && len(c) > 0 &&
			c[0].(object)["$patch"] == "delete" {
			for _, gone := range c {
				part(o, "status")["conditions"] = slices.DeleteFunc(part(o, "status")["conditions"].([]any),
					func(x any) bool { return x.(object)["type"] == gone.(object)["type"] })
			}
			delete(part(sent, "status"), "conditions")
		}
		merge(part(o, "status"), part(sent, "status"))
	} else {
		delete(sent, "status")
		merge(o, sent)
	}
	if sameObject(o, old) {
		return o, nil
	}
	if part(o, "metadata")["deletionTimestamp"] != nil && len(list(part(o, "metadata")["finalizers"])) == 0 {
		return s.put(target, "DELETED", o), nil
	}
	return s.put(target, "MODIFIED", o), nil
}

func list(x any) []any { l, _ := x.([]any); return l }

func sameObject(a, b object) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// list answers with the objects below a path, in pages.
func (s *server) list(name string, query url.Values) ([]byte, error) {
	if o := s.objects[name]; o != nil {
		return json.Marshal(o)
	}
	var items []object
	names := slices.Sorted(maps.Keys(s.objects))
	for _, x := range names {
		if s.below(x, name) && selected(s.objects[x], query) && x > query.Get("continue") {
			if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && len(items) == limit {
				return json.Marshal(object{"metadata": object{
					"resourceVersion": strconv.Itoa(s.version),
					"continue":        name + "/" + fmt.Sprint(part(items[limit-1], "metadata")["name"]),
				}, "items": items})
			}
			items = append(items, s.objects[x])
		}
	}
	return json.Marshal(object{"metadata": object{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
}

// below reports whether an object belongs to a collection; a collection without a namespace covers all namespaces.
func (s *server) below(object, collection string) bool {
	if path.Dir(object) == collection {
		return true
	}
	return path.Base(path.Dir(object)) == path.Base(collection) && strings.HasPrefix(object,
		path.Dir(collection)+"/namespaces/")
}

func selected(o object, query url.Values) bool {
	if f, node, ok := strings.Cut(query.Get("fieldSelector"), "="); ok && f == "spec.nodeName" &&
		part(o, "spec")["nodeName"] != node {
		return false
	}
	if l := query.Get("labelSelector"); l != "" {
		key, value, exact := strings.Cut(l, "=")
		have, there := part(part(o, "metadata"), "labels")[key]
		return there && (!exact || have == value)
	}
	return true
}

// stream is a watch.
type stream struct {
	s      *server
	path   string
	query  url.Values
	events chan []byte
	rest   []byte
	ctx    context.Context
	ended  bool
}

// Watch streams the changes since a version. With faults it may answer that the version is too old.
func (s *server) Watch(ctx context.Context, name string, query url.Values) (io.ReadCloser, error) {
	if err := s.travel(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	since, _ := strconv.Atoi(query.Get("resourceVersion"))
	if s.faults > 0 && s.r.IntN(100) < s.faults {
		return nil, apierrors.NewResourceExpired("injected")
	}
	w := &stream{s: s, path: name, query: query, events: make(chan []byte, 10000), ctx: ctx}
	for _, c := range s.history {
		if c.version > since {
			w.offer(c)
		}
	}
	s.streams[w] = true
	return w, nil
}

// offer passes a change to a stream; the server is locked.
func (w *stream) offer(c change) {
	if !w.s.below(c.path, w.path) {
		return
	}
	var e struct{ Object object }
	if json.Unmarshal(c.object, &e) != nil || !selected(e.Object, w.query) {
		return
	}
	if w.ended {
		return
	}
	// a gap: the watch ends before this change
	if len(w.events) == cap(w.events) || w.s.faults > 0 && w.s.r.IntN(200) < w.s.faults {
		w.ended = true
		close(w.events)
		return
	}
	w.events <- c.object
}

func (w *stream) Read(p []byte) (int, error) {
	if len(w.rest) == 0 {
		select {
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		case b, open := <-w.events:
			if !open {
				return 0, io.EOF
			}
			w.rest = b
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *stream) Close() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.streams, w)
	return nil
}
