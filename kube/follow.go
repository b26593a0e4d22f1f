package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
)

// Meta is the part of an object's metadata that this package reads.
type Meta struct {
	Identity
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp time.Time         `json:"creationTimestamp,omitzero"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	OwnerReferences   []Owner           `json:"ownerReferences,omitempty"`
}

// Adopt takes over the metadata of another version.
func (m *Meta) Adopt(o *Meta) { *m = *o }

// Owner is an object that another one is deleted with (OwnerReference of k8s.io/apimachinery, meta/v1).
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller,omitempty"`
}

// Identity is the part of an object's metadata that tells it, and a version of it, from others. Types of which there
// are thousands have it instead of a [Meta].
type Identity struct {
	Name            string `json:"name,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Identify returns i itself, for types that embed it.
func (i Identity) Identify() Identity { return i }

// Adopt takes over the metadata of another version.
func (i *Identity) Adopt(o *Meta) { *i = o.Identity }

// Key identifies an object among the objects of its resource.
func (i Identity) Key() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "/" + i.Name
}

// after reports whether i is a later version of an object. A new object of the same name counts as later.
func (i Identity) after(o Identity) bool { return later(i.ResourceVersion, o.ResourceVersion) }

// asked returns a text that differs if what a policy requests differs: its spec, its named definitions, or its
// deletion.
func (m *Meta) asked() string {
	return fmt.Sprint(m.Generation, m.DeletionTimestamp != nil, m.Annotations[accel.DefinitionsAnnotation])
}

// Object is a pointer to an object of type T, whose fields are those to read.
type Object[T any] interface {
	*T
	// Identify returns what tells the object, and this version of it, from others.
	Identify() Identity
	// Adopt takes over the metadata of another version.
	Adopt(*Meta)
}

// Reflector keeps the objects of one resource as the API server has them: it lists them in pages, then watches them.
// The caller must not change its objects. It keeps only the fields that T has.
type Reflector[T any, P Object[T]] struct {
	API   API
	Path  string
	Query url.Values
	// Changed is called after something has changed, including [Reflector.Err]; it must not block.
	Changed func()
	// Optional resources may be unknown to the API server; they then have no objects. Objects that may not be read
	// count as none only until they have been read once, and [Reflector.Err] says so.
	Optional bool
	// Retry is the wait after a failure; zero means this package's default.
	Retry pace.Backoff

	mu     sync.Mutex
	all    map[string]P
	lent   bool                   // somebody reads all: it is copied before the next change
	unread map[string]*unreadable // by key
	synced bool
	err    error
}

// page is how many objects are read at a time: a node takes 10 to 30 KB of JSON.
const page = 100

// absent is how often an unknown resource is requested: its definition may be installed later, with the program that
// reads it.
const absent = 30 * time.Second

// All returns the objects by key, and whether all of them have been read once. The caller must not change the map.
func (m *Reflector[T, P]) All() (all map[string]P, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lent = true
	return m.all, m.synced
}

// own returns the objects, to change them. m is locked.
func (m *Reflector[T, P]) own() map[string]P {
	if m.lent {
		m.all, m.lent = maps.Clone(m.all), false
	}
	return m.all
}

// Err returns why the objects are not up to date; nil while they are followed. An object that cannot be read is named;
// the others are up to date.
func (m *Reflector[T, P]) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := slices.Sorted(maps.Keys(m.unread))
	if m.err != nil || len(keys) == 0 {
		return m.err
	}
	return m.unread[keys[0]].err
}

// Put takes over the answer to the caller's own write, unless a newer version is known.
func (m *Reflector[T, P]) Put(x P) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := x.Identify().Key()
	if old := m.all[key]; m.all != nil && (old == nil || x.Identify().after(old.Identify())) {
		m.own()[key] = x
		delete(m.unread, key)
	}
}

// Drop removes an object that the caller has deleted; the watch reports it later.
func (m *Reflector[T, P]) Drop(x P) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := x.Identify().Key()
	if old := m.all[key]; old != nil && old.Identify().UID == x.Identify().UID {
		delete(m.own(), key)
	}
}

// later reports whether version a is after b. If they cannot be compared, a counts as later.
func later(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || c > 0
}

// Run follows the objects until ctx ends.
func (m *Reflector[T, P]) Run(ctx context.Context) error {
	retry, failures, read := m.Retry, 0, false
	if retry == (pace.Backoff{}) {
		retry = pace.Backoff{First: backoffMin, Max: backoffMax}
	}
	for ctx.Err() == nil {
		version, err := m.list(ctx)
		listed := err == nil
		read = read || listed
		for err == nil && ctx.Err() == nil {
			began := time.Now()
			var problem error
			version, problem = m.watch(ctx, version)
			if failures++; time.Since(began) > retry.Max {
				failures = 0
			}
			if err = lasting(problem); err == nil {
				m.note(problem)
				_ = pace.Sleep(ctx, again(retry, failures))
			}
		}
		if !listed || failures > 0 {
			failures++
		}
		wait := again(retry, failures)
		switch {
		case m.Optional && apierrors.IsNotFound(err):
			m.replace(map[string]P{}, nil, nil)
			wait = absent
		case m.Optional && apierrors.IsForbidden(err) && !read:
			m.replace(map[string]P{}, nil, err)
			wait = absent
		default:
			m.note(err)
		}
		_ = pace.Sleep(ctx, wait)
	}
	return nil
}

// note keeps an error, or nil when it is over, and reports a change.
func (m *Reflector[T, P]) note(err error) {
	m.mu.Lock()
	news := fmt.Sprint(err) != fmt.Sprint(m.err)
	m.err = err
	m.mu.Unlock()
	if news {
		m.Changed()
	}
}

// list reads all objects.
func (m *Reflector[T, P]) list(ctx context.Context) (version string, err error) {
	all, unread := map[string]P{}, map[string]*unreadable{}
	query := url.Values{"limit": {strconv.Itoa(page)}}
	maps.Copy(query, m.Query)
	for {
		answer := &items{take: func(raw json.RawMessage) {
			x, problem := m.read(raw)
			key := x.Identify().Key()
			all[key] = x
			if problem != nil {
				unread[key] = problem
			}
		}}
		limited, cancel := context.WithTimeout(ctx, 6*deadline)
		err := m.API.Do(limited, http.MethodGet, m.Path, query, nil, answer)
		cancel()
		if err != nil {
			return "", err
		}
		if answer.meta.Continue == "" {
			m.replace(all, unread, nil)
			return answer.meta.ResourceVersion, nil
		}
		query.Set("continue", answer.meta.Continue)
	}
}

// unreadable is a version of an object of which only the metadata can be read, such as a custom resource with a field
// of the wrong type.
type unreadable struct {
	meta Meta
	err  error // names the object
}

// read returns an object. If it cannot be read, only its metadata is.
func (m *Reflector[T, P]) read(raw json.RawMessage) (x P, problem *unreadable) {
	x = P(new(T))
	err := json.Unmarshal(raw, x)
	if err == nil {
		return x, nil
	}
	var object struct {
		Metadata Meta `json:"metadata"`
	}
	_ = json.Unmarshal(raw, &object) // it reads what it can
	x = P(new(T))
	x.Adopt(&object.Metadata)
	return x, &unreadable{object.Metadata, fmt.Errorf("cannot read %q of %s: %v", object.Metadata.Key(), m.Path, err)}
}

// renew gives an object that cannot be read the content of its last version that could be read, if there is one. With
// the new metadata, a write is no conflict and a deletion is seen. m is locked.
func (m *Reflector[T, P]) renew(all map[string]P, problem *unreadable) {
	key := problem.meta.Key()
	old := m.all[key]
	if old == nil || old.Identify().UID != problem.meta.UID {
		delete(all, key)
		return
	}
	all[key] = P(new(T))
	*all[key] = *old
	all[key].Adopt(&problem.meta)
}

// replace takes over all objects. Those in unread have only their metadata.
func (m *Reflector[T, P]) replace(all map[string]P, unread map[string]*unreadable, err error) {
	m.mu.Lock()
	for _, problem := range unread {
		m.renew(all, problem)
	}
	m.all, m.lent, m.unread, m.synced, m.err = all, false, unread, true, err
	m.mu.Unlock()
	m.Changed()
}

// watch takes over changes until the watch ends, and returns the last version that it saw.
func (m *Reflector[T, P]) watch(ctx context.Context, version string) (string, error) {
	query := url.Values{"resourceVersion": {version}, "allowWatchBookmarks": {"true"}}
	maps.Copy(query, m.Query)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := m.API.Watch(ctx, m.Path, query)
	if err != nil {
		return version, err
	}
	defer stream.Close()
	m.note(nil)
	err = deliver(stream, func(kind string, raw *json.RawMessage) (more bool) {
		x, problem := m.read(*raw)
		version = cmp.Or(x.Identify().ResourceVersion, version)
		if kind != "BOOKMARK" {
			m.take(kind, x, problem)
		}
		return true
	})
	return version, err
}

// lasting drops errors after which the watch can resume where it was.
func lasting(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && (tooOld(err) || refused(err) || apierrors.IsNotFound(err)) {
		return err
	}
	return nil
}

// take takes over an event. With a problem, x has only its metadata.
func (m *Reflector[T, P]) take(kind string, x P, problem *unreadable) {
	m.mu.Lock()
	key := x.Identify().Key()
	old := m.all[key]
	newer := old == nil || x.Identify().after(old.Identify())
	news := newer
	switch {
	case kind == "DELETED" && (newer || old.Identify().UID == x.Identify().UID):
		delete(m.own(), key)
		delete(m.unread, key)
	case newer && problem != nil:
		m.unread[key] = problem
		m.renew(m.own(), problem)
	case newer:
		m.own()[key] = x
		s, can := any(x).(interface{ Same(P) bool })
		news = old == nil || !can || !s.Same(old) || m.unread[key] != nil
		delete(m.unread, key)
	}
	m.mu.Unlock()
	if news {
		m.Changed()
	}
}
