package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/test/ko"
)

// electors is an election among hosts that share it.
type electors struct {
	mu     sync.Mutex
	holder map[string]string
	asked  int
	err    error
}

func (e *electors) as(node string) func(context.Context, string) (func(), bool, string, error) {
	return func(_ context.Context, key string) (func(), bool, string, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked++
		if e.err != nil {
			return nil, false, "", e.err
		}
		if h := e.holder[key]; h != "" && h != node {
			return nil, false, h, nil
		}
		e.holder[key] = node
		return func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.holder, key)
		}, true, node, nil
	}
}

func newElectors() *electors { return &electors{holder: map[string]string{}} }

// fleet is a workshop whose hosts share a registry.
type fleet struct {
	*workshop
	shop *shop
	e    *electors
}

func newFleet(t *testing.T, makefile string) fleet {
	return fleet{newWorkshop(t, makefile), newShop(t), newElectors()}
}

func (f fleet) definition() *accel.Definition {
	def := f.workshop.definition()
	def.Driver.Sources = append(def.Driver.Sources, accel.Source{
		Type: accel.SourceOCI, Image: f.shop.host() + "/edu",
		Push: true,
	})
	return def
}

func (f fleet) node(name string) *Driver {
	return New(f.h, Options{StateDir: f.t.TempDir(), Artifact: quick(), Elect: f.e.as(name)})
}

// acquire asks the configured sources in order, as Ensure does.
func (f fleet) acquire(d *Driver) (string, source.Answer) {
	for _, s := range d.sources.For(f.definition(), f.facts(), source.Options{}) {
		if s.Name == "installed" {
			continue
		}
		a := s.Ask(f.t.Context())
		if a.Verdict == source.Satisfied {
			a.Plan.Close()
			return string(a.Plan.Source), a
		}
		if a.Verdict != source.Unavailable {
			return s.Name, a
		}
	}
	return "", source.Answer{}
}

// TestFleetBuildsOnce: of two hosts with the same kernel, one builds; the other waits with a reason and pulls.
func TestFleetBuildsOnce(t *testing.T) {
	f := newFleet(t, `touch started; while test ! -e go; do sleep 0.02; done; `+goodMake)
	one, two := f.node("one"), f.node("two")
	got := make(chan string)
	go func() {
		source, _ := f.acquire(one)
		one.sources.Wait()
		got <- source
	}()
	for !f.h.Exists(f.headers + "/started") {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		_, a := f.acquire(two)
		if a.Verdict != source.Waiting || a.Problem.Reason != accel.BuildElsewhere ||
			!strings.Contains(a.Problem.Message, `node "one" builds the driver of "qemu-edu"`) {
			t.Fatalf("%+v %v", a, a.Problem)
		}
	}
	if a := accel.BuildElsewhere.Doc(); a.Permanent {
		t.Error("nobody would look again")
	}
	f.write(f.headers, "go", "")
	if source := <-got; source != "build" {
		t.Fatal(source)
	}
	if source, a := f.acquire(two); source != "oci" {
		t.Fatal(source, a.Problem)
	}
	if f.runs() != 1 {
		t.Errorf("%d builds", f.runs())
	}
	// Both have this same entry and no other.
	a, _ := one.store.List()
	b, _ := two.store.List()
	if len(a) != 1 || len(b) != 1 || a[0].Key != b[0].Key || a[0].Source != accel.SourceBuild ||
		b[0].Source != accel.SourceOCI {
		t.Errorf("%+v\n%+v", a, b)
	}
	if p := one.sources.Published(a[0].Key); !strings.HasPrefix(p, f.shop.host()+"/edu:") ||
		two.sources.Published(b[0].Key) != "" {
		t.Errorf("published %q, %q", p, two.sources.Published(b[0].Key))
	}
	if len(f.e.holder) != 0 {
		t.Errorf("still builders: %v", f.e.holder)
	}
}

