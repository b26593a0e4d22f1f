package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/tree"
)

var errCrash = errors.New("the process ended here")

// crashAt lets n steps happen and then none, as after a kill. It counts the steps.
func crashAt(n int, count *int) func(string, string) error {
	return func(string, string) error {
		*count++
		if *count > n {
			return errCrash
		}
		return nil
	}
}

// quick is a temporary directory where syncing costs nothing: these tests check the order of steps, not the disk.
func quick(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm")
	}
}

// around leaves out the lines of directories in which acceld's own were created and, because /sys is plain files here,
// the time of the attribute.
func around(text string) string {
	var out strings.Builder
	for l := range strings.Lines(text) {
		name, _, _ := strings.Cut(l, " ")
		switch name {
		case "/run", "/var/lib":
			continue
		case "/sys/x/attr":
			l, _, _ = strings.Cut(l, " mtime=")
			l += "\n"
		}
		out.WriteString(l)
	}
	return out.String()
}

// If acceld is killed at any step of any change, a purge restores the tree, even if the agent was restarted meanwhile.
func TestCrashAtEveryStep(t *testing.T) {
	quick(t)
	total := 0
	l := open(t, newRoot(t))
	l.files.fault = crashAt(1<<30, &total)
	must(t, everything(l))
	if total < 100 {
		t.Fatalf("only %d steps: nothing is tested", total)
	}
	for n := range total + 1 {
		root := newRoot(t)
		before := around(snapshot(t, root, true))
		count := 0
		l := open(t, root)
		l.files.fault = crashAt(n, &count)
		if err := everything(l); (err == nil) != (n >= total) {
			t.Fatalf("ended at step %d of %d: %v", n, total, err)
		}
		if n%3 == 1 {
			must(t, everything(open(t, root))) // the agent starts again and converges
		}
		if left := purge(t, root); len(left) > 0 {
			t.Fatalf("ended at step %d: left %+v", n, left)
		}
		if diff := tree.Diff(before, around(snapshot(t, root, true))); diff != "" {
			t.Fatalf("ended at step %d of %d:\n%s", n, total, diff)
		}
		must(t, os.RemoveAll(root))
	}
}

// A purge that is killed at any step is finished by the next one.
func TestCrashAtEveryStepOfUndo(t *testing.T) {
	quick(t)
	for n := 0; ; n++ {
		root := newRoot(t)
		before := around(snapshot(t, root, true))
		must(t, everything(open(t, root)))
		count := 0
		l := open(t, root)
		l.files.fault = crashAt(n, &count)
		_, err1 := l.Undo(UndoOptions{})
		_, err2 := l.Discard(false)
		if left := purge(t, root); len(left) > 0 {
			t.Fatalf("ended at step %d (%v): left %+v", n, errors.Join(err1, err2), left)
		}
		if diff := tree.Diff(before, around(snapshot(t, root, true))); diff != "" {
			t.Fatalf("ended at step %d:\n%s", n, diff)
		}
		must(t, os.RemoveAll(root))
		if count <= n {
			t.Logf("%d steps", n)
			return
		}
	}
}

// If the disk is full for one step, only that change fails, both when changing and when undoing.
func TestFullDiskAtEveryStep(t *testing.T) {
	quick(t)
	full := func(n int, count *int) func(string, string) error {
		return func(string, string) error {
			*count++
			if *count == n {
				return unix.ENOSPC
			}
			return nil
		}
	}
	for n := 1; ; n++ {
		root := newRoot(t)
		before := around(snapshot(t, root, true))
		count, undoing := 0, 0
		l := open(t, root)
		l.files.fault = full(n, &count)
		if err := everything(l); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("full at step %d: %v", n, err)
		}
		l = open(t, root)
		l.files.fault = full(n, &undoing)
		out, err := l.Undo(UndoOptions{})
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("full at step %d of undoing: %v", n, err)
		}
		for _, o := range out {
			// the path that could not be removed
			if o.Action == Left && o.Reason != accel.NoSpace && !strings.HasPrefix(o.Detail, "it holds") {
				t.Fatalf("full at step %d of undoing: %+v", n, o)
			}
		}
		if left := purge(t, root); len(left) > 0 {
			t.Fatalf("full at step %d: left %+v", n, left)
		}
		if diff := tree.Diff(before, around(snapshot(t, root, true))); diff != "" {
			t.Fatalf("full at step %d:\n%s", n, diff)
		}
		must(t, os.RemoveAll(root))
		if n > count && n > undoing {
			return
		}
	}
}

// model is what a path must be after a purge; nil means absent.
type model struct {
	now, prior *string
	ours       map[string]bool // by text, "\x00" for absent; nil when acceld has nothing on record
}

func text(s *string) string {
	if s == nil {
		return "\x00"
	}
	return *s
}

func (m *model) acceld(to *string) {
	if text(m.now) == text(to) {
		return
	}
	if m.ours == nil {
		m.prior, m.ours = m.now, map[string]bool{}
	}
	m.ours = map[string]bool{text(to): true} // a completed change is the only one that counts
	m.now = to
	if to == nil && m.prior == nil {
		m.ours = nil // undone
	}
}

func (m *model) afterPurge() *string {
	if m.ours != nil && m.ours[text(m.now)] {
		return m.prior
	}
	return m.now
}

