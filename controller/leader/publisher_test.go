package leader

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/test/watched"
)

const (
	servicesPath = "/api/v1/namespaces/ns/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices"
)

// server has at most one Service and one EndpointSlice, both named "controller", and serves no others.
type server struct {
	mu      sync.Mutex
	objects map[string]*slice // by the path of the collection; a Service has only metadata
	version int
	watched.History
	writes []string
	refuse error
}

func newServer() *server {
	s := &server{objects: map[string]*slice{}}
	s.set(servicesPath, &slice{})
	return s
}

func (s *server) Do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if err := ctx.Err(); err != nil { // it would not be sent
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	none := apierrors.NewNotFound(schema.GroupResource{Resource: "endpointslices"}, path)
	if method == http.MethodGet {
		if query.Get("fieldSelector") != "metadata.name=controller" {
			return apierrors.NewForbidden(schema.GroupResource{}, path, errors.New("only one object may be read"))
		}
		list := map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": []any{}}
		if o := s.objects[path]; o != nil {
			list["items"] = []any{o}
		}
		return watched.Copy(list, into)
	}
	if s.refuse != nil {
		return s.refuse
	}
	if method != http.MethodPatch || path != slicesPath+"/controller" {
		return none
	}
	var sent slice
	if err := watched.Copy(body, &sent); err != nil {
		return err
	}
	have := s.objects[slicesPath]
	a, applies := body.(applied)
	switch {
	case applies && (a.PatchType() != "application/apply-patch+yaml" || query.Get("force") != "true" ||
		sent.Kind != "EndpointSlice" || sent.APIVersion != "discovery.k8s.io/v1"):
		return apierrors.NewBadRequest("this is not how objects are applied")
	case applies && have != nil && sent.AddressType != have.AddressType:
		return apierrors.NewInvalid(schema.GroupKind{Kind: "EndpointSlice"}, path, nil)
	case applies:
		s.writes = append(s.writes, "apply")
		s.put(slicesPath, &sent)
	case have == nil:
		return none
	case sent.Meta.ResourceVersion != have.Meta.ResourceVersion:
		return apierrors.NewConflict(schema.GroupResource{Resource: "endpointslices"}, path,
			errors.New("it is another one"))
	default:
		s.writes = append(s.writes, "leave")
		changed := *have
		changed.Endpoints = sent.Endpoints
		s.put(slicesPath, &changed)
	}
	return watched.Copy(s.objects[slicesPath], into)
}

// put creates or changes an object, and removes it if o is nil. The server is locked.
func (s *server) put(path string, o *slice) {
	s.version++
	kind := "MODIFIED"
	if o == nil {
		kind, o = "DELETED", s.objects[path]
		delete(s.objects, path)
	} else {
		if old := s.objects[path]; old != nil {
			o.Meta.UID = old.Meta.UID
		} else {
			kind, o.Meta.UID = "ADDED", "uid-"+strconv.Itoa(s.version)
		}
		s.objects[path] = o
	}
	o.Meta.Namespace, o.Meta.Name, o.Meta.ResourceVersion = "ns", "controller", strconv.Itoa(s.version)
	s.Add(path, kind, s.version, o)
}

func (s *server) set(path string, o *slice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(path, o)
}

// leads returns the addresses of the slice, and its owner.
func (s *server) leads() (addresses, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[slicesPath]
	if o == nil {
		return "no slice", ""
	}
	for _, e := range o.Endpoints {
		addresses += strings.Join(e.Addresses, ",")
	}
	for _, x := range o.Meta.OwnerReferences {
		owner += x.Kind + " " + x.UID
	}
	return addresses, owner
}

// replica runs a leader until leave is called.
func replica(t *testing.T, s *server, address string, log io.Writer) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := &Publisher{
		API: s, Namespace: "ns", Name: "controller", Address: netip.MustParseAddr(address), Pod: "pod-" + address,
		Node: "node", Writer: "w",
		Ports: []Port{{"scheduler", 9443, "TCP"}}, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = k.Run(ctx)
	}()
	leave = func() {
		cancel()
		<-done
	}
	t.Cleanup(leave)
	return leave
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *server) want(t *testing.T, when, addresses string) {
	t.Helper()
	if got, _ := s.leads(); got != addresses {
		t.Errorf("%s: it leads to %q, want %q", when, got, addresses)
	}
}

