// Package fleet shows people the accelerators of a cluster: nodes by state, the progress of policies, what devices have
// been through, why nodes are not as configured, and why pods wait. It renders what the other packages of the
// controller know, sends no requests, and changes nothing.
package fleet

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/pace"
	"github.com/acceld/acceld/page"
)

// Options of a page.
type Options struct {
	// Overview returns what is known of nodes and policies. It returns false before the cluster has been read and
	// while this replica is not the leader. Nil if no policies are carried out.
	Overview func() (policy.Overview, bool)
	// Devices returns the records of devices, with at most limit of those to look at; false while they are not known.
	// Nil if no policies are carried out.
	Devices func(limit int) (devices.Overview, bool)
	// Waiting returns up to limit pods that wait for cards, their total number, and false while the cache is
	// incomplete. Nil if the scheduler is not answered.
	Waiting func(limit int) ([]extender.Waiting, int, bool)
	// Explain compares a waiting pod with up to limit nodes.
	Explain func(pod string, limit int) (extender.Waiting, bool)
	// Identity is the name of this replica.
	Identity string
	// Holder returns the name of the leader, as far as it is known. Nil if nobody can know it.
	Holder func() string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

const (
	// maxWaiting is how many requests may wait for a newer page. Further ones are answered at once.
	maxWaiting = 32
	// glance is how often the state is read while requests wait for a change. One read serves all of them.
	glance = time.Second
	// maxPods is how many waiting pods are shown, maxNodes how many nodes of a pod and of a list.
	// maxDevices is how many devices are.
	maxPods    = 20
	maxNodes   = 100
	maxDevices = 50
)

// Page serves the page. It is safe for concurrent use.
type Page struct {
	o       Options
	waiting chan struct{}

	mu   sync.Mutex
	last state
	at   time.Time
}

// New returns a page.
func New(o Options) *Page {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Page{o: o, waiting: make(chan struct{}, maxWaiting)}
}

// state is what a page is rendered from.
type state struct {
	overview policy.Overview
	known    bool             // overview is valid
	devices  devices.Overview // empty if it is not known
	pods     []extender.Waiting
	total    int    // number of waiting pods
	booked   bool   // pods and total are valid
	holder   string // the leader; empty if it is this replica or unknown
	tag      string
}

// look returns the current state, at most a glance old.
func (p *Page) look() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.o.Now(); p.at.IsZero() || now.Sub(p.at) >= glance || now.Before(p.at) {
		p.last, p.at = p.read(), now
	}
	return p.last
}

func (p *Page) read() state {
	var s state
	if p.o.Overview != nil {
		s.overview, s.known = p.o.Overview()
	}
	if p.o.Devices != nil {
		s.devices, _ = p.o.Devices(maxDevices)
	}
	if p.o.Waiting != nil {
		s.pods, s.total, s.booked = p.o.Waiting(maxPods)
	}
	if p.o.Holder != nil {
		if s.holder = p.o.Holder(); s.holder == p.o.Identity {
			s.holder = ""
		}
	}
	sum := fnv.New64a()
	// writing to a hash cannot fail
	_, _ = fmt.Fprintf(sum, "%s %+v %t %d %t %s", p.o.Identity, s.overview, s.known, s.total, s.booked, s.holder)
	for _, r := range s.devices.Devices {
		_, _ = fmt.Fprintf(sum, " %s %s %s %v %+v", r.Kind, r.Serial, r.Node, r.Claimed, r.Total)
	}
	_, _ = fmt.Fprintf(sum, " %d %d %d", s.devices.Total, s.devices.LeftOut, s.devices.Unreadable)
	for _, w := range s.pods {
		_, _ = fmt.Fprintf(sum, " %+v", w.Explanation) // without the time of the request, which always changes
	}
	s.tag = `"` + strconv.FormatUint(sum.Sum64(), 36) + `"`
	return s
}

// ServeHTTP answers GET and HEAD. A client that has the newest page sends If-None-Match and "Prefer: wait=20" (RFC
// 7240). It is answered when there is a newer page, or with 304 after that many seconds.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := p.look()
	if known := r.Header.Get("If-None-Match"); known != "" && known == s.tag {
		if s = p.newer(r.Context(), s, page.Wait(r)); known == s.tag {
			w.Header().Set("ETag", s.tag)
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	status := http.StatusOK
	if !s.known && !s.booked {
		status = http.StatusServiceUnavailable
	}
	page.Write(w, status, p.document(s, r.URL.Query().Get("pod")))
}

// newer waits at most d until the state differs from s.
func (p *Page) newer(ctx context.Context, s state, d time.Duration) state {
	select {
	case p.waiting <- struct{}{}:
		defer func() { <-p.waiting }()
	default:
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for known := s.tag; s.tag == known && pace.Sleep(ctx, glance) == nil; {
		s = p.look()
	}
	return s
}
