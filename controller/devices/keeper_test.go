package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
)

// server is an API server with records alone: it lists them, takes writes, and refuses what is not conditional. Its
// watches deliver each write.
type server struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	version int
	writes  []string
	refuse  error
	watches []*io.PipeWriter
}

func (s *server) Do(_ context.Context, method, at string, _ url.Values, body, into any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil && (method == http.MethodGet) == apierrors.IsForbidden(s.refuse) {
		return s.refuse
	}
	name := path.Base(at)
	var sent map[string]any
	if b, err := json.Marshal(body); err != nil || json.Unmarshal(b, &sent) != nil {
		return fmt.Errorf("%v", err)
	}
	switch method {
	case http.MethodGet:
		items := []any{}
		for _, o := range s.objects {
			items = append(items, o)
		}
		return decode(map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": items}, into)
	case http.MethodPost:
		name = sent["metadata"].(map[string]any)["name"].(string)
		if strings.Contains(string(must(json.Marshal(sent))), "null") {
			return errors.New("a null")
		}
		s.objects[name] = sent
	case http.MethodPatch:
		if s.objects[name]["metadata"].(map[string]any)["resourceVersion"] !=
			sent["metadata"].(map[string]any)["resourceVersion"] {
			return apierrors.NewConflict(schema.GroupResource{}, name, nil)
		}
		o := map[string]any{}
		check(decode(s.objects[name], &o))
		mergePatch(o, sent)
		s.objects[name] = o
	case http.MethodDelete:
		s.note(method, name)
		s.tell("DELETED", s.objects[name])
		delete(s.objects, name)
		return nil
	}
	s.note(method, name)
	s.version++
	m := s.objects[name]["metadata"].(map[string]any)
	m["resourceVersion"], m["uid"] = strconv.Itoa(s.version+1), "u-"+name
	s.tell("MODIFIED", s.objects[name])
	return decode(s.objects[name], into)
}

func (s *server) note(method, name string) { s.writes = append(s.writes, method+" "+name) }

func (s *server) tell(kind string, o map[string]any) {
	b := must(json.Marshal(map[string]any{"type": kind, "object": o}))
	for _, w := range s.watches {
		go func() { _, _ = w.Write(append(b, '\n')) }()
	}
}

func (s *server) Watch(ctx context.Context, _ string, _ url.Values) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, w := io.Pipe()
	s.watches = append(s.watches, w)
	context.AfterFunc(ctx, func() { _ = w.Close() })
	return r, nil
}

func (s *server) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.writes
	s.writes = nil
	return all
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must(b []byte, err error) []byte { check(err); return b }

func decode(from, into any) error { return json.Unmarshal(must(json.Marshal(from)), into) }

// mergePatch is RFC 7386.
func mergePatch(into, patch map[string]any) {
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			inner, ok := into[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
				into[key] = inner
			}
			mergePatch(inner, v)
		default:
			into[key] = value
		}
	}
}

// cluster is a keeper that runs, and what its nodes report.
type cluster struct {
	*testing.T
	*Keeper
	api     *server
	mu      sync.Mutex
	reports Reports
}