// TestElectedTooLate: the artifact appears between the registry lookup and the election.
func TestElectedTooLate(t *testing.T) {
	f := newFleet(t, goodMake)
	one := f.node("one")
	elect := f.e.as("two")
	late := func(ctx context.Context, key string) (func(), bool, string, error) {
		if source, a := f.acquire(one); source != "build" {
			t.Error(source, a.Problem)
		}
		one.sources.Wait()
		return elect(ctx, key)
	}
	two := New(f.h, Options{StateDir: t.TempDir(), Artifact: quick(), Elect: late})
	if source, a := f.acquire(two); source != "oci" || f.runs() != 1 {
		t.Errorf("%s %v, %d builds", source, a.Problem, f.runs())
	}
	if len(f.e.holder) != 0 {
		t.Errorf("still builders: %v", f.e.holder)
	}
}

// TestBuilderGivesUp: if the elected builder publishes nothing, the next one builds.
func TestBuilderGivesUp(t *testing.T) {
	f := newFleet(t, `test -e works && `+goodMake)
	one, two := f.node("one"), f.node("two")
	if _, a := f.acquire(one); a.Verdict != source.Failed || a.Problem.Reason != accel.BuildFailed {
		t.Fatalf("%+v", a)
	}
	f.write(f.headers, "works", "")
	if source, a := f.acquire(two); source != "build" {
		t.Fatal(source, a.Problem)
	}
	two.sources.Wait()
	if source, a := f.acquire(one); source != "oci" {
		t.Fatal(source, a.Problem)
	}
}

