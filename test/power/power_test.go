package power

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/nbd"
)

var (
	cuts = flag.Int("cuts", 200, "how many power cuts, with fsync and again without")
	seed = flag.Uint64("seed", 0, "chooses the moments of the cuts; 0 takes another one each time")
)

// diskMiB is the size of the disk that loses its cache.
const diskMiB = 96

// mounts are the ways in which the file system is mounted: as Debian does, and so that it promises no more than it
// must: data of a file that takes the place of another is not written before (ext4(5), auto_da_alloc, data).
func mounts() []string { return []string{"", "data=writeback,noauto_da_alloc"} }

// moment is a mark in a recording: after so many writes its step had been done.
type moment struct {
	Step     string          `json:"step"`
	State    json.RawMessage `json:"state"`
	position int
}

// film is the recording of one area's work.
type film struct {
	area, mount string
	recording   nbd.Recording
	marks       []moment
}

// studio is the test's side: what the program in the guest talks to.
type studio struct {
	*testing.T
	disk    *nbd.Disk
	rand    *rand.Rand
	program func(args ...string) (said string, err error) // in the guest

	mu       sync.Mutex
	marks    []moment
	film     nbd.Recording
	plan     []planned
	next     int
	verdicts map[int]Verdict
}

// planned is a cut that is to be made.
type planned struct {
	film     *film
	position int // after so many writes and flushes
	mark     int // the last one before
	keeps    string
}

func newStudio(t *testing.T) *studio {
	return &studio{
		T: t, rand: rand.New(rand.NewPCG(*seed, 0)), disk: nbd.New(diskMiB<<20, nbd.NewContent(nil)),
		verdicts: map[int]Verdict{},
	}
}

// serve answers the program in the guest, and returns the URL for it.
func (s *studio) serve() string {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	mux := http.NewServeMux()
	handle := func(path string, do func(*json.Decoder) (any, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			answer, err := do(json.NewDecoder(r.Body))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(answer) // the guest sees half an answer
		})
	}
	handle("/begin", func(*json.Decoder) (any, error) {
		s.marks, s.film = nil, nbd.Recording{}
		s.disk.Record()
		return nil, nil
	})
	handle("/mark", func(body *json.Decoder) (any, error) {
		m := moment{position: s.disk.Recorded()}
		err := body.Decode(&m)
		s.marks = append(s.marks, m)
		return nil, err
	})
	handle("/end", func(*json.Decoder) (any, error) { s.film = s.disk.Recording(); return nil, nil })
	handle("/next", func(*json.Decoder) (any, error) {
		if s.next == len(s.plan) {
			return Cut{}, nil
		}
		p := s.plan[s.next]
		c, err := p.film.recording.Cut(p.position, s.keep(p.keeps))
		s.disk.Load(c)
		marks := p.film.marks
		cut := Cut{
			Number: s.next, Area: p.film.area, MountOptions: p.film.mount,
			Start: marks[0].State, Before: marks[p.mark].State, After: marks[p.mark+1].State,
		}
		s.next++
		return cut, err
	})
	handle("/verdict", func(body *json.Decoder) (any, error) {
		var v Verdict
		err := body.Decode(&v)
		s.verdicts[v.Number] = v
		return nil, err
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }() // ends with the test
	s.Cleanup(func() { server.Close() })
	return fmt.Sprintf("http://10.0.2.2:%d", l.Addr().(*net.TCPAddr).Port)
}

// keep says which blocks of the cache happen to be on the disk when the power goes.
func (s *studio) keep(which string) func() bool {
	switch which {
	case "none":
		return func() bool { return false }
	case "all":
		return func() bool { return true }
	}
	return func() bool { return s.rand.IntN(2) == 0 }
}

