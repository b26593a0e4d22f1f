package artifact

import (
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
)

// witness records the progress that a client reports.
type witness struct {
	mu  sync.Mutex
	all []accel.Progress
}

func (w *witness) see(p accel.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, p)
}

// judge checks that the reports describe one valid transfer, and returns the last report.
func (w *witness) judge(t *testing.T, stage accel.Stage) accel.Progress {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		t.Fatal("nothing was told")
	}
	var last accel.Progress
	for i, p := range w.all {
		if p.Stage != stage || p.Since.IsZero() || !p.Since.Equal(w.all[0].Since) || last.Ended {
			t.Errorf("report %d: %+v", i, p)
		}
		if p.Done < last.Done && p.Attempt == last.Attempt {
			t.Errorf("report %d goes back from %d to %d bytes", i, last.Done, p.Done)
		}
		if p.Total > 0 && p.Done > p.Total || last.Total > 0 && p.Total != last.Total {
			t.Errorf("report %d has %d of %d bytes after one with %d", i, p.Done, p.Total, last.Total)
		}
		last = p
	}
	if !last.Ended {
		t.Errorf("no end: %+v", last)
	}
	w.all = nil
	return last
}

// large gives the workbench an artifact with 3 MB of incompressible data, and a client that reports to a witness.
func (b *workbench) large() (Content, *witness) {
	c := content()
	bytes := make([]byte, 3_000_000)
	rand.NewChaCha8([32]byte{1}).Read(bytes)
	b.write("/store/firmware/a/edu.bin", string(bytes))
	c.Config.Firmware[0].SHA256 = sum(string(bytes))
	w := &witness{}
	b.c.o.Progress = w.see
	return c, w
}

// meddling modifies the responses of a registry.
type meddling struct {
	http.Handler
	with atomic.Pointer[func(http.ResponseWriter, *http.Request) http.ResponseWriter]
}

func (m *meddling) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := m.with.Load(); f != nil && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		w = (*f)(w, r)
	}
	m.Handler.ServeHTTP(w, r)
}

// piecemeal sends a response in pieces, without a length, and cuts the connection after some bytes.
type piecemeal struct {
	http.ResponseWriter
	pause time.Duration
	cut   int // 0 means never
	sent  int
}

func (p *piecemeal) WriteHeader(code int) {
	p.Header().Del("Content-Length")
	p.ResponseWriter.WriteHeader(code)
}

func (p *piecemeal) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		n, err := p.ResponseWriter.Write(b[done:min(done+256<<10, len(b))])
		if done += n; err != nil {
			return done, err
		}
		p.ResponseWriter.(http.Flusher).Flush()
		if p.sent += n; p.cut > 0 && p.sent >= p.cut {
			panic(http.ErrAbortHandler)
		}
		time.Sleep(p.pause)
	}
	return len(b), nil
}

// TestTransfer: bytes are reported as they arrive and only grow, up to the size from the manifest, whether or not the
// registry sends a length.
func TestTransfer(t *testing.T) {
	b := newWorkbench(t)
	c, w := b.large()
	m := &meddling{Handler: newRegistry()}
	s := accel.Source{Type: accel.SourceOCI, Image: serve(t, m) + "/edu"}
	pushed, problem := b.c.Push(t.Context(), s, this(), c, b.empty(), PushOptions{})
	if problem != nil {
		t.Fatal(problem)
	}
	end := w.judge(t, accel.StagePush)
	if end.Total < 3_000_000 || end.Done != end.Total || end.Problem != "" || !strings.HasPrefix(pushed.Reference,
		end.What) {
		t.Errorf("the end of the push: %+v", end)
	}
	// A blob that exists already is not transferred, but still counts.
	if _, problem := b.c.Push(t.Context(), s, this(), c, b.empty(), PushOptions{}); problem != nil {
		t.Fatal(problem)
	}
	if again := w.judge(t, accel.StagePush); again.Done != end.Done || again.Total != end.Total {
		t.Errorf("the end of the second push: %+v", again)
	}
	slow := func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
		return &piecemeal{ResponseWriter: w, pause: 60 * time.Millisecond}
	}
	m.with.Store(&slow)
	pulled, problem := b.c.Pull(t.Context(), s, this(), b.empty())
	if problem != nil {
		t.Fatal(problem)
	}
	between := 0
	for _, p := range w.all {
		if p.Done > 0 && p.Done < p.Total {
			between++
		}
	}
	if between < 2 || between > 20 {
		t.Errorf("%d reports on the way of %d", between, len(w.all))
	}
	if end := w.judge(t, accel.StagePull); end.Done != end.Total || end.Total < 3_000_000 || end.Problem != "" ||
		end.What != pulled.Reference {
		t.Errorf("the end of the pull: %+v", end)
	}
	// A file is reported like a registry.
	file := "/tmp/edu.tar"
	if _, problem := b.c.Export(file, []Content{c}, b.empty(), nil); problem != nil {
		t.Fatal(problem)
	}
	if _, problem := b.c.PullBundle(t.Context(), accel.Source{Type: accel.SourceBundle, Path: file}, this(),
		b.empty()); problem != nil {
		t.Fatal(problem)
	}
	if end := w.judge(t, accel.StagePull); end.Done != end.Total || end.Total < 3_000_000 ||
		!strings.HasPrefix(end.What, file) {
		t.Errorf("the end of the pull from a file: %+v", end)
	}
}

