package deviceplugin

import (
	"testing"
	"time"
)

func TestWatchdog(t *testing.T) {
	ab, none, a := []string{"a", "b"}, []string{}, []string{"a"}
	type look struct {
		at       time.Duration
		revision int
		healthy  []string
		counted  []string
		want     verdict
	}
	const ms, s = time.Millisecond, time.Second
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"right at once", []look{{0, 1, ab, ab, verdict{settled: true, next: 30 * s}}}},
		{"no devices", []look{{0, 1, nil, none, verdict{settled: true, next: 30 * s}}}},
		{"right in time", []look{
			{0, 1, ab, none, verdict{next: 10 * ms}},
			{10 * ms, 1, ab, none, verdict{next: 20 * ms}},
			{30 * ms, 1, ab, ab, verdict{settled: true, next: 30 * s}},
			{30 * s, 1, ab, none, verdict{next: 10 * ms}},
		}},
		{"none for too long", []look{
			{0, 1, ab, none, verdict{next: 10 * ms}},
			{499 * ms, 1, ab, none, verdict{next: 20 * ms}},
			{500 * ms, 1, ab, none, verdict{renew: true}},
		}},
		{"twice: more patience", []look{
			{0, 1, ab, none, verdict{next: 10 * ms}},
			{500 * ms, 1, ab, none, verdict{renew: true}},
			{-1, 0, nil, nil, verdict{}}, // a new registration
			{600 * ms, 1, ab, none, verdict{next: 10 * ms}},
			{1500 * ms, 1, ab, none, verdict{next: 20 * ms}},
			{1600 * ms, 1, ab, none, verdict{renew: true}},
		}},
		{"a new list takes its time", []look{
			{0, 1, ab, none, verdict{next: 10 * ms}},
			{499 * ms, 2, a, none, verdict{next: 10 * ms}},
			{900 * ms, 2, a, none, verdict{next: 20 * ms}},
			{999 * ms, 2, a, none, verdict{renew: true}},
		}},
		{"others are not none", []look{
			{0, 1, ab, none, verdict{next: 10 * ms}},
			{400 * ms, 1, ab, a, verdict{next: 20 * ms}},
			{600 * ms, 1, ab, none, verdict{next: 40 * ms}},
			{1000 * ms, 1, ab, a, verdict{next: 80 * ms}},
			{9999 * ms, 1, ab, a, verdict{next: 160 * ms}},
			{10 * s, 1, ab, a, verdict{renew: true}},
		}},
		{"too many", []look{
			{0, 1, a, ab, verdict{next: 10 * ms}},
			{10 * s, 1, a, ab, verdict{renew: true}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &watchdog{timing: defaultTiming()}
			w.timing.askFirst = 10 * ms
			t0 := time.Now()
			w.begin()
			for i, l := range tc.looks {
				if l.at < 0 {
					w.begin()
					continue
				}
				if got := w.observe(t0.Add(l.at), l.revision, l.healthy, l.counted); got != l.want {
					t.Fatalf("look %d: %+v, want %+v", i, got, l.want)
				}
			}
		})
	}
	w := &watchdog{timing: defaultTiming(), renewals: 1000}
	if got := w.patience(500 * ms); got != 5*time.Minute {
		t.Errorf("patience after a thousand renewals = %s", got)
	}
}
