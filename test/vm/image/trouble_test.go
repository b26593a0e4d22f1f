package image

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestTrouble(t *testing.T) {
	r, err := Serve(0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Push(t.Context(), "a/b:1", Spec{}); err != nil {
		t.Fatal(err)
	}
	pull := func() error {
		ref, err := name.ParseReference(r.Address()+"/a/b:1", name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		img, err := remote.Image(ref, remote.WithContext(t.Context()),
			remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 1}))
		if err != nil {
			return err
		}
		_, err = img.RawConfigFile()
		return err
	}
	blobs := func(q *http.Request) bool { return strings.Contains(q.URL.Path, "/blobs/") }
	for _, c := range []struct {
		name    string
		trouble Trouble
		fails   string
	}{
		{"well", Trouble{}, ""},
		{"refuses", Trouble{Status: http.StatusUnauthorized}, "401"},
		{"cut", Trouble{Cut: true}, "EOF"},
		{"lies", Trouble{Corrupt: true, Match: blobs}, "sha256"},
		{"slow", Trouble{Delay: 10 * time.Millisecond}, ""},
		{"well again", Trouble{}, ""},
	} {
		r.Behave(c.trouble)
		begin, err := time.Now(), pull()
		if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.fails)
		}
		if time.Since(begin) < c.trouble.Delay {
			t.Errorf("%s: was not slow", c.name)
		}
		if len(r.Requests()) == 0 {
			t.Errorf("%s: no request was noted", c.name)
		}
	}
}