func start(t *testing.T) (c *cluster, stop func()) {
	t.Helper()
	c = &cluster{T: t, api: &server{objects: map[string]map[string]any{}}, reports: Reports{
		Nodes: map[string]Node{}, Keep: map[string]time.Duration{testKind: 24 * time.Hour},
	}}
	c.Keeper = New(Options{
		API: c.api, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		Reports: func() (Reports, bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return Reports{Nodes: maps.Clone(c.reports.Nodes), Keep: c.reports.Keep}, true
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Keeper.Run(ctx) }()
	return c, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// says sets what a node writes; empty for nothing.
func (c *cluster) says(name, text string) {
	c.mu.Lock()
	n := Node{Up: true}
	if text != "" {
		n.Texts = map[string]string{testKind: text}
	}
	c.reports.Nodes[name] = n
	c.mu.Unlock()
	c.Poke()
}

// has is the text of a node with devices.
func has(reports ...accel.DeviceReport) string {
	return string(must(json.Marshal(append([]accel.DeviceReport{}, reports...))))
}

// after waits, and compares what was written.
func (c *cluster) after(wait time.Duration, want ...string) {
	c.Helper()
	time.Sleep(wait)
	synctest.Wait()
	if diff := cmp.Diff(want, c.api.written()); diff != "" {
		c.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestKeeper: what nodes report is in the cluster soon, changes with it, and goes when its time is over.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := start(t)
		defer stop()
		name := Name(testKind, "S")
		c.says("a", has(report("S", 1)))
		c.after(2*every, "POST "+name)
		c.after(100 * time.Hour)
		c.says("a", has(report("S", 2)))
		c.after(2*every, "PATCH "+name)
		c.says("a", "no JSON")
		c.says("b", has(report("S", 0)))
		c.after(2*every, "PATCH "+name)
		c.after(lasting)
		c.says("a", has())
		c.after(lasting+2*every, "PATCH "+name)
		if o, known := c.Overview(9); !known || o.Total != 1 || o.Faulty != 1 || len(o.Devices) != 1 ||
			o.Devices[0].Node != "b" || o.Devices[0].Total.Faults != 2 {
			t.Errorf("%t %+v", known, o)
		}
		c.says("a", has(report("S", 2)))
		c.after(lasting+3*every, "PATCH "+name, "PATCH "+name)
		if o, _ := c.Overview(9); !cmp.Equal(o.Devices[0].Claimed, []string{"a", "b"}) {
			t.Errorf("%+v", o)
		}
		c.says("a", has())
		c.after(2*every, "PATCH "+name)
		if o, _ := c.Overview(9); o.Devices[0].Claimed != nil {
			t.Errorf("%+v", o)
		}
		c.says("b", has())
		c.after(lasting+3*every, "PATCH "+name, "PATCH "+name) // a has left before
		c.after(24*time.Hour, "DELETE "+name)
		if o, _ := c.Overview(9); o.Total != 0 {
			t.Errorf("%+v", o)
		}
	})
}

// TestOff: without a policy that keeps a history nothing is written, and what is there stays.
func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := start(t)
		defer stop()
		c.says("a", has(report("S", 1)))
		c.after(2*every, "POST "+Name(testKind, "S"))
		c.mu.Lock()
		c.reports = Reports{}
		c.mu.Unlock()
		c.Poke()
		c.after(1000 * time.Hour)
	})
}

// TestRefused: a cluster that takes no records is asked once in a while.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := start(t)
		defer stop()
		c.api.mu.Lock()
		c.api.refuse = apierrors.NewNotFound(schema.GroupResource{}, "x")
		c.api.mu.Unlock()
		c.says("a", has(report("S", 1)))
		c.after(time.Hour)
		c.api.mu.Lock()
		c.api.refuse = nil
		c.api.mu.Unlock()
		c.after(later+every, "POST "+Name(testKind, "S"))
	})
}

// TestRate: many new devices are written over time, and one node cannot take all of it.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := start(t)
		defer stop()
		synctest.Wait() // the first pass is over: what nodes say from here on is written by one pass
		for i := range 10 {
			var all []accel.DeviceReport
			for k := range 40 {
				all = append(all, report(fmt.Sprint(i, "-", k), 0))
			}
			c.says(fmt.Sprint("n", i), has(all...))
		}
		time.Sleep(every + every/2)
		synctest.Wait()
		if n := len(c.api.written()); n == 0 || n > perPass {
			t.Errorf("%d writes at once", n)
		}
		time.Sleep(10 * every)
		synctest.Wait()
		if o, _ := c.Overview(0); o.Total != 400 {
			t.Errorf("%d records", o.Total)
		}
		c.api.written()
		faults := 0
		for range 60 { // a node whose devices all fail every ten seconds
			var all []accel.DeviceReport
			for k := range 40 {
				all = append(all, report(fmt.Sprint("0-", k), faults))
			}
			faults++
			c.says("n0", has(all...))
			time.Sleep(every)
		}
		synctest.Wait()
		if n, most := len(c.api.written()), nodeBurst+int(60*every/nodeEvery)+1; n > most {
			t.Errorf("%d writes, at most %d", n, most)
		}
	})
}