// TestTerms: the Service points to the leader, and nowhere if there is none.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first := replica(t, s, "10.0.0.1", io.Discard)
		wait(time.Second)
		s.want(t, "the leader", "10.0.0.1")
		want := &slice{
			APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", AddressType: "IPv4",
			Ports: []Port{{"scheduler", 9443, "TCP"}},
		}
		want.Meta = s.objects[slicesPath].Meta
		want.Meta.Labels = map[string]string{
			"kubernetes.io/service-name":             "controller",
			"endpointslice.kubernetes.io/managed-by": "w.acceld.dev",
		}
		want.Meta.OwnerReferences = []kube.Owner{{
			APIVersion: "v1", Kind: "Service", Name: "controller", UID: s.objects[servicesPath].Meta.UID,
		}}
		want.Endpoints = []endpoint{{
			[]string{"10.0.0.1"},
			conditions{true},
			"node",
			&target{"Pod", "ns", "pod-10.0.0.1"},
		}}
		if diff := cmp.Diff(want, s.objects[slicesPath]); diff != "" {
			t.Errorf("the slice (-want +got):\n%s", diff)
		}
		first()
		s.want(t, "no leader", "")
		second := replica(t, s, "10.0.0.2", io.Discard)
		wait(time.Second)
		s.want(t, "the next leader", "10.0.0.2")
		wait(time.Hour)
		if diff := cmp.Diff([]string{"apply", "leave", "apply"}, s.writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		// A replica that was killed left its address. One that steps down removes no other's address.
		other := *s.objects[slicesPath]
		other.Endpoints = []endpoint{{Addresses: []string{"10.0.0.3"}}}
		s.refuse = errors.New("no way to the API server")
		s.set(slicesPath, &other)
		wait(time.Second)
		s.refuse = nil
		second()
		s.want(t, "another one wrote it", "10.0.0.3")
	})
}

// TestOthers: what others do to the slice and the Service is corrected.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		replica(t, s, "10.0.0.1", io.Discard)
		wait(10 * time.Second)
		s.set(slicesPath, nil)
		wait(10 * time.Second)
		s.want(t, "the slice was deleted", "10.0.0.1")
		stray := *s.objects[slicesPath]
		stray.Endpoints = append([]endpoint{{Addresses: []string{"10.9.9.9"}}}, stray.Endpoints...)
		s.set(slicesPath, &stray)
		wait(10 * time.Second)
		s.want(t, "somebody added an address", "10.0.0.1")
		s.set(servicesPath, nil)
		wait(10 * time.Second)
		s.set(slicesPath, nil) // by the API server, with its owner
		wait(10 * time.Second)
		s.want(t, "without a Service", "no slice")
		s.set(servicesPath, &slice{})
		wait(10 * time.Second)
		s.want(t, "with another Service", "10.0.0.1")
		if _, owner := s.leads(); owner != "Service "+s.objects[servicesPath].Meta.UID {
			t.Errorf("the owner is %s", owner)
		}
	})
}

func TestIPv6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		replica(t, s, "fd00::1", io.Discard)
		wait(time.Second)
		s.want(t, "the leader", "fd00::1")
		if got := s.objects[slicesPath].AddressType; got != "IPv6" {
			t.Errorf("address type %q", got)
		}
	})
}

// TestRefused: a refused write is logged once and retried.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "controller",
			errors.New("no right"))
		var log bytes.Buffer
		leave := replica(t, s, "10.0.0.1", &log)
		wait(time.Minute)
		s.mu.Lock()
		s.refuse = nil
		s.mu.Unlock()
		wait(again)
		s.want(t, "with the right", "10.0.0.1")
		leave()
		if got := strings.Count(log.String(), "no right"); got != 1 {
			t.Errorf("it is said %d times:\n%s", got, log.String())
		}
	})
}
