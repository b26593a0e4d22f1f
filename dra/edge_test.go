package dra

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/acceld/acceld/accel"
)

// TestExcludes: two claims may have some devices at the same time, and others not.
func TestExcludes(t *testing.T) {
	whole, other := given{Device: "a"}, given{Device: "b"}
	admin, first, second := given{Device: "a", Admin: true}, given{Device: "a", Share: "1"},
		given{Device: "a", Share: "2"}
	for _, c := range []struct {
		name string
		a, b given
		want bool
	}{
		{"the same device", whole, whole, true},
		{"another one", whole, other, false},
		{"admin access", whole, admin, false},
		{"admin access to both", admin, admin, false},
		{"a share of it", whole, first, true},
		{"two shares", first, second, false},
		{"one share twice", first, first, true},
		{"admin access to a share", first, admin, false},
	} {
		if c.a.excludes(c.b) != c.want || c.b.excludes(c.a) != c.want {
			t.Errorf("%s: %t and %t, want %t", c.name, c.a.excludes(c.b), c.b.excludes(c.a), c.want)
		}
	}
}

// TestReadRecord: a record is accepted only if this agent understands it and it is about its claim.
func TestReadRecord(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record)
		ok     bool
	}{
		"a good one":    {func(*record) {}, true},
		"newer":         {func(r *record) { r.Version = recordVersion + 1 }, false},
		"no version":    {func(r *record) { r.Version = 0 }, false},
		"another claim": {func(r *record) { r.UID = "u-2" }, false},
		"no name":       {func(r *record) { r.Name = "" }, false},
		"no namespace":  {func(r *record) { r.Namespace = "" }, false},
	} {
		r := record{Version: recordVersion, Namespace: "team", Name: "c", UID: "u-1", Devices: []given{{Device: "a"}}}
		c.change(&r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readRecord("u-1", data); (err == nil) != c.ok || c.ok != (got.UID == "u-1") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestUIDs: what becomes part of a file name is one word.
func TestUIDs(t *testing.T) {
	b := newBed(t)
	p := b.plugin(edus(1)...)
	asked := 0
	b.server.refusing(func(string, string) error { asked++; return errors.New("nobody is to be asked") })
	for _, uid := range []string{"", "..", "../x", "a/b", ".hidden", "a\x00b", "-x"} {
		if _, problem := prepareOne(t.Context(), p, &drapb.Claim{Namespace: "team", Name: "c", Uid: uid}); problem == nil ||
			problem.Reason != accel.ClaimUnusable {
			t.Errorf("%q: %v", uid, problem)
		}
	}
	if asked > 0 {
		t.Errorf("the API server was asked %d times", asked)
	}
	if left, err := filepath.Glob(filepath.Join(b.root, "var/lib/acceld/dra/*/*")); err != nil || len(left) > 0 {
		t.Errorf("written: %v", left)
	}
}

// TestWrites: another writer's change is a reason to look again; any other error is a problem. The rate of writes is
// limited.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &publisher{
			Plugin: &Plugin{cfg: Config{Log: slog.New(slog.DiscardHandler)}},
			writes: rate.NewLimiter(rate.Every(writeEvery), writeBurst),
		}
		resource := schema.GroupResource{Resource: "resourceslices"}
		for _, err := range []error{
			apierrors.NewConflict(resource, "x", errors.New("it is newer")),
			apierrors.NewAlreadyExists(resource, "x"), apierrors.NewNotFound(resource, "x"),
		} {
			if got := b.one(t.Context(), "write", func() error { return err }); !errors.Is(got, errOvertaken) {
				t.Errorf("%v: %v", err, got)
			}
		}
		if got := b.one(t.Context(), "write", func() error { return errors.New("away") }); got == nil ||
			errors.Is(got, errOvertaken) {
			t.Error(got)
		}
		began := time.Now()
		const more = 10
		for range writeBurst + more - 4 { // minus the writes above
			if err := b.one(t.Context(), "write", func() error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < (more-1)*writeEvery {
			t.Errorf("%d writes within %v", writeBurst+more, took)
		}
	})
}

// TestTogether: no claim in a call waits for another one.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []*drapb.Claim{{Uid: "1"}, {Uid: "2"}, {Uid: "3"}}
		last := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			each(all, func(c *drapb.Claim) {
				if c == all[2] {
					close(last)
				}
				<-last
			})
		}()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("they wait for each other")
			close(last)
		}
	})
}
