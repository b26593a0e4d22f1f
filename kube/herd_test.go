package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// crowd is an API server with many clients. It counts the requests of each second.
type crowd struct {
	began time.Time

	mu      sync.Mutex
	seconds map[int]int
	watches []*io.PipeWriter
	expired bool // what is listed in pages is too old at the second page
}

func (c *crowd) count() {
	c.seconds[int(time.Since(c.began)/time.Second)]++
}

func (c *crowd) Do(_ context.Context, _, _ string, query url.Values, _, into any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count()
	if c.expired && query.Get("continue") != "" {
		return apierrors.NewResourceExpired("the page is too old")
	}
	text := `{"metadata":{"resourceVersion":"1"},"items":[]}`
	if c.expired {
		text = `{"metadata":{"resourceVersion":"1","continue":"x"},"items":[]}`
	}
	return json.Unmarshal([]byte(text), into)
}

func (c *crowd) Watch(ctx context.Context, _ string, _ url.Values) (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count()
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.Close() })
	c.watches = append(c.watches, w)
	return r, nil
}

// restart ends all watches at once; the server answers again at the same moment.
func (c *crowd) restart() {
	c.mu.Lock()
	all := c.watches
	c.watches, c.began, c.seconds = nil, time.Now(), map[int]int{}
	c.mu.Unlock()
	for _, w := range all {
		_ = w.Close()
	}
}

// peak returns the most requests in one second, all requests, and the number of seconds with any.
func (c *crowd) peak() (most, all, seconds int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seconds {
		most, all, seconds = max(most, n), all+n, seconds+1
	}
	return most, all, seconds
}

// in runs n reflectors against the server.
func (c *crowd) in(t *testing.T, n int, play func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.began, c.seconds = time.Now(), map[int]int{}
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range n {
			r := &Reflector[BoundPod, *BoundPod]{API: c, Path: "/api/v1/pods", Changed: func() {}}
			all.Go(func() { _ = r.Run(ctx) })
		}
		play()
		end()
		all.Wait()
	})
}

// TestHerdAfterRestart: after a restart of the API server, the watches of a cluster come back over seconds, each once.
func TestHerdAfterRestart(t *testing.T) {
	const nodes = 5000
	var c crowd
	c.in(t, nodes, func() {
		time.Sleep(10 * time.Minute)
		c.restart()
		time.Sleep(time.Minute)
		most, all, seconds := c.peak()
		t.Logf("%d watchers: %d requests in %d seconds, at most %d in one", nodes, all, seconds, most)
		if most > nodes/3 || all != nodes {
			t.Errorf("%d requests, %d of them in one second", all, most)
		}
	})
}

// TestExpiredPages: a list whose pages expire while they are read is read again at growing intervals.
func TestExpiredPages(t *testing.T) {
	c := crowd{expired: true}
	c.in(t, 10, func() {
		time.Sleep(time.Minute)
		if _, all, _ := c.peak(); all > 10*2*8 {
			t.Errorf("%d requests in a minute by 10 clients", all)
		}
	})
}

// TestWatchTooOld: all watches of a cluster may be too old after a restart. Their lists are spread as well.
func TestWatchTooOld(t *testing.T) {
	const nodes = 500
	var c crowd
	c.in(t, nodes, func() {
		time.Sleep(10 * time.Minute)
		c.mu.Lock()
		all := slices.Clone(c.watches)
		c.watches, c.began, c.seconds = nil, time.Now(), map[int]int{}
		c.mu.Unlock()
		var told sync.WaitGroup
		for _, w := range all {
			told.Go(func() {
				_, _ = io.Copy(w, strings.NewReader(`{"type":"ERROR","object":{"code":410,"reason":"Expired"}}`))
			})
		}
		time.Sleep(time.Minute)
		told.Wait()
		if most, all, _ := c.peak(); most > 2*nodes/3 || all != 2*nodes {
			t.Errorf("%d requests, %d of them in one second", all, most)
		}
	})
}