// spread chooses moments for n cuts: each step of each film in turn, and in it any moment.
func (s *studio) spread(n int, films []*film) (plan []planned) {
	var steps []planned
	for _, f := range films {
		for i := range len(f.marks) - 1 {
			steps = append(steps, planned{film: f, mark: i})
		}
	}
	s.rand.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for i := range n {
		p := steps[i%len(steps)]
		from, to := p.film.marks[p.mark].position, p.film.marks[p.mark+1].position
		p.position = from + s.rand.IntN(to-from+1)
		p.keeps = []string{"none", "some", "none", "some", "all"}[s.rand.IntN(5)]
		plan = append(plan, p)
	}
	return plan
}

// share is how many of all cuts an area has.
func share(area string, n, areas int) int {
	each := n / (areas + 1)
	if area == "ledger" {
		return n - (areas-1)*each
	}
	return each
}

// TestPowerCuts: the power goes at any moment of what acceld does to its files. After each cut the next agent finds all
// right; and the same work with every fsync left out shows how many cuts needed them.
func TestPowerCuts(t *testing.T) {
	vm.Require(t)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("the moments are those of -seed=%d", *seed)
	s := newStudio(t)
	dir, err := os.MkdirTemp("", "power") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "disk")
	server, err := s.disk.Serve(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	program := build(t, dir) // before there is a guest that others may wait for
	st, err := stage.New(t.Context(), dir)
	stage.Check(t, err)
	g := vm.StartLight(t, vm.Options{Accelerators: 1, Devices: nbd.Devices(socket, "power")})
	module, err := st.Module(stage.Within(t, 20*time.Minute), g.Core, stage.Version)
	stage.Check(t, err)
	g.Put(module, Module, 0o644)
	g.Put(program, "/usr/bin/power", 0o755)
	url := s.serve()
	device := strings.TrimSpace(g.MustSh(`grep -lx power /sys/block/*/serial | cut -d / -f 4 | sed 's,^,/dev/,'`))
	s.program = func(args ...string) (string, error) {
		var out strings.Builder
		session, err := g.Core.Start(t.Context(), &out, &out,
			append([]string{"/usr/bin/power", "-server=" + url, "-device=" + device}, args...)...)
		if err != nil {
			return "", err
		}
		status, err := session.Wait(t.Context())
		if err == nil && status != 0 {
			err = fmt.Errorf("exit status %d", status)
		}
		return out.String(), err
	}
	s.run(*cuts, slices.Sorted(maps.Keys(Areas())))
}

// run records the work of the areas, with every fsync and without, cuts each recording, and says what came of it.
func (s *studio) run(n int, areas []string) {
	s.Helper()
	rows := map[string]*row{}
	for _, nosync := range []bool{false, true} {
		films := map[string][]*film{}
		for _, area := range areas {
			if rows[area] == nil {
				rows[area] = &row{area: area}
			}
			for _, mount := range mounts() {
				began := time.Now()
				if said, err := s.program("-area="+area, "-mount="+mount,
					fmt.Sprintf("-nosync=%v", nosync)); err != nil {
					s.Fatalf("%s, mounted with %q, nosync=%v: %v\n%s", area, mount, nosync, err, said)
				}
				s.mu.Lock()
				f := &film{area, mount, s.film, s.marks}
				s.mu.Unlock()
				s.Logf("%-8s fsync=%-5v mount=%-32q %3d steps, %5d writes, %4d flushes, %5.1f s", area, !nosync, mount,
					len(f.marks), f.recording.Len()-f.recording.Flushes(), f.recording.Flushes(),
					time.Since(began).Seconds())
				films[area] = append(films[area], f)
			}
			rows[area].steps = len(films[area][0].marks) - 1
		}
		s.judge(n, films, nosync, rows)
	}
	table(s.T, rows)
}

