package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/test/watched"
)

// server has one Secret, or none.
type server struct {
	mu      sync.Mutex
	object  *secret
	version int
	watched.History
	writes int
	refuse error
}

func (s *server) Do(_ context.Context, method, path string, query url.Values, body, into any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := schema.GroupResource{Resource: "secrets"}
	if s.refuse != nil {
		return s.refuse
	}
	if method == http.MethodGet {
		if path != "/api/v1/namespaces/ns/secrets" || query.Get("fieldSelector") != "metadata.name=tls" {
			return apierrors.NewForbidden(resource, path, errors.New("only one secret may be read"))
		}
		list := map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": []any{}}
		if s.object != nil {
			list["items"] = []any{s.object}
		}
		return watched.Copy(list, into)
	}
	var patch secret
	if err := watched.Copy(body, &patch); err != nil {
		return err
	}
	if method != http.MethodPatch || path != "/api/v1/namespaces/ns/secrets/tls" || s.object == nil {
		return apierrors.NewNotFound(resource, path)
	}
	if patch.Meta.ResourceVersion != s.object.Meta.ResourceVersion {
		return apierrors.NewConflict(resource, path, errors.New("it is another one"))
	}
	s.writes++
	s.put(patch.Data, patch.Meta.Annotations)
	return nil
}

// put replaces the Secret's content; the caller holds the lock.
func (s *server) put(data map[string][]byte, annotations map[string]string) {
	s.version++
	s.object = &secret{Data: data}
	s.object.Meta.Namespace, s.object.Meta.Name, s.object.Meta.ResourceVersion, s.object.Meta.Annotations = "ns", "tls",
		strconv.Itoa(s.version), annotations
	s.Add("/api/v1/namespaces/ns/secrets", "MODIFIED", s.version, s.object)
}

func (s *server) edit(data map[string][]byte, annotations map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(data, annotations)
}

func (s *server) get() (data map[string][]byte, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.object.Data), s.writes
}

func names() []string { return []string{"controller.ns.svc", "controller"} }

// keep runs a Manager until the test ends.
func keep(t *testing.T, s *server, log io.Writer) *Manager {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := &Manager{API: s, Namespace: "ns", Name: "tls", Names: names(), Log: slog.New(slog.NewTextHandler(log, nil))}
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

// shake connects as the scheduler does, with what is in the Secret.
func shake(k *Manager, data map[string][]byte, asClient bool) error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data[authorityCertificate])
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, RootCAs: roots,
		ServerName: "controller.ns.svc",
	}
	if asClient {
		pair, err := tls.X509KeyPair(data[clientCertificate], data[clientKey])
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	served := make(chan error, 1)
	go func() {
		err := tls.Server(a, k.TLS()).Handshake()
		a.Close()
		served <- err
	}()
	err := tls.Client(b, config).Handshake()
	b.Close()
	return errors.Join(err, <-served)
}

func TestMadeAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.edit(nil, nil)
		one, two := keep(t, s, io.Discard), keep(t, s, io.Discard)
		time.Sleep(time.Minute)
		synctest.Wait()
		first, writes := s.get()
		if writes != 1 || len(first) != 6 {
			t.Fatalf("two replicas wrote %d times: %v", writes, slices.Sorted(maps.Keys(first)))
		}
		for i, k := range []*Manager{one, two} {
			if err := shake(k, first, true); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
			if shake(k, first, false) == nil {
				t.Errorf("replica %d answers whoever asks", i)
			}
		}
		time.Sleep(59 * 24 * time.Hour)
		if _, writes := s.get(); writes != 1 {
			t.Errorf("renewed %d times in 59 of 90 days", writes-1)
		}
		time.Sleep(2 * 24 * time.Hour)
		synctest.Wait()
		second, writes := s.get()
		if writes != 2 || bytes.Equal(first[serverCertificate], second[serverCertificate]) {
			t.Errorf("not renewed after 61 days: %d writes", writes)
		}
		for _, key := range []string{authorityCertificate, authorityKey, clientCertificate, clientKey} {
			if !bytes.Equal(first[key], second[key]) {
				t.Errorf("%s is another one, and the scheduler's copy is of no use", key)
			}
		}
		time.Sleep(50 * 24 * time.Hour) // beyond the life of the first one
		synctest.Wait()
		for i, k := range []*Manager{one, two} {
			if err := shake(k, first, true); err != nil {
				t.Errorf("replica %d with what the scheduler has copied: %v", i, err)
			}
		}
	})
}

// A Secret of somebody else is used, followed and never written, even if it is unusable.
func TestSomebodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, err := made(time.Now(), names())
		if err != nil {
			t.Fatal(err)
		}
		newer, err := made(time.Now(), names())
		if err != nil {
			t.Fatal(err)
		}
		s := &server{}
		s.edit(theirs, nil)
		var log bytes.Buffer
		k := keep(t, s, &log)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := shake(k, theirs, true); err != nil {
			t.Error(err)
		}
		s.edit(newer, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := shake(k, newer, true); err != nil {
			t.Errorf("after a change: %v", err)
		}
		s.edit(map[string][]byte{serverCertificate: []byte("no"), serverKey: []byte("no")}, nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := shake(k, newer, true); err != nil {
			t.Errorf("after a change for the worse: %v", err)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors were logged:\n%s", n, log.String())
		}
		time.Sleep(365 * 24 * time.Hour)
		if _, writes := s.get(); writes != 0 {
			t.Errorf("%d writes", writes)
		}
	})
}

// Without the Secret, or without the permission to read it, connections are refused, and the error is logged once.
func TestNone(t *testing.T) {
	for name, refuse := range map[string]error{
		"it does not exist": nil,
		"cannot list secret": apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "tls",
			errors.New("cannot list secret")),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{refuse: refuse}
			var log bytes.Buffer
			k := keep(t, s, &log)
			time.Sleep(time.Hour)
			synctest.Wait()
			if err := shake(k, nil, false); !errors.Is(err, errNone) {
				t.Errorf("%s: %v", name, err)
			}
			if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, name) {
				t.Errorf("%s: %s", name, text)
			}
			s.mu.Lock()
			s.refuse = nil
			s.put(nil, nil)
			s.mu.Unlock()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			data, _ := s.get()
			if err := shake(k, data, true); err != nil {
				t.Errorf("%s, and then it is: %v", name, err)
			}
		})
	}
}
