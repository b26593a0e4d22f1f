package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// reviewKept and refusalKept are how long an answer of the API server is valid. For so long, a revoked token
	// still works, and a new right does not work yet.
	reviewKept  = time.Minute
	refusalKept = 10 * time.Second
	// reviewsKept is the maximum number of answers that are kept.
	reviewsKept = 256
	// reviewEvery and reviewBurst limit the requests: a client that sends made-up tokens must not overload the API
	// server.
	reviewEvery = 200 * time.Millisecond
	reviewBurst = 20
)

// errReviews means that too many unknown tokens came.
var errReviews = errors.New("too many tokens that are not known yet")

// Reviewer reviews bearer tokens: whether the API server knows the token, and whether its user may get a path. It is
// safe for concurrent use.
type Reviewer struct {
	do    func(ctx context.Context, method, path string, query url.Values, body, into any) error
	now   func() time.Time
	limit *rate.Limiter

	mu    sync.Mutex
	known map[[sha256.Size]byte]review // by a hash of token and path, neither of which is kept
}

// review is an answer and how long it is valid.
type review struct {
	known, allowed bool
	until          time.Time
}

// NewReviewer returns a reviewer that uses d. The credentials of d need the right to create tokenreviews and
// subjectaccessreviews.
func NewReviewer(d Documents) *Reviewer {
	return &Reviewer{
		do: d.Do, now: time.Now, limit: rate.NewLimiter(rate.Every(reviewEvery), reviewBurst),
		known: map[[sha256.Size]byte]review{},
	}
}

// Review reports whether the API server knows a token and whether its user may get the path. An error means that the
// API server does not answer or refuses, or that too many unknown tokens came.
func (r *Reviewer) Review(ctx context.Context, token, path string) (known, allowed bool, err error) {
	key := sha256.Sum256([]byte(path + "\n" + token))
	r.mu.Lock()
	answer, there := r.known[key]
	r.mu.Unlock()
	if there && r.now().Before(answer.until) {
		return answer.known, answer.allowed, nil
	}
	// The limit must not lock out a client that was accepted before, even if strangers use it up.
	if !answer.allowed && !r.limit.AllowN(r.now(), 1) {
		return false, false, errReviews
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if answer.known, answer.allowed, err = r.ask(ctx, token, path); err != nil {
		return false, false, err
	}
	answer.until = r.now().Add(refusalKept)
	if answer.allowed {
		answer.until = r.now().Add(reviewKept)
	}
	r.keep(key, answer)
	return answer.known, answer.allowed, nil
}

// keep stores an answer. If there are too many, it drops refusals first: they can be requested again.
func (r *Reviewer) keep(key [sha256.Size]byte, answer review) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= reviewsKept {
		maps.DeleteFunc(r.known, func(_ [sha256.Size]byte, x review) bool { return !x.allowed })
	}
	if len(r.known) >= reviewsKept {
		clear(r.known)
	}
	r.known[key] = answer
}

// user is the user that the API server knows (k8s.io/api/authentication/v1, UserInfo).
type user struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// ask asks the API server whose the token is, and then what that user may do.
func (r *Reviewer) ask(ctx context.Context, token, path string) (known, allowed bool, err error) {
	var who struct {
		Status struct {
			Authenticated bool `json:"authenticated"`
			User          user `json:"user"`
		} `json:"status"`
	}
	err = r.do(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", nil, map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": map[string]any{"token": token},
	}, &who)
	if err != nil || !who.Status.Authenticated {
		return false, false, err
	}
	var may struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	u := who.Status.User
	err = r.do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{
			"user": u.Username, "uid": u.UID, "groups": u.Groups, "extra": u.Extra,
			"nonResourceAttributes": map[string]any{"path": path, "verb": "get"},
		},
	}, &may)
	return true, may.Status.Allowed, err
}