// judge makes the cuts of the films and counts what came of them.
func (s *studio) judge(n int, films map[string][]*film, nosync bool, rows map[string]*row) {
	s.Helper()
	began := time.Now()
	s.mu.Lock()
	s.plan, s.next = nil, 0
	clear(s.verdicts)
	for _, area := range slices.Sorted(maps.Keys(films)) {
		s.plan = append(s.plan, s.spread(share(area, n, len(films)), films[area])...)
	}
	s.mu.Unlock()
	said, err := s.program()
	if err != nil {
		s.Fatalf("judging ended: %v\n%s", err, said)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var took time.Duration
	shown := 0
	for n, p := range s.plan {
		v, there := s.verdicts[n]
		if !there {
			s.Fatalf("cut %d was not judged\n%s", n, said)
		}
		took += v.Took
		wrong := v.Wrong.All()
		rows[p.film.area].count(nosync, v.Wrong)
		if len(wrong) == 0 {
			continue
		}
		say := s.Errorf
		if nosync {
			say = s.Logf
			if shown++; shown > 25 {
				continue
			}
		}
		marks := p.film.marks
		say(
			"cut %d: %s, mounted with %q, after write %d of %d, between %q (%d) and %q (%d), of the cache is kept %s:\n\t%s",
			n, p.film.area, p.film.mount,
			p.position, p.film.recording.Len(), marks[p.mark].Step, marks[p.mark].position, marks[p.mark+1].Step,
			marks[p.mark+1].position, p.keeps,
			strings.ReplaceAll(strings.Join(wrong, "\n"), "\n", "\n\t"))
	}
	s.Logf("%d cuts judged in %.0f s, each in %.1f s", len(s.plan), time.Since(began).Seconds(),
		took.Seconds()/float64(max(1, len(s.plan))))
}

// build builds the program for the guest.
func build(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace",
		"-ldflags=-s -w", "-o", program, "github.com/acceld/acceld/test/power/cmd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// row is what is known of an area.
type row struct {
	area                             string
	steps, cuts, right               int
	cutsNoSync, lost, torn, brokenly int
}

func (r *row) count(nosync bool, w Wrong) {
	switch {
	case !nosync:
		r.cuts++
		if len(w.All()) == 0 {
			r.right++
		}
		return
	case len(w.Broken) > 0:
		r.brokenly++
	case len(w.Torn) > 0:
		r.torn++
	case len(w.Lost) > 0:
		r.lost++
	}
	r.cutsNoSync++
}

// needed is how many cuts needed an fsync.
func (r *row) needed() int { return r.lost + r.torn + r.brokenly }

func (r *row) add(o *row) {
	r.steps, r.cuts, r.right = r.steps+o.steps, r.cuts+o.cuts, r.right+o.right
	r.cutsNoSync, r.lost, r.torn, r.brokenly = r.cutsNoSync+o.cutsNoSync, r.lost+o.lost, r.torn+o.torn,
		r.brokenly+o.brokenly
}

func (r *row) String() string {
	return fmt.Sprintf("%-10s %6d %6d %6d   %6d %6d %6d %8d %6d\n", r.area, r.steps, r.cuts, r.right, r.cutsNoSync,
		r.needed(), r.brokenly, r.torn, r.lost)
}

// table prints the outcome, and fails where nothing needed an fsync: then nothing was shown. Each cut is in one of the
// last columns: something that the agent cannot mend; or a file in force is empty or half; or a step that had been done
// is not.
func table(t *testing.T, rows map[string]*row) {
	t.Helper()
	all := &row{area: "all"}
	text := fmt.Sprintf("\n%-31s   every fsync left out\n%-10s %6s %6s %6s   %6s %6s %6s %8s %6s\n", "", "area",
		"steps", "cuts", "right", "cuts", "wrong", "broken", "or torn", "or lost")
	for _, area := range slices.Sorted(maps.Keys(rows)) {
		r := rows[area]
		all.add(r)
		if r.needed() == 0 {
			t.Errorf("%s: no cut of %d needed an fsync: nothing is shown", area, r.cutsNoSync)
		}
		text += r.String()
	}
	t.Log(text + all.String())
}
