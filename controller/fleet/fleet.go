// Package fleet shows people the accelerators of a cluster: nodes by state, what policies have come to, why nodes are
// not as they are asked, and why pods wait. It renders what the other packages of the controller know, asks nobody, and
// changes nothing.
package fleet

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/controller/extender"
	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/page"
)

// Options of a page.
type Options struct {
	// Overview returns what is known of nodes and policies, and false while it is not known: before the cluster has
	// been read, and not the leader. Nil where no policies are carried out.
	Overview func() (policy.Overview, bool)
	// Waiting returns pods that wait for cards, at most so many, how many there are, and false while nobody keeps
	// books. Nil where the scheduler is not answered.
	Waiting func(limit int) ([]extender.Waiting, int, bool)
	// Explain says of a waiting pod how it stands with nodes, at most so many.
	Explain func(pod string, limit int) (extender.Waiting, bool)
	// Identity is the name of this replica.
	Identity string
	// Holder returns the name of the leader, as far as is known. Nil where nobody knows.
	Holder func() string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

const (
	// maxWaiting requests wait at a time for a newer page, each at most maxWait; further ones are answered at once.
	maxWaiting = 32
	maxWait    = 25 * time.Second
	// glance is how often is looked for news while somebody waits for it. One look serves everybody.
	glance = time.Second
	// maxPods that wait, and maxNodes of a pod and of a list, are shown.
	maxPods  = 20
	maxNodes = 100
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
	known    bool // overview says something
	pods     []extender.Waiting
	total    int    // of the pods that wait
	booked   bool   // somebody keeps books
	holder   string // the replica that leads; empty where it is this one, or nobody knows
	tag      string
}

// look returns what is known, at most so old as a glance.
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
	if p.o.Waiting != nil {
		s.pods, s.total, s.booked = p.o.Waiting(maxPods)
	}
	if p.o.Holder != nil {
		if s.holder = p.o.Holder(); s.holder == p.o.Identity {
			s.holder = ""
		}
	}
	sum := fnv.New64a()
	// a hash takes everything
	_, _ = fmt.Fprintf(sum, "%s %+v %t %d %t %s", p.o.Identity, s.overview, s.known, s.total, s.booked, s.holder)
	for _, w := range s.pods {
		_, _ = fmt.Fprintf(sum, " %+v", w.Explanation) // not when it was asked about: that is news all the time
	}
	s.tag = `"` + strconv.FormatUint(sum.Sum64(), 36) + `"`
	return s
}

// ServeHTTP answers GET and HEAD. Who has the newest page, and says so with If-None-Match and "Prefer: wait=20" (RFC
// 7240), is answered when there is a newer one, or with 304 after so many seconds.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := p.look()
	if known := r.Header.Get("If-None-Match"); known != "" && known == s.tag {
		if s = p.newer(r.Context(), known, wish(r)); known == s.tag {
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

// newer waits at most d for something else than what is known.
func (p *Page) newer(ctx context.Context, known string, d time.Duration) state {
	s := p.look()
	if d <= 0 {
		return s
	}
	select {
	case p.waiting <- struct{}{}:
		defer func() { <-p.waiting }()
	default:
		return s
	}
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for s.tag == known {
		select {
		case <-ctx.Done():
			return s
		case <-end.C:
			return s
		case <-tick.C:
			s = p.look()
		}
	}
	return s
}

// wish is how long the client would wait.
func wish(r *http.Request) time.Duration {
	for preference := range strings.SplitSeq(r.Header.Get("Prefer"), ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(preference), "wait="); ok {
			if n, err := strconv.ParseUint(text, 10, 16); err == nil {
				return min(time.Duration(n)*time.Second, maxWait)
			}
		}
	}
	return 0
}
