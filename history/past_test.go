package history

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestPast: a device in short: by its serial number, also while its driver is not loaded and when it is gone, and
// changing at most once a minute.
func TestPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		short := func(a accel.Accelerator) string {
			p, known := s.book.Past("x-card", a, time.Now())
			if !known {
				return "unknown"
			}
			text := fmt.Sprintf("%q %d %d %d", p.Serial, p.Faults, p.Resets, p.Proofs)
			if f := p.LastFault; f != nil {
				text += " " + string(f.Reason)
			}
			return text
		}
		want := func(a accel.Accelerator, want string) {
			t.Helper()
			if got := short(a); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		well := device("0000:01:00.0", "A", accel.Healthy, "")
		want(well, "unknown")
		s.driver = accel.DriverHave{Version: "1.0", Proven: s.now}
		s.see(well)
		want(well, `"A" 0 0 1`)
		s.see(device("0000:01:00.0", "A", accel.Unhealthy, accel.DeviceFault))
		want(well, `"A" 0 0 1`)
		time.Sleep(publish)
		want(well, `"A" 1 0 1 DeviceFault`)
		reset := device("0000:01:00.0", "", accel.Unhealthy, accel.DeviceFault)
		reset.Withheld = &accel.Withheld{By: accel.ByReset}
		s.see(reset)
		s.see(device("0000:01:00.0", "", accel.Gone, accel.DeviceGone))
		time.Sleep(publish)
		want(device("0000:01:00.0", "", accel.Gone, ""), `"A" 2 1 1 DeviceGone`)
		nameless := device("0000:02:00.0", "", accel.Healthy, "")
		s.see(nameless)
		want(nameless, `"" 0 0 1`)
		s.see(device("0000:02:00.0", "B", accel.Healthy, "")) // which is shown at once
		want(device("0000:02:00.0", "B", accel.Healthy, ""), `"B" 0 0 1`)
		if !s.book.write() {
			t.Fatal("it cannot be written")
		}
		s.open()
		want(well, `"A" 2 1 1 DeviceGone`)
	})
}

// TestPastOfAnEarlierVersion: a record that counted no resets has those of its entries.
func TestPastOfAnEarlierVersion(t *testing.T) {
	s := newStand(t)
	a := device("0000:01:00.0", "A", accel.Healthy, "")
	s.see(a)
	r := s.book.records[file(dir, "x-card", "A")]
	for range 3 {
		r.add(Entry{What: Reset, At: s.now, Address: a.ID})
	}
	r.add(Entry{What: Proven, At: s.now, Driver: "1"})
	r.Resets, r.Proofs = 0, 0
	if !s.book.write() {
		t.Fatal("it cannot be written")
	}
	s.open()
	got, known := s.book.Past("x-card", a, s.now)
	want := accel.Past{Serial: "A", Since: r.First, Resets: 3, Proofs: 1}
	if diff := cmp.Diff(want, got); !known || diff != "" {
		t.Errorf("%t %s", known, diff)
	}
}

// TestSeen: a device is never said to have been seen last before it was seen first, or before something happened to it.
func TestSeen(t *testing.T) {
	s := newStand(t)
	at := func(hour, minute int, a accel.Accelerator, want string) {
		t.Helper()
		s.now = time.Date(2026, 11, 26, hour, minute-1, 0, 0, time.UTC) // see adds a minute
		s.see(a)
		if got := s.book.Records()[0].Seen().Format("15:04"); got != want {
			t.Errorf("at %d:%02d: seen at %s, want %s", hour, minute, got, want)
		}
	}
	well := device("0000:01:00.0", "A", accel.Healthy, "")
	at(14, 19, well, "14:19")
	at(16, 5, well, "16:00")
	at(16, 20, device("0000:01:00.0", "A", accel.Unhealthy, accel.DeviceFault), "16:20")
	at(16, 30, device("0000:01:00.0", "", accel.Gone, accel.DeviceGone), "16:20")
	at(18, 10, device("0000:01:00.0", "", accel.Gone, accel.DeviceGone), "16:20")
}
