package accel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func pastOf(p Past) func(Accelerator) (Past, bool) {
	return func(a Accelerator) (Past, bool) {
		if x := p; p.Serial == "each" {
			x.Serial = "S-" + a.ID
			return x, true
		}
		return p, true
	}
}

// TestDeviceReports: what is reported is read again, to the second and within the bounds.
func TestDeviceReports(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("x", 3600))
	p := Past{
		Serial: "A1", Since: at, Faults: 3, Resets: 2, Proofs: 1,
		LastFault: &PastFault{At: at, Reason: DeviceFault, Message: "Xid 79 <\x1b[31m\n" + strings.Repeat("é", 100)},
	}
	text := ReportDevices([]Accelerator{{ID: "0000:01:00.0", Model: "X 100", Health: Health{State: Gone}}}, pastOf(p))
	got, known := ParseDeviceReports(text)
	want := []DeviceReport{{
		Past: Past{
			Serial: "A1", Since: at.UTC().Truncate(time.Second), Faults: 3, Resets: 2, Proofs: 1,
			LastFault: &PastFault{
				At: at.UTC().Truncate(time.Second), Reason: DeviceFault,
				Message: "Xid 79 < [31m " + strings.Repeat("é", 51) + "…",
			},
		},
		Model: "X 100", Address: "0000:01:00.0", Gone: true,
	}}
	if diff := cmp.Diff(want, got); !known || diff != "" {
		t.Errorf("%t (-want +got):\n%s\n%s", known, diff, text)
	}
	if len(want[0].LastFault.Message) > maxPastText || strings.Contains(text, `\u003c`) {
		t.Errorf("%d bytes, %s", len(want[0].LastFault.Message), text)
	}
	if text := ReportDevices(nil, pastOf(p)); text != NoDevices {
		t.Error(text)
	}
	if all, known := ParseDeviceReports(NoDevices); !known || len(all) != 0 {
		t.Error(all, known)
	}
}

// TestDeviceReportsBounded: many devices, two of one serial number, and those without one.
func TestDeviceReportsBounded(t *testing.T) {
	var accs []Accelerator
	for i := range 100 {
		accs = append(accs, Accelerator{ID: fmt.Sprintf("0000:%02x:00.0", i), Model: strings.Repeat(`"`, 100)})
	}
	long := Past{
		Serial: "each", Since: time.Unix(1e9, 0),
		LastFault: &PastFault{At: time.Unix(1e9, 0), Reason: "X", Message: strings.Repeat(`"`, 500)},
	}
	text := ReportDevices(accs, pastOf(long))
	all, known := ParseDeviceReports(text)
	if !known || len(all) == 0 || len(all) > maxReported || len(text) > MaxDeviceReport {
		t.Errorf("%d devices in %d bytes, %t", len(all), len(text), known)
	}
	one := pastOf(Past{Serial: "one", Since: time.Unix(1e9, 0)})
	if all, _ := ParseDeviceReports(ReportDevices(accs, one)); len(all) != 1 {
		t.Errorf("%d devices of one serial number", len(all))
	}
	for _, serial := range []string{strings.Repeat("x", maxSerial+1), "a\nb"} {
		if text := ReportDevices(accs, pastOf(Past{Serial: serial, Since: time.Unix(1e9, 0)})); text != NoDevices {
			t.Error(text)
		}
	}
	odd := Past{Serial: "A", Since: time.Unix(1e9, 0), Faults: 2, LastFault: &PastFault{At: time.Unix(1e9, 0)}}
	if all, _ := ParseDeviceReports(ReportDevices(accs[:1], pastOf(odd))); len(all) != 1 || all[0].Faults != 2 ||
		all[0].LastFault != nil {
		t.Errorf("a fault without a reason: %+v", all)
	}
	none := func(Accelerator) (Past, bool) { return Past{}, false }
	if text := ReportDevices(accs, none); text != NoDevices {
		t.Error(text)
	}
}

// TestDeviceReportsRefused: a text that no agent writes says nothing at all.
func TestDeviceReportsRefused(t *testing.T) {
	const good = `{"serial":"A","since":"2026-01-02T03:04:05Z","address":"0000:01:00.0"`
	if _, known := ParseDeviceReports("[" + good + "}]"); !known {
		t.Fatal("the good one")
	}
	for _, text := range []string{
		"", "null", "{}", "[" + good + "},{}]", "[" + good + "}," + good + "}]", "[" + good + `,"faults":-1}]`,
		"[" + good + `,"resets":1000001}]`, "[" + good + `,"faults":1e999999}]`, "[" + good + "\n}] x",
		"[" + good + `,"lastFault":{"at":"2026-01-02T03:04:05Z","reason":"a b"}}]`,
		"[" + good + `,"lastFault":{"reason":"Ab"}}]`,
		"[" + good + `,"lastFault":{"at":"2026-01-02T03:04:05Z","reason":"Ab","message":"a\u001bb"}}]`,
		"[" + good + `,"model":"` + strings.Repeat("m", maxModel+1) + `"}]`,
		"[" + good + `,"since":"0001-01-01T00:00:00Z"}]`,
		"[" + good + "}]" + strings.Repeat(" ", MaxDeviceReport),
		"[" + good + "}" + strings.Repeat(`,{"serial":"B"}`, maxReported) + "]",
	} {
		if all, known := ParseDeviceReports(text); known || all != nil {
			t.Errorf("%.200s: %+v", text, all)
		}
	}
}

// FuzzDeviceReports: whatever a node writes, what is read is within the bounds, and can be written again.
func FuzzDeviceReports(f *testing.F) {
	f.Add(`[{"serial":"A","since":"2026-01-02T03:04:05Z","address":"0000:01:00.0","faults":2,"lastFault":` +
		`{"at":"2026-01-02T03:04:05+01:00","reason":"DeviceFault","message":"x"}}]`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		all, known := ParseDeviceReports(text)
		if !known {
			return
		}
		if len(all) > maxReported {
			t.Errorf("%d devices", len(all))
		}
		for _, r := range all {
			if !r.valid() {
				t.Errorf("%+v", r)
			}
		}
		again, known := ParseDeviceReports(encodePlain(all))
		if diff := cmp.Diff(all, again); len(encodePlain(all)) <= MaxDeviceReport && (!known || diff != "") {
			t.Errorf("read again: %t\n%s", known, diff)
		}
	})
}

func TestHistoryPolicy(t *testing.T) {
	for keep, want := range map[string]string{
		"": "", "2160h": "", "1h": "",
		"30m": `history.keep: "30m" is not a time such as 2160h`, "a year": `history.keep: "a year" is not a time such as 2160h`,
	} {
		got := strings.Join(PolicySpec{History: &DeviceHistory{Keep: keep}}.Problems(), "; ")
		if got != want {
			t.Errorf("%q: %q", keep, got)
		}
	}
	if d := (&DeviceHistory{Keep: "2h"}).Keeps(); d != 2*time.Hour {
		t.Error(d)
	}
	var none *DeviceHistory
	if none.Keeps() != keepHistory || (&DeviceHistory{}).Keeps() != keepHistory {
		t.Error("the default")
	}
}