// TestNobodyElects: without a cluster every host builds, and a driver that cannot be published is used anyway.
func TestNobodyElects(t *testing.T) {
	f := newFleet(t, goodMake)
	f.e.err = errors.New("connection refused")
	f.shop.spoil = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost || r.Method == http.MethodPut {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	}
	d := f.node("one")
	if source, a := f.acquire(d); source != "build" {
		t.Fatal(source, a.Problem)
	}
	d.sources.Wait()
	all, _ := d.store.List()
	if p := d.sources.Published(all[0].Key); !strings.HasPrefix(p, "not published: ") || !strings.Contains(p, "403") {
		t.Errorf("published: %q", p)
	}
	d = New(f.h, Options{StateDir: f.t.TempDir(), Artifact: quick()}) // without a cluster
	if source, a := f.acquire(d); source != "build" || f.runs() != 2 {
		t.Error(source, a.Problem, f.runs())
	}
	d.sources.Wait()
	if left := f.h.Glob(d.store.BuildDir(), "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestNoElectionForNothing: if nothing is published, there is nothing to wait for.
func TestNoElectionForNothing(t *testing.T) {
	f := newFleet(t, goodMake)
	d := f.node("one")
	def := f.definition()
	def.Driver.Sources[1].Push = false
	if a := ask(t, d, def, f.facts(), accel.SourceBuild); a.Verdict != source.Satisfied {
		t.Fatal(a.Problem)
	} else {
		a.Plan.Close()
	}
	d.sources.Wait()
	if f.e.asked != 0 {
		t.Errorf("asked %d times", f.e.asked)
	}
}

// TestFetchOntoAFullDisk fetches into a file system of every size from nothing to enough.
func TestFetchOntoAFullDisk(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := fromShop(s)
	x := ko.Edu()
	for i := range 4000 {
		x.Info = append(x.Info, "alias=pci:v"+sumOf([]byte{byte(i), byte(i >> 8)}))
	}
	s.stock(t, def, x, nil, nil)
	d := m.driver(Options{})
	if err := os.MkdirAll(m.Path(d.o.StateDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", m.Path(d.o.StateDir), "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(m.Path(d.o.StateDir), syscall.MNT_DETACH) })
	full := 0
	for size := 16; ; size += 64 {
		if size > 4096 {
			t.Fatal("never fetched")
		}
		if err := syscall.Mount("tmpfs", m.Path(d.o.StateDir), "tmpfs", syscall.MS_REMOUNT,
			fmt.Sprintf("size=%dk", size)); err != nil {
			t.Fatal(err)
		}
		d := m.driver(Options{Artifact: quick()})
		a := ask(t, d, def, m.Facts(), accel.SourceOCI)
		if a.Verdict == source.Satisfied {
			a.Plan.Close()
			break
		}
		full++
		if a.Verdict != source.Failed || a.Problem.Reason != accel.NoSpace {
			t.Errorf("with %d KiB: %s %v", size, a.Verdict, a.Problem)
		}
		if left := m.tree(d); len(left) > 0 {
			t.Errorf("with %d KiB: left %v", size, left)
		}
	}
	if full < 2 {
		t.Errorf("the disk was full %d times", full)
	}
}

// TestBundle carries drivers from one host to another.
func TestBundle(t *testing.T) {
	a, b := newMachine(t), newMachine(t)
	from, to := a.driver(Options{}), b.driver(Options{})
	newer := ko.Edu()
	newer.Version, newer.BuildID = "2.0.0", "c2c2"
	entries := []store.Entry{a.enter(from, ko.Edu(), 1), a.enter(from, newer, 2)}
	foreign := a.enter(from, ko.Edu(), 3)
	foreign.Kind = "a-b"
	key := newKey(t, a, "k")
	b.Write("/etc/k.pub", a.Read("/etc/k.pub"))
	a.Write("/media/.keep", "")
	if _, problem := from.sources.Export(a.Facts(), append(entries, foreign), "/media/b.tar", key); problem != nil {
		t.Fatal(problem)
	}
	if left := a.Host.Glob("/media", "*.tmp"); len(left) > 0 {
		t.Error(left)
	}
	b.Write("/media/b.tar", a.Read("/media/b.tar"))
	defs := map[string]*accel.Definition{"qemu-edu": ko.Definition()}
	got, unknown, problem := to.sources.Import(t.Context(), defs, b.Facts(), "/media/b.tar", []string{"/etc/k.pub"})
	if problem != nil || len(got) != 2 || cmp.Diff([]string{"a-b"}, unknown) != "" {
		t.Fatal(got, unknown, problem)
	}
	for i, e := range got {
		if e.Key != entries[i].Key || b.Read(e.Path+"/edu.ko") != a.Read(entries[i].Path+"/edu.ko") {
			t.Errorf("%+v is not %+v", e, entries[i])
		}
	}
	if have, problem := to.Ensure(t.Context(), ko.Definition(), b.Facts(), b.accs()); problem != nil ||
		have.Source != "store" || have.Version != "2.0.0" {
		t.Error(have, problem)
	}
	// The same with the bundle as a source, for the configured version.
	c := newMachine(t)
	c.Write("/media/b.tar", a.Read("/media/b.tar"))
	c.Write("/etc/k.pub", a.Read("/etc/k.pub"))
	def := ko.Definition()
	def.Driver.Version = "1.0.0"
	def.Driver.Sources = []accel.Source{{Type: accel.SourceBundle, Path: "/media/b.tar", Keys: []string{"/etc/k.pub"}}}
	if have, problem := c.driver(Options{}).Ensure(t.Context(), def, c.Facts(), c.accs()); problem != nil ||
		have.Source != "bundle" || have.Version != "1.0.0" {
		t.Error(have, problem)
	}
	for _, row := range []struct {
		name string
		text string
		want accel.Reason
	}{
		{"cut off", a.Read("/media/b.tar")[:6000], accel.ArtifactInvalid},
		{"no bundle", "text", accel.ArtifactInvalid},
		{"empty", "", accel.ArtifactInvalid},
		{
			"changed", strings.ReplaceAll(a.Read("/media/b.tar"), `"driverVersion":"2.0.0"`, `"driverVersion":"3.0.0"`),
			accel.DigestMismatch,
		},
	} {
		d := newMachine(t)
		d.Write("/media/b.tar", row.text)
		d.Write("/etc/k.pub", a.Read("/etc/k.pub"))
		driver := d.driver(Options{})
		if _, _, problem := driver.sources.Import(t.Context(), defs, d.Facts(), "/media/b.tar",
			[]string{"/etc/k.pub"}); problem == nil || problem.Reason != row.want {
			t.Errorf("%s: %v, want %s", row.name, problem, row.want)
		}
		if left := d.tree(driver); len(left) > 0 {
			t.Errorf("%s: left %v", row.name, left)
		}
	}
	other := newMachine(t)
	newKey(t, other, "k")
	other.Write("/media/b.tar", a.Read("/media/b.tar"))
	if _, _, problem := other.driver(Options{}).sources.Import(t.Context(), defs, other.Facts(), "/media/b.tar",
		[]string{"/etc/k.pub"}); problem == nil || problem.Reason != accel.SignatureInvalid {
		t.Error(problem)
	}
}