// TestTransferCut: after the connection is cut, the byte count restarts with another attempt, whose report has the
// cause. If there is no further attempt, the last report has it.
func TestTransferCut(t *testing.T) {
	b := newWorkbench(t)
	c, w := b.large()
	m := &meddling{Handler: newRegistry()}
	s := accel.Source{Type: accel.SourceOCI, Image: serve(t, m) + "/edu"}
	if _, problem := b.c.Push(t.Context(), s, this(), c, b.empty(), PushOptions{}); problem != nil {
		t.Fatal(problem)
	}
	w.judge(t, accel.StagePush)
	var cuts atomic.Int32
	cuts.Store(1)
	cutting := func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
		p := &piecemeal{ResponseWriter: w, pause: 60 * time.Millisecond}
		if cuts.Load() > 0 {
			p.cut = 1 << 20
		}
		return p
	}
	m.with.Store(&cutting)
	var tries []accel.Progress
	b.c.o.Progress = func(p accel.Progress) {
		if w.see(p); p.Attempt > 1 && (len(tries) == 0 || tries[len(tries)-1].Attempt < p.Attempt) {
			tries = append(tries, p)
			cuts.Add(-1)
		}
	}
	dir := b.empty()
	if _, problem := b.c.Pull(t.Context(), s, this(), dir); problem != nil {
		t.Fatal(problem)
	}
	if len(tries) != 1 || tries[0].Attempt != 2 || tries[0].Done != 0 || tries[0].Problem == "" ||
		!tries[0].Again.After(tries[0].Since) {
		t.Errorf("attempts: %+v", tries)
	}
	if end := w.judge(t, accel.StagePull); end.Done != end.Total || end.Attempt != 2 || end.Problem != "" {
		t.Errorf("the end: %+v", end)
	}
	if st, err := os.Stat(filepath.Join(b.root, dir, "firmware/a/edu.bin")); err != nil || st.Size() != 3_000_000 {
		t.Error(st, err)
	}
	cuts.Store(transfer.Attempts)
	if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem == nil {
		t.Fatal("a connection that is always cut was enough")
	}
	if end := w.judge(t, accel.StagePull); end.Attempt != transfer.Attempts || end.Problem == "" ||
		end.Done >= end.Total {
		t.Errorf("the end without success: %+v", end)
	}
	// A pull of a missing artifact also has an end, but no size.
	w.all = nil
	if _, problem := b.c.Pull(t.Context(), accel.Source{Image: s.Image + "/other:tag"}, this(),
		b.empty()); problem == nil {
		t.Fatal("an image came from nowhere")
	}
	if end := w.judge(t, accel.StagePull); end.Total != 0 || end.Done != 0 || !strings.Contains(end.Problem, "404") ||
		end.What != s.Image+"/other:tag" {
		t.Errorf("the end of what is not there: %+v", end)
	}
}

// TestTransferOfParts: a retried pull restarts with the first part, a retried push with the part that failed. A
// reader that outlives its attempt does not count.
func TestTransferOfParts(t *testing.T) {
	for stage, want := range map[accel.Stage]int64{accel.StagePull: 0, accel.StagePush: 4} {
		var last accel.Progress
		c := New(nil, Options{Progress: func(p accel.Progress) { last = p }})
		x := c.begin(stage, "x")
		x.Size("x", 10)
		x.Part(4)
		late := x.Reader(io.NopCloser(strings.NewReader("abc")))
		x.Again(2, "it broke off")
		if last.Done != want || last.Again.IsZero() != (want > 0) {
			t.Errorf("%s: another attempt begins with %+v", stage, last)
		}
		r := x.Reader(io.NopCloser(strings.NewReader("de")))
		for _, r := range []io.Reader{late, r} {
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Error(err)
			}
		}
		if x.End(""); last.Done != want+2 || !last.Ended {
			t.Errorf("%s: ended with %+v", stage, last)
		}
	}
}
