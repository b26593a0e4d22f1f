package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// judge is an API server that knows tokens.
type judge struct {
	t     *testing.T
	asked []string
	err   error
}

func (j *judge) do(_ context.Context, method, path string, _ url.Values, body, into any) error {
	if j.err != nil {
		return j.err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var b struct {
		APIVersion, Kind string
		Spec             struct {
			Token                 string
			User                  string
			Groups                []string
			NonResourceAttributes struct{ Path, Verb string }
		}
	}
	if err := json.Unmarshal(data, &b); err != nil || method != "POST" {
		j.t.Errorf("%s %s %s: %v", method, path, data, err)
	}
	answer := "{}"
	switch path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		j.asked = append(j.asked, "who is "+b.Spec.Token)
		if b.Spec.Token == "reader" || b.Spec.Token == "other" {
			answer = fmt.Sprintf(`{"status": {"authenticated": true, "user": {"username": %q, "groups": ["g"]}}}`,
				b.Spec.Token)
		}
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		j.asked = append(j.asked, fmt.Sprintf("may %s of %v %s %s", b.Spec.User, b.Spec.Groups,
			b.Spec.NonResourceAttributes.Verb, b.Spec.NonResourceAttributes.Path))
		answer = fmt.Sprintf(`{"status": {"allowed": %t}}`, b.Spec.User == "reader")
	default:
		j.t.Errorf("asked for %s", path)
	}
	return json.Unmarshal([]byte(answer), into)
}

// TestReview: an answer of the API server is cached for a while, a refusal for a shorter while.
func TestReview(t *testing.T) {
	j := &judge{t: t}
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	r := NewReviewer(Documents{})
	r.do, r.now = j.do, func() time.Time { return now }
	review := func(token, path string, known, allowed bool, questions int) {
		t.Helper()
		before := len(j.asked)
		k, a, err := r.Review(t.Context(), token, path)
		if err != nil || k != known || a != allowed || len(j.asked)-before != questions {
			t.Errorf("%s %s: known %t, allowed %t, %v; asked %q", token, path, k, a, err, j.asked[before:])
		}
	}
	review("reader", "/metrics", true, true, 2)
	if want := "may reader of [g] get /metrics"; j.asked[1] != want {
		t.Errorf("asked %q, want %q", j.asked[1], want)
	}
	review("reader", "/metrics", true, true, 0)
	review("reader", "/metrics/other", true, true, 2)
	review("other", "/metrics", true, false, 2)
	review("nobody", "/metrics", false, false, 1)
	review("nobody", "/metrics", false, false, 0)
	now = now.Add(20 * time.Second)
	review("nobody", "/metrics", false, false, 1)
	review("other", "/metrics", true, false, 2)
	review("reader", "/metrics", true, true, 0)
	now = now.Add(time.Minute)
	j.err = errors.New("away")
	if _, _, err := r.Review(t.Context(), "reader", "/metrics"); err == nil {
		t.Error("an earlier answer counts for ever")
	}
	j.err = nil
	review("reader", "/metrics", true, true, 2)
}

// TestReviewLimit: made-up tokens overload neither the API server nor memory, and a known client still gets in.
func TestReviewLimit(t *testing.T) {
	j := &judge{t: t}
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	r := NewReviewer(Documents{})
	r.do, r.now = j.do, func() time.Time { return now }
	if _, allowed, err := r.Review(t.Context(), "reader", "/metrics"); !allowed || err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		_, _, _ = r.Review(t.Context(), fmt.Sprint("made up ", i), "/metrics")
	}
	if len(j.asked) > 2+reviewBurst {
		t.Errorf("%d questions", len(j.asked))
	}
	for range 2 {
		if _, allowed, err := r.Review(t.Context(), "reader", "/metrics"); !allowed || err != nil {
			t.Errorf("who is known: %v", err)
		}
		now = now.Add(2 * reviewKept)
		for i := range 1000 {
			_, _, _ = r.Review(t.Context(), fmt.Sprint("again ", i), "/metrics")
		}
	}
	r.limit = rate.NewLimiter(rate.Inf, 1)
	for i := range 5 * reviewsKept {
		_, _, _ = r.Review(t.Context(), fmt.Sprint("made up ", i), "/metrics")
	}
	if len(r.known) > reviewsKept {
		t.Errorf("%d answers are remembered", len(r.known))
	}
}
