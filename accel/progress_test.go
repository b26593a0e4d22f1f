package accel

import (
	"testing"
	"time"
)

// TestLeft: Left estimates a time only if it has enough data.
func TestLeft(t *testing.T) {
	since := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		p     Progress
		after time.Duration
		want  time.Duration
		ok    bool
	}{
		"half":      {Progress{Done: 50, Total: 100}, 10 * time.Second, 10 * time.Second, true},
		"a quarter": {Progress{Done: 25, Total: 100}, 20 * time.Second, time.Minute, true},
		"all":       {Progress{Done: 100, Total: 100}, 10 * time.Second, 0, false},
		"the pace of this attempt": {
			Progress{Done: 50, Total: 100, Again: since.Add(90 * time.Second)},
			100 * time.Second, 10 * time.Second, true,
		},
		"no total":     {Progress{Done: 50}, 10 * time.Second, 0, false},
		"nothing done": {Progress{Total: 100}, 10 * time.Second, 0, false},
		"too early":    {Progress{Done: 50, Total: 100}, 4 * time.Second, 0, false},
		"too early, again": {
			Progress{Done: 50, Total: 100, Again: since.Add(8 * time.Second)},
			10 * time.Second,
			0, false,
		},
		"too little":            {Progress{Done: 4, Total: 100}, 10 * time.Second, 0, false},
		"more than was thought": {Progress{Done: 101, Total: 100}, 10 * time.Second, 0, false},
		"over":                  {Progress{Done: 50, Total: 100, Ended: true}, 10 * time.Second, 0, false},
	} {
		c.p.Since = since
		if got, ok := c.p.Left(since.Add(c.after)); got != c.want || ok != c.ok {
			t.Errorf("%s: %v %t, want %v %t", name, got, ok, c.want, c.ok)
		}
	}
}

// TestSilent: a transfer without bytes says so within seconds, and only a transfer does.
func TestSilent(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	pull := func(change func(*Progress)) Progress {
		p := Progress{Stage: StagePull, What: "registry.example/npu:1", Since: ago(60)}
		change(&p)
		return p
	}
	for _, tt := range []struct {
		name, text, report string
		p                  Progress
	}{
		{
			"no byte yet", "pulling, 1m0s, no byte for 1m0s: registry.example/npu:1",
			"pulling registry.example/npu:1 since 11:59:00 UTC, no byte comes", pull(func(*Progress) {}),
		},
		{
			"it hangs in the middle", "pulling, 4.0 of 10.0 MB (40 %), 1m0s, no byte for 12s: registry.example/npu:1",
			"pulling registry.example/npu:1, 40 % since 11:59:00 UTC, no byte comes",
			pull(func(p *Progress) { p.Done, p.Total, p.Moved = 4e6, 10e6, ago(12) }),
		},
		{
			"bytes come", "pulling, 4.7 of 10.0 MB (47 %), 1m0s, ~1m8s left: registry.example/npu:1",
			"pulling registry.example/npu:1, 40 % since 11:59:00 UTC",
			pull(func(p *Progress) { p.Done, p.Total, p.Moved = 47e5, 10e6, ago(4) }),
		},
		{
			"no byte is missing", "unpacking, 10.0 MB, 1m0s: registry.example/npu:1",
			"unpacking registry.example/npu:1 since 11:59:00 UTC",
			pull(func(p *Progress) { p.Done, p.Total, p.Moved = 10e6, 10e6, ago(30) }),
		},
		{
			"another attempt has begun", "pulling, 1m0s, attempt 2 because it broke: registry.example/npu:1",
			"pulling registry.example/npu:1 since 11:59:00 UTC",
			pull(func(p *Progress) { p.Again, p.Attempt, p.Problem = ago(2), 2, "it broke" }),
		},
		{
			"a build is quiet", "building, step 1 of 2, 10 of ~40 commands (~25 %), 1m0s, ~3m0s left: CC x.o",
			"building, 20 % since 11:59:00 UTC",
			Progress{
				Stage: StageBuild, What: "CC x.o", Step: 1, Steps: 2, Done: 10, Total: 40, Guessed: true, Since: ago(60),
				Moved: ago(50),
			},
		},
	} {
		if got := tt.p.Text(now); got != tt.text {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.text)
		}
		if got := tt.p.Report(now); got != tt.report {
			t.Errorf("%s: report %q, want %q", tt.name, got, tt.report)
		}
	}
}
