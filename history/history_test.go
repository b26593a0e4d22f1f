package history

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

const dir = "/var/lib/acceld/history"

// stand is a book on a host, which sees a machine of one kind.
type stand struct {
	*testing.T
	root   string
	book   *Book
	now    time.Time
	driver accel.DriverHave
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{T: t, root: t.TempDir(), now: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}
	s.open()
	return s
}

// open begins with what is on the disk, as an agent that starts.
func (s *stand) open() {
	s.Helper()
	h, err := host.New(s.root)
	if err != nil {
		s.Fatal(err)
	}
	s.book = New(Options{Host: h, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	s.book.load()
}

func device(address, serial string, state accel.HealthState, reason accel.Reason) accel.Accelerator {
	return accel.Accelerator{ID: address, Serial: serial, Health: accel.Health{State: state, Reason: reason}}
}

func (s *stand) see(accs ...accel.Accelerator) {
	s.now = s.now.Add(time.Minute)
	s.book.See(accel.Machine{Taken: s.now, Have: map[string]accel.Have{"x-card": {Driver: s.driver, Accelerators: accs}}})
}

// told is what the records say: for each device its ID and address, and what happened to it.
func (s *stand) told() string {
	var b strings.Builder
	for _, r := range s.book.Records() {
		b.WriteString(r.ID + " at " + r.Address + ":")
		for _, e := range r.Entries {
			b.WriteString(" " + string(e.What))
			if e.Reason != "" {
				b.WriteString("(" + string(e.Reason) + ")")
			}
			if e.Driver != "" {
				b.WriteString("(" + e.Driver + ")")
			}
			if e.Times > 0 {
				b.WriteString(strings.Repeat("+", e.Times-1))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (s *stand) want(want string) {
	s.Helper()
	if diff := cmp.Diff(want, s.told()); diff != "" {
		s.Errorf("(-want +got)\n%s", diff)
	}
}

// TestCourse: a device is found, proven, fails, is well again, goes to another slot, and all of it is there after a
// restart, under its serial number.
func TestCourse(t *testing.T) {
	s := newStand(t)
	s.see(device("0000:01:00.0", "", "", "")) // nothing is known yet
	s.want("")
	s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
	s.driver = accel.DriverHave{Version: "1.0", Proven: s.now, Proof: "computed"}
	s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
	s.see(device("0000:01:00.0", "A", accel.Unhealthy, accel.DeviceFault))
	s.see(device("0000:01:00.0", "A", accel.Unhealthy, accel.DeviceFault))
	s.see(device("0000:01:00.0", "", accel.Gone, accel.DeviceGone)) // its serial number cannot be read any more
	s.want("A at 0000:01:00.0: found proven(1.0) fault(DeviceFault) fault(DeviceGone)\n")
	if !s.book.write() {
		t.Fatal("it cannot be written")
	}
	s.open()
	s.see(device("0000:02:00.0", "A", accel.Healthy, ""), device("0000:01:00.0", "B", accel.Healthy, ""))
	s.want("B at 0000:01:00.0: found proven(1.0)\n" +
		"A at 0000:02:00.0: found proven(1.0) fault(DeviceFault) fault(DeviceGone) moved well\n")
	accs := s.book.Enrich("x-card", []accel.Accelerator{
		device("0000:02:00.0", "A", accel.Healthy, ""), device("0000:03:00.0", "C", accel.Healthy, ""),
	})
	if accs[0].Recorded != 2 || accs[1].Recorded != 0 {
		t.Errorf("recorded: %d, %d", accs[0].Recorded, accs[1].Recorded)
	}
	for _, r := range s.book.Records() {
		if r.ID == "A" && (r.Count() != 2 || r.Faults[accel.DeviceGone] != 1) {
			t.Errorf("faults: %v", r.Faults)
		}
	}
}

// TestLateSerial: a record that was begun before the serial number was known goes on under it, in one file.
func TestLateSerial(t *testing.T) {
	s := newStand(t)
	s.see(device("0000:01:00.0", "", accel.Unhealthy, accel.NodeMissing))
	s.book.write()
	s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
	s.want("A at 0000:01:00.0: found fault(NodeMissing) well\n")
	s.book.write()
	withUUID := device("0000:02:00.0", "", accel.Healthy, "") // as NVIDIA's driver shows it before NVML is asked
	withUUID.UUID = "GPU-1"
	s.see(withUUID)
	withUUID.Serial = "C"
	s.see(withUUID)
	s.want("A at 0000:01:00.0: found fault(NodeMissing) well\nC at 0000:02:00.0: found\n")
	delete(s.book.records, file(dir, "x-card", "C"))
	s.book.write()
	files, err := filepath.Glob(filepath.Join(s.root, dir, "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	// Another card in the same slot, of which an agent that has just started knows no serial number yet, is not it.
	s.open()
	s.see(device("0000:01:00.0", "", accel.Unhealthy, accel.NodeMissing))
	s.see(device("0000:01:00.0", "B", accel.Healthy, ""))
	s.want("A at 0000:01:00.0: found fault(NodeMissing) well\nB at 0000:01:00.0: found fault(NodeMissing) well\n")
}

// TestTwoFiles: a record begun before the serial number was known is merged into the device's own, after a start with a
// slow driver and after a kill that kept its file from being removed.
func TestTwoFiles(t *testing.T) {
	s := newStand(t)
	const address = "0000:01:00.0"
	bare := filepath.Join(s.root, file(dir, "x-card", address))
	s.see(device(address, "", accel.Unhealthy, accel.NodeMissing))
	s.book.write()
	left, err := os.ReadFile(bare)
	if err != nil {
		t.Fatal(err)
	}
	s.see(device(address, "A", accel.Healthy, ""))
	s.book.write()
	for _, name := range []string{bare, filepath.Join(filepath.Dir(bare), ".x.json.1.tmp")} { // it was killed meanwhile
		if err := os.WriteFile(name, left, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.open()
	s.see(device(address, "A", accel.Healthy, ""))
	s.want("A at 0000:01:00.0: found fault(NodeMissing) well\n")
	s.book.write()
	s.open()
	s.see(device(address, "", accel.Unhealthy, accel.NodeMissing))
	s.book.write()
	s.see(device(address, "A", accel.Healthy, ""))
	s.want("A at 0000:01:00.0: found fault(NodeMissing)+ well+\n")
	s.book.write()
	if files, err := os.ReadDir(filepath.Dir(bare)); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// TestPassedOn: resets are on record, and how a device was passed from one tenant to the next, each with its count.
func TestPassedOn(t *testing.T) {
	s := newStand(t)
	a := device("0000:01:00.0", "A", accel.Healthy, "")
	see := func(cleaned int, state accel.HandoverState, by accel.Withholder) {
		a.Withheld = nil
		if by != "" {
			a.Withheld = &accel.Withheld{By: by, Reason: accel.LeftoverProcess, Message: "x"}
		}
		a.Handover = &accel.HandoverHave{State: state, Cleaned: cleaned}
		s.see(a)
	}
	see(0, accel.HandoverUsed, "")
	see(1, accel.HandoverClean, "")
	see(2, accel.HandoverClean, "")
	see(2, accel.HandoverFailed, accel.ByHandover)
	see(2, accel.HandoverFailed, accel.ByHandover)
	see(3, accel.HandoverUsed, "")
	see(3, accel.HandoverUsed, accel.ByReset)
	see(3, accel.HandoverUsed, accel.ByReset)
	see(3, accel.HandoverUsed, "")
	s.want("A at 0000:01:00.0: found unclean(LeftoverProcess) cleaned++ reset\n")
	for _, e := range s.book.Records()[0].Entries {
		if e.Text() == "" || e.What == Unclean && e.Text() != "not clean for its next tenant: LeftoverProcess: x" {
			t.Errorf("%+v: %q", e, e.Text())
		}
	}
}

// TestFlaps: a device that flaps has few entries, which are counted, and a bounded file.
func TestFlaps(t *testing.T) {
	s := newStand(t)
	for range 500 {
		s.see(device("0000:01:00.0", "A", accel.Unhealthy, accel.DeviceFault))
		s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
	}
	r := s.book.Records()[0]
	if len(r.Entries) != 3 || r.Entries[1].Times != 500 || r.Entries[2].Times != 500 || r.Count() != 500 {
		t.Errorf("%d entries, %d faults", len(r.Entries), r.Count())
	}
	for i := range 500 {
		reason := accel.Reason(strings.Repeat("R", 1+i%100))
		s.see(device("0000:01:00.0", "A", accel.Unhealthy, reason))
	}
	r = s.book.Records()[0]
	if len(r.Entries) != maxEntries || len(r.Faults) != maxReasons {
		t.Errorf("%d entries, %d reasons", len(r.Entries), len(r.Faults))
	}
	for i := range 2 * maxDevices {
		s.see(device("0000:02:00.0", strings.Repeat("s", 1+i), accel.Healthy, ""))
	}
	if n := len(s.book.Records()); n != maxDevices {
		t.Errorf("%d devices", n)
	}
	s.book.write()
	files, err := filepath.Glob(filepath.Join(s.root, dir, "*.json"))
	if err != nil || len(files) != maxDevices {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// TestRun: what happens together is written once, soon after; what is seen without news is not; what cannot be written
// is written later; the end writes what is left.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.now = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		s.book = New(s.book.o)
		s.see(device("0000:01:00.0", "A", accel.Healthy, "")) // before it runs
		go func() { ended <- s.book.Run(ctx) }()
		synctest.Wait()
		s.want("A at 0000:01:00.0: found\n")
		there := func() int {
			files, err := filepath.Glob(filepath.Join(s.root, dir, "*.json"))
			if err != nil {
				t.Fatal(err)
			}
			return len(files)
		}
		blocked := filepath.Join(s.root, "var")
		if err := os.WriteFile(blocked, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
		time.Sleep(2 * together)
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		if n := there(); n != 0 {
			t.Errorf("%d files on a disk that takes none", n)
		}
		time.Sleep(again + 2*together)
		if n := there(); n != 1 {
			t.Errorf("%d files once it takes them", n)
		}
		name, err := filepath.Glob(filepath.Join(s.root, dir, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name[0]); err != nil {
			t.Fatal(err)
		}
		s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
		time.Sleep(2 * together)
		if n := there(); n != 0 {
			t.Error("a device that is as it was is written again")
		}
		s.see(device("0000:01:00.0", "A", accel.Degraded, accel.LimitExceeded))
		cancel()
		if err := <-ended; err != nil || there() != 1 {
			t.Errorf("at the end: %v, %d files", err, there())
		}
	})
}

// TestForeign: files that are none of this package's, too large, or of another device are named and left alone.
func TestForeign(t *testing.T) {
	s := newStand(t)
	s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
	s.book.write()
	good, err := filepath.Glob(filepath.Join(s.root, dir, "*.json"))
	if err != nil || len(good) != 1 {
		t.Fatal(good, err)
	}
	text, err := os.ReadFile(good[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"a.json": "{", "b.json": string(text), "c.json": `{"schema":2}`, "d.json": strings.Repeat(" ", maxFile+1),
	} {
		if err := os.WriteFile(filepath.Join(s.root, dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, bad := Read(s.book.o.Host, dir)
	if len(all) != 1 || len(bad) != 4 {
		t.Errorf("%d records, %q", len(all), bad)
	}
}

// FuzzRead: whatever a file contains, what is read of it is within the bounds, and can be gone on with.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"schema":1,"kind":"x-card","id":"A","entries":[{"what":"fault","reason":"x"}],"faults":{"x":1}}`))
	f.Add([]byte(`{"schema":1,"kind":"x-card","id":"A"}`))
	root := f.TempDir()
	h, err := host.New(root)
	if err != nil {
		f.Fatal(err)
	}
	name := file(dir, "x-card", "A")
	if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		b := New(Options{Host: h, Dir: dir, Log: slog.New(slog.DiscardHandler)})
		b.load()
		for _, r := range b.Records() {
			if len(r.Entries) > maxEntries || len(r.Faults) > maxReasons {
				t.Errorf("%d entries, %d reasons", len(r.Entries), len(r.Faults))
			}
		}
		b.See(accel.Machine{Taken: time.Now(), Have: map[string]accel.Have{"x-card": {
			Accelerators: []accel.Accelerator{device("0000:01:00.0", "A", accel.Unhealthy, accel.DeviceFault)},
		}}})
	})
}

// TestAttempt: a reset is on the disk before it begins, and counts once, whether or not it was seen.
func TestAttempt(t *testing.T) {
	s := newStand(t)
	ill := device("0000:01:00.0", "S1", accel.Unhealthy, accel.DeviceFault)
	s.see(ill)
	times := func(since time.Duration) int {
		n, known := s.book.Resets("x-card", ill, s.now.Add(-since))
		if !known {
			t.Error("not known")
		}
		return n
	}
	over, problem := s.book.Attempt("x-card", ill, s.now, "error 79")
	if problem != nil || times(time.Hour) != 1 {
		t.Fatalf("%v, %d times", problem, times(time.Hour))
	}
	during := ill
	during.Withheld = &accel.Withheld{By: accel.ByReset}
	s.see(during)
	s.see(ill)
	over()
	if n := times(time.Hour); n != 1 {
		t.Errorf("%d resets", n)
	}
	s.open() // as an agent that was killed meanwhile
	s.see(during)
	s.see(ill)
	if n := times(time.Hour); n != 2 { // somebody else made the second
		t.Errorf("%d resets", n)
	}
	if n := times(time.Minute); n != 1 {
		t.Errorf("%d resets in the last minute", n)
	}
	if _, problem := s.book.Attempt("x-card", device("0000:09:00.0", "", "", ""), s.now, "x"); problem == nil {
		t.Error("a device that nobody has seen")
	}
	if err := os.RemoveAll(filepath.Join(s.root, dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.root, dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, problem := s.book.Attempt("x-card", ill, s.now, "x"); problem == nil || problem.Reason != accel.CannotReset {
		t.Errorf("it is not written down: %v", problem)
	}
	b := New(Options{Host: s.book.o.Host, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if _, known := b.Resets("x-card", ill, s.now); known {
		t.Error("the records were not read")
	}
}

// TestWaitsForPerson: that a device waits for a person is on record once after each fault, whichever agent runs.
func TestWaitsForPerson(t *testing.T) {
	s := newStand(t)
	ill := func(r *accel.RepairHave) accel.Accelerator {
		a := device("0000:01:00.0", "A", accel.Unhealthy, accel.DeviceFault)
		a.Repair = r
		return a
	}
	s.see(ill(nil))
	s.see(ill(&accel.RepairHave{State: accel.RepairWaits}))
	would := &accel.RepairHave{State: accel.RepairWaits, Would: true}
	s.see(ill(would))
	s.see(ill(would))
	s.want("A at 0000:01:00.0: found fault(DeviceFault) would-reset\n")
	if !s.book.write() {
		t.Fatal("it cannot be written")
	}
	s.open()
	s.see(ill(would))
	s.see(ill(&accel.RepairHave{State: accel.RepairGivenUp, Message: "it was reset 3 times"}))
	s.see(ill(would))
	s.see(device("0000:01:00.0", "A", accel.Healthy, ""))
	s.see(device("0000:01:00.0", "A", accel.Unhealthy, accel.LinkDegraded))
	a := ill(would)
	a.Health.Reason = accel.LinkDegraded
	s.see(a)
	s.want("A at 0000:01:00.0: found fault(DeviceFault) would-reset given-up well fault(LinkDegraded) would-reset\n")
	entries := s.book.Records()[0].Entries
	if got := entries[3].Text(); got != "waits for a person: it was reset 3 times" {
		t.Error(got)
	}
	if got := entries[2].Text(); got != "would have been reset (dry run)" {
		t.Error(got)
	}
}