// Random changes by acceld and by others, then a random kill in the purge: afterwards each file is as it was before
// acceld, or as somebody else changed it.
func TestRandomChanges(t *testing.T) {
	quick(t)
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		root := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(root, "var/lib"), 0o755))
		must(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
		paths := map[string]*model{}
		var names []string
		for i := range 6 {
			p := fmt.Sprintf("/etc/%d", i)
			if i > 3 {
				p = fmt.Sprintf("/run/x/%d", i)
			}
			m := &model{}
			if i%2 == 0 {
				s := "before"
				m.now = &s
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, p)), 0o755))
				must(t, os.WriteFile(filepath.Join(root, p), []byte(s), 0o644))
			}
			paths[p], names = m, append(names, p)
		}
		var log []string
		for range r.IntN(25) {
			p := names[r.IntN(len(names))]
			m, s := paths[p], fmt.Sprint(r.IntN(3))
			switch r.IntN(5) {
			case 0, 1:
				must(t, open(t, root).WriteFile(p, []byte(s), 0o644))
				m.acceld(&s)
				log = append(log, "acceld writes "+p+" "+s)
			case 2:
				must(t, open(t, root).Remove(p))
				m.acceld(nil)
				log = append(log, "acceld removes "+p)
			case 3:
				// otherwise its directory does not exist
				if os.WriteFile(filepath.Join(root, p), []byte("theirs"+s), 0o644) == nil {
					s = "theirs" + s
					m.now = &s
				}
				log = append(log, "somebody writes "+p)
			case 4:
				_ = os.Remove(filepath.Join(root, p))
				m.now = nil
				log = append(log, "somebody removes "+p)
			}
		}
		count := 0
		l := open(t, root)
		l.files.fault = crashAt(r.IntN(60), &count)
		_, _ = l.Undo(UndoOptions{}) // it may be killed
		purge(t, root)
		for p, m := range paths {
			want := m.afterPurge()
			b, err := os.ReadFile(filepath.Join(root, p))
			got := string(b)
			if err != nil {
				got = "\x00"
			}
			if got != text(want) {
				t.Fatalf("seed %d: %s is %q, want %q, after\n%s", seed, p, got, text(want), strings.Join(log, "\n"))
			}
		}
		must(t, os.RemoveAll(root))
	}
}

func TestDamageIsNoGuess(t *testing.T) {
	for name, damage := range map[string]func(text []byte) []byte{
		"bit in the middle": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"line missing": func(b []byte) []byte {
			lines := strings.SplitAfter(string(b), "\n")
			for i, l := range lines {
				if strings.Contains(l, `"path":"/etc/secret","prior"`) {
					return []byte(strings.Join(append(lines[:i:i], lines[i+1:]...), ""))
				}
			}
			return nil
		},
		"begins in the middle": func(b []byte) []byte {
			_, rest, _ := strings.Cut(string(b), "\n")
			return []byte(rest)
		},
		"another version": func([]byte) []byte { b, _ := encode(record{Op: opSchema, Schema: 99}); return b },
		"another file":    func([]byte) []byte { return []byte("hello\nworld\n") },
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			must(t, everything(open(t, root)))
			journal := filepath.Join(root, stateDir, "ledger/journal")
			b, err := os.ReadFile(journal)
			must(t, err)
			must(t, os.WriteFile(journal, damage(b), 0o600))
			before := snapshot(t, root, true)
			l := open(t, root)
			_, undo := l.Undo(UndoOptions{})
			_, discard := l.Discard(false)
			for what, err := range map[string]error{
				"undo": undo, "discard": discard,
				"write": l.WriteFile("/etc/new", nil, 0o600),
			} {
				var p *accel.Problem
				if !errors.As(err, &p) || p.Reason != accel.LedgerDamaged ||
					!strings.Contains(p.Message, "ledger/journal") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if diff := tree.Diff(before, snapshot(t, root, true)); diff != "" {
				t.Errorf("something was changed:\n%s", diff)
			}
		})
	}
}

// A last line that a power cut has torn is no damage, and nothing is lost by it.
func TestTornLastLine(t *testing.T) {
	for _, tail := range []string{
		`{"sum":"12`, "\x00\x00\x00\x00", "\x00\x00\n", `{"sum":"0","record":{}}` + "\n",
		strings.Repeat("\x00", 64<<10), // longer than what is written next
	} {
		root := newRoot(t)
		before := around(snapshot(t, root, true))
		must(t, everything(open(t, root)))
		f, err := os.OpenFile(filepath.Join(root, stateDir, "ledger/journal"), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString(tail)
		must(t, errors.Join(err, f.Close()))
		must(t, open(t, root).WriteFile("/etc/after", []byte("x"), 0o600)) // and the journal goes on
		if left := purge(t, root); len(left) > 0 {
			t.Errorf("%.20q: left %+v", tail, left)
		}
		if diff := tree.Diff(before, around(snapshot(t, root, true))); diff != "" {
			t.Errorf("%.20q:\n%s", tail, diff)
		}
	}
}

func TestDamagedBlobIsNotRestored(t *testing.T) {
	root := newRoot(t)
	must(t, everything(open(t, root)))
	blobs, err := filepath.Glob(filepath.Join(root, stateDir, "ledger/blobs/*"))
	must(t, err)
	for _, b := range blobs {
		must(t, os.WriteFile(b, []byte("damaged"), 0o600))
	}
	left := purge(t, root)
	found := false
	for _, o := range left {
		found = found || o.Path == "/etc/secret" && o.Reason == accel.LedgerDamaged
	}
	if b, err := os.ReadFile(filepath.Join(root, "etc/secret")); !found || err != nil || string(b) != "ours again" {
		t.Errorf("left %+v; the file is %q, %v", left, b, err)
	}
}
